"""`manifest.json`, the table of contents of a data set. A data set with a manifest is complete."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lipt.errors import DamagedDataError, RunError

MANIFEST = "manifest.json"
FORMAT_VERSION = 2

_DAMAGED = "the file was edited or damaged: restore it, or delete the data set and ingest it again"
_SPLITS = {"train", "test"}
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_MAX_INT = 2**62  # for counts and sizes


@dataclass(frozen=True)
class ChunkInfo:
    """One tar: its name, bytes, sha256 (hex) and number of samples."""

    file: str
    size: int
    sha256: str
    count: int


@dataclass(frozen=True)
class IndexInfo:
    """The parquet file with one row per sample of a split."""

    file: str
    sha256: str


@dataclass(frozen=True)
class SplitInfo:
    """One split: `class_counts[c]` samples have label c; `chunks` are in global order."""

    count: int
    class_counts: tuple[int, ...]
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
        fingerprint: of the source at the time of ingestion; in format 1 it is part of the recipe.
        format_version: in format 1, the index has no names of images.
        digest: sha256 over the canonical JSON of the contents; subsets and shards carry it. The same images under the
            same names have the same digest, wherever and whenever they were ingested.
    """

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
        about = {} if self.format_version == 1 else {"name": self.name, "fingerprint": self.fingerprint}
        return json.dumps(self._contents() | about | {"digest": self.digest}, indent=2, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Parse and validate.

        Raises:
            DamagedDataError: it is not JSON, a field is missing, two fields contradict each other, or the digest
                differs.
            RunError: the format version is unknown.
        """
        try:
            document = json.loads(data, parse_constant=_refuse)
            version = document["format_version"]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise DamagedDataError(f"{MANIFEST} is not the manifest of a data set ({error!r})", _DAMAGED) from error
        if type(version) is not int or version not in (1, FORMAT_VERSION):
            remedy = "install the version of lipt that wrote the data set, or ingest it again"
            raise RunError(f"{MANIFEST}: format version {version!r}; this program reads 1 and {FORMAT_VERSION}", remedy)
        try:
            manifest = cls(**_parse(document, version))
            digest = canonical_digest(manifest._contents())
        except (ValueError, RecursionError) as error:
            raise DamagedDataError(f"{MANIFEST}: a field is missing or malformed ({error})", _DAMAGED) from error
        if manifest.digest != digest:
            raise DamagedDataError(f"{MANIFEST}: the contents have another digest than {manifest.digest!r}", _DAMAGED)
        if contradiction := manifest._contradiction():
            raise DamagedDataError(f"{MANIFEST}: {contradiction}", _DAMAGED)
        return manifest

    def _contents(self) -> dict[str, Any]:
        """The fields that the digest covers."""
        contents = {
            "format_version": self.format_version,
            "classes": list(self.classes),
            "splits": {name: asdict(split) for name, split in self.splits.items()},
            "recipe": self.recipe,
        }
        return contents | {"name": self.name} if self.format_version == 1 else contents

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


def _parse(document: Any, version: int) -> dict[str, Any]:
    """The fields of a manifest from its JSON.

    Raises:
        ValueError: a field is missing, unknown or malformed; names the field.
    """
    kinds = {"name": str, "classes": list, "splits": dict, "recipe": dict, "format_version": int, "digest": str}
    found = _fields(document, "the manifest", kinds if version == 1 else kinds | {"fingerprint": str})
    classes = tuple(_is(name, str, "classes") for name in found["classes"])
    return found | {"classes": classes, "splits": {name: _split(value) for name, value in found["splits"].items()}}


def _split(value: Any) -> SplitInfo:
    found = _fields(value, "a split", {"count": int, "class_counts": list, "chunks": list, "index": dict})
    return SplitInfo(
        count=found["count"],
        class_counts=tuple(_is(count, int, "class_counts") for count in found["class_counts"]),
        chunks=tuple(
            ChunkInfo(**_fields(chunk, "a chunk", {"file": str, "size": int, "sha256": str, "count": int}))
            for chunk in found["chunks"]
        ),
        index=IndexInfo(**_fields(found["index"], "an index", {"file": str, "sha256": str})),
    )


def _fields(value: Any, where: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Check that a JSON object has exactly these fields, with these types."""
    if type(value) is not dict or value.keys() != kinds.keys():
        raise ValueError(f"{where} must have the fields {', '.join(kinds)} and no others")
    if "file" in kinds and not _FILE_NAME.fullmatch(_is(value["file"], str, "file")):
        raise ValueError(f"{value['file']!r} is not a file name of a data set")
    return {name: _is(value[name], kind, name) for name, kind in kinds.items()}


def _is(value: Any, kind: type, name: str) -> Any:
    fits: bool = type(value) is kind
    if not fits or (kind is int and not 0 <= value < _MAX_INT):
        raise ValueError(f"{name}: expected {kind.__name__}, got {value!r:.40}")
    if kind is str:
        value.encode()  # raises for half of a surrogate pair
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def canonical_digest(document: dict[str, Any]) -> str:
    """sha256 (hex) over JSON with sorted keys, no spaces, ASCII."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
