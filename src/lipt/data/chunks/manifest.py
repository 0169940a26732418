"""`manifest.json`, the table of contents of a data set. A data set with a manifest is complete."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from lipt.errors import DamagedDataError, RunError, first_problem

MANIFEST = "manifest.json"
FORMAT_VERSION = 2

_DAMAGED = "the file was edited or damaged: restore it, or delete the data set and ingest it again"
_SPLITS = {"train", "test"}
_FileName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
_Count = Annotated[int, Field(ge=0, lt=2**62)]
_EXACT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True)
class ChunkInfo:
    """One tar: its name, bytes, sha256 (hex) and number of samples."""

    __pydantic_config__ = _EXACT
    file: _FileName
    size: _Count
    sha256: str
    count: _Count


@dataclass(frozen=True)
class IndexInfo:
    """The parquet file with one row per sample of a split."""

    __pydantic_config__ = _EXACT
    file: _FileName
    sha256: str


@dataclass(frozen=True)
class SplitInfo:
    """One split: `class_counts[c]` samples have label c; `chunks` are in global order."""

    __pydantic_config__ = _EXACT
    count: _Count
    class_counts: tuple[_Count, ...]
    chunks: tuple[ChunkInfo, ...]
    index: IndexInfo


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The table of contents of a data set.

    Attributes:
        name: short name of the data set.
        classes: class names, in label order.
        splits: `train` and `test`.
        recipe: the settings that determine every byte, besides the source: shuffle seed, chunk size, test fraction.
        fingerprint: of the source at the time of ingestion.
        digest: sha256 over the canonical JSON of the contents; subsets and shards carry it. The same images under the
            same names have the same digest, wherever and whenever they were ingested.
    """

    __pydantic_config__ = _EXACT
    name: str
    classes: tuple[str, ...]
    splits: dict[str, SplitInfo]
    recipe: dict[str, Any]
    fingerprint: str = ""
    format_version: int = FORMAT_VERSION
    digest: str = ""

    def __post_init__(self) -> None:
        if not self.digest:
            object.__setattr__(self, "digest", canonical_digest(self._contents()))

    def to_json(self) -> bytes:
        about = {"name": self.name, "fingerprint": self.fingerprint, "digest": self.digest}
        return json.dumps(self._contents() | about, indent=2, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Parse and validate.

        Raises:
            DamagedDataError: it is not JSON, a field is missing, two fields contradict each other, or the digest
                differs.
            RunError: the format version is unknown.
        """
        try:
            document = json.loads(data)
            version = document["format_version"]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise DamagedDataError(f"{MANIFEST} is not the manifest of a data set ({error!r})", _DAMAGED) from error
        if type(version) is not int or version != FORMAT_VERSION:
            remedy = "install the version of lipt that wrote the data set, or ingest it again"
            raise RunError(f"{MANIFEST}: format version {version!r}; this program reads {FORMAT_VERSION}", remedy)
        try:
            manifest = TypeAdapter(cls).validate_json(data)
            digest = canonical_digest(manifest._contents())
        except ValidationError as error:
            why = first_problem(error.errors())
            raise DamagedDataError(f"{MANIFEST}: a field is missing or malformed ({why})", _DAMAGED) from error
        if document.get("digest") != digest:
            raise DamagedDataError(f"{MANIFEST}: the contents have another digest than it names", _DAMAGED)
        if contradiction := manifest._contradiction():
            raise DamagedDataError(f"{MANIFEST}: {contradiction}", _DAMAGED)
        return manifest

    def _contents(self) -> dict[str, Any]:
        """The fields that the digest covers."""
        return {
            "format_version": self.format_version,
            "classes": list(self.classes),
            "splits": {name: asdict(split) for name, split in self.splits.items()},
            "recipe": self.recipe,
        }

    def _contradiction(self) -> str:
        """A statement that an ingest would never write; empty if there is none."""
        if self.splits.keys() != _SPLITS:
            return f"its splits are {', '.join(self.splits) or 'none'}, expected train and test"
        for name, split in self.splits.items():
            if len(split.class_counts) != len(self.classes):
                return f"split {name!r} counts {len(split.class_counts)} classes, there are {len(self.classes)}"
            if {sum(split.class_counts), sum(chunk.count for chunk in split.chunks)} != {
                split.count
            } or not split.count:
                return f"the counts of split {name!r} do not add up"
        return ""


def canonical_digest(document: dict[str, Any]) -> str:
    """sha256 (hex) over JSON with sorted keys, no spaces, ASCII."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
