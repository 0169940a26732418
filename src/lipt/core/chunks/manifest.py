"""`manifest.json`: what a dataset holds. Its presence means that the dataset is complete."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from lipt.errors import DamagedDataError, RunError

MANIFEST = "manifest.json"
FORMAT_VERSION = 1

_DAMAGED = "the file was edited or damaged: restore it, or delete the dataset and ingest it again"


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
    """One split; `class_counts[c]` samples have label c, `chunks` are in global order."""

    count: int
    class_counts: tuple[int, ...]
    chunks: tuple[ChunkInfo, ...]
    index: IndexInfo


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A dataset's table of contents.

    Attributes:
        name: short name of the dataset.
        classes: class names, in label order.
        splits: `train` and `test`.
        recipe: what determines every byte: source fingerprint, shuffle seed, chunk size, test fraction.
        digest: sha256 over the canonical JSON of all the rest; subsets and shard plans carry it.
    """

    name: str
    classes: tuple[str, ...]
    splits: dict[str, SplitInfo]
    recipe: dict[str, Any]
    digest: str = ""

    def __post_init__(self) -> None:
        if not self.digest:
            object.__setattr__(self, "digest", canonical_digest(self._body()))

    @property
    def seed(self) -> int:
        """Seed of the global order."""
        return int(self.recipe["seed"])

    def to_json(self) -> bytes:
        return json.dumps(self._body() | {"digest": self.digest}, indent=2, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Parse and validate.

        Raises:
            DamagedDataError: no JSON, a field is missing, or the digest does not fit.
            RunError: a format version that this program does not know.
        """
        try:
            document = json.loads(data)
            version = document.pop("format_version")
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise DamagedDataError(f"{MANIFEST} is not the manifest of a dataset ({error!r})", _DAMAGED) from error
        if version != FORMAT_VERSION:
            remedy = "install the version of lipt that wrote the dataset, or ingest it again"
            raise RunError(f"{MANIFEST}: format version {version!r}; this program reads {FORMAT_VERSION}", remedy)
        try:
            manifest = cls(
                name=document.pop("name"),
                classes=tuple(document.pop("classes")),
                splits={name: _parse_split(split) for name, split in document.pop("splits").items()},
                recipe=document.pop("recipe"),
            )
            digest = document.pop("digest")
        except (AttributeError, KeyError, TypeError) as error:
            raise DamagedDataError(f"{MANIFEST}: a field is missing or malformed ({error!r})", _DAMAGED) from error
        if document or digest != manifest.digest:
            raise DamagedDataError(f"{MANIFEST}: the contents do not fit the digest {digest!r}", _DAMAGED)
        return manifest

    def _body(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "classes": list(self.classes),
            "splits": {name: asdict(split) for name, split in self.splits.items()},
            "recipe": self.recipe,
        }


def _parse_split(document: dict[str, Any]) -> SplitInfo:
    return SplitInfo(
        count=document["count"],
        class_counts=tuple(document["class_counts"]),
        chunks=tuple(ChunkInfo(**chunk) for chunk in document["chunks"]),
        index=IndexInfo(**document["index"]),
    )


def canonical_digest(document: dict[str, Any]) -> str:
    """sha256 (hex) over JSON with sorted keys, no spaces, ASCII."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
