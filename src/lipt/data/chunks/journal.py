"""The place where a data set is written, and the journal from which an interrupted ingest continues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from lipt.data.chunks.index import Index, check_sha256, read_table
from lipt.data.chunks.manifest import ChunkInfo, SplitInfo
from lipt.errors import DamagedDataError, UsageError

_SHA256 = 32  # bytes


@dataclass(frozen=True)
class Journal:
    """One part file for each finished chunk: the chunk's index rows, with a note on the chunk and its origin.

    The five functions are those of `write_dataset`.

    Attributes:
        suffix: of the chunks' names.
    """

    put: Callable[[str, bytes], None]
    get: Callable[[str], bytes | None]
    delete: Callable[[str], None]
    present: Callable[[ChunkInfo], bool]
    say: Callable[[str], None]
    recipe_digest: str
    fingerprint: str
    suffix: str = ".tar"

    def below(self, folder: str, recipe_digest: str, suffix: str) -> Journal:
        """The journal of another data set, in a folder of the same place."""
        return Journal(
            put=lambda file, data: self.put(f"{folder}/{file}", data),
            get=lambda file: self.get(f"{folder}/{file}"),
            delete=lambda file: self.delete(f"{folder}/{file}"),
            present=lambda chunk: self.present(replace(chunk, file=f"{folder}/{chunk.file}")),
            say=self.say,
            recipe_digest=recipe_digest,
            fingerprint=self.fingerprint,
            suffix=suffix,
        )

    def chunk_file(self, split: str, number: int) -> str:
        """The name of a chunk."""
        return f"{split}-{number:05d}{self.suffix}"

    def record(self, split: str, number: int, chunk: ChunkInfo, rows: Index) -> None:
        """Note that chunk `number` of a split is written."""
        about = {"recipe": self.recipe_digest, "fingerprint": self.fingerprint, "chunk": json.dumps(asdict(chunk))}
        data = rows.to_parquet(about)
        self.put(_part_file(split, number), data + hashlib.sha256(data).digest())

    def recorded(self, split: str, number: int) -> tuple[ChunkInfo, Index] | None:
        """Chunk `number`, if an interrupted ingest of the same data has finished it and it still exists.

        Raises:
            UsageError: it belongs to an ingest with other settings.
        """
        part = _part_file(split, number)
        data = self.get(part)
        if data is None:
            return None
        try:
            check_sha256(data[:-_SHA256], data[-_SHA256:].hex(), part)
            table = read_table(data[:-_SHA256], part)
            about = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
            recipe, fingerprint = about["recipe"], about["fingerprint"]
            chunk, rows = ChunkInfo(**json.loads(about["chunk"])), Index.from_table(table, part)
        except (DamagedDataError, KeyError, TypeError, ValueError):
            self.say(f"ignored {part} of an unfinished ingest: it is damaged or of another version")
            return None
        if recipe != self.recipe_digest:
            raise occupied(part, "an unfinished ingest with other settings")
        if fingerprint != self.fingerprint:
            self.say(f"ignored {part} of an unfinished ingest: the source has changed since")
            return None
        return (chunk, rows) if self.present(chunk) else None

    def discard(self, split: str, number: int) -> None:
        """Remove chunk `number` and all later ones of an interrupted ingest, the last one first."""
        last = number
        while self.get(_part_file(split, last)) is not None:
            last += 1
        self.delete(self.chunk_file(split, last))  # written, but not recorded any more
        for unused in reversed(range(number, last)):
            self.delete(_part_file(split, unused))
            self.delete(self.chunk_file(split, unused))

    def remove(self, splits: dict[str, SplitInfo]) -> None:
        """Remove all part files, the first one last: if this is interrupted, a repeated call finds it and continues."""
        parts = sorted(
            _part_file(split, number) for split, info in splits.items() for number in range(len(info.chunks))
        )
        if self.get(parts[0]) is not None:
            for part in reversed(parts):
                self.delete(part)

    def holds(self, splits: dict[str, SplitInfo]) -> bool:
        """Whether all files that a manifest names exist, and each index has the digest in the manifest."""
        for split in splits.values():
            index = self.get(split.index.file)
            if index is None or hashlib.sha256(index).hexdigest() != split.index.sha256:
                return False
        return all(self.present(chunk) for split in splits.values() for chunk in split.chunks)


def _part_file(split: str, number: int) -> str:
    return f"{split}-{number:05d}.part"


def occupied(file: str, what: str) -> UsageError:
    """The error if a location already holds `what`, as `file` shows."""
    return UsageError(
        f"the location already holds {what} ({file})",
        "choose another location, use the settings of that ingest, or delete its files first",
    )
