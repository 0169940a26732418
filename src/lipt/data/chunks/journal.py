"""The place where a data set is written, and the journal from which an interrupted ingest continues."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from lipt.data.chunks.index import Index, check_sha256, read_table
from lipt.data.chunks.manifest import ChunkInfo, SplitInfo
from lipt.errors import DamagedDataError, UsageError

_SHA256 = 32  # bytes


@dataclass(frozen=True)
class Journal:
    """One part file for each finished chunk: the chunk's index rows, with a note on the chunk and its origin.

    The five functions are those of `write_dataset`.
    """

    put: Callable[[str, bytes], None]
    get: Callable[[str], bytes | None]
    delete: Callable[[str], None]
    present: Callable[[ChunkInfo], bool]
    say: Callable[[str], None]
    recipe_digest: str
    fingerprint: str

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
        for unused in reversed(range(number, last)):
            self.delete(_part_file(split, unused))
            self.delete(chunk_file(split, unused))

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


def chunk_file(split: str, number: int) -> str:
    """The name of a chunk."""
    return f"{split}-{number:05d}.tar"


def _part_file(split: str, number: int) -> str:
    return f"{split}-{number:05d}.part"


def occupied(file: str, what: str) -> UsageError:
    """The error if a location already holds `what`, as `file` shows."""
    return UsageError(
        f"the location already holds {what} ({file})",
        "choose another location, use the settings of that ingest, or delete its files first",
    )
