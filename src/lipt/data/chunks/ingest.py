"""Writing a dataset: fix a stratified random order, pack the samples into tars, then write the manifest last."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lipt.data.chunks.index import END_OF_TAR, Index, check_sha256, pack_sample, read_table
from lipt.data.chunks.manifest import MANIFEST, ChunkInfo, IndexInfo, Manifest, SplitInfo, canonical_digest
from lipt.data.chunks.parallel import ordered_map
from lipt.data.sources.base import Source
from lipt.errors import DamagedDataError, RunError, UsageError

_READ_THREADS = 4
_READ_AHEAD = 64  # samples
_SHA256 = 32  # bytes

# Independent random streams of one seed.
_CARVE, _ORDER = 0, {"train": 1, "test": 2}


@dataclass(frozen=True)
class _Rows:
    """A split in global order: which rows of which split of the source."""

    source_split: str
    rows_N: npt.NDArray[np.int64]
    labels_N: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Files:
    """The location; a journal of finished chunks makes an interrupted ingest resumable."""

    put: Callable[[str, bytes], None]
    get: Callable[[str], bytes | None]
    delete: Callable[[str], None]
    present: Callable[[ChunkInfo], bool]
    say: Callable[[str], None]
    recipe_digest: str
    fingerprint: str

    def record(self, part: str, chunk: ChunkInfo, rows: Index) -> None:
        about = {"recipe": self.recipe_digest, "fingerprint": self.fingerprint, "chunk": json.dumps(asdict(chunk))}
        data = rows.to_parquet(about)
        self.put(part, data + hashlib.sha256(data).digest())

    def recorded(self, part: str) -> tuple[ChunkInfo, Index] | None:
        """A chunk that an interrupted ingest of the same data finished, and that is still there.

        Raises:
            UsageError: it belongs to an ingest with other settings.
        """
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
            self.say(f"{part}, left by an ingest that did not finish, is damaged or of another version: it is not used")
            return None
        if recipe != self.recipe_digest:
            raise _occupied(part, "an unfinished ingest with other settings")
        if fingerprint != self.fingerprint:
            self.say(f"the source changed since {part} was written by an ingest that did not finish: it is not used")
            return None
        return (chunk, rows) if self.present(chunk) else None

    def discard(self, split: str, number: int) -> None:
        """Remove chunk `number` and those after it, which an interrupted ingest left; the last one first."""
        last = number
        while self.get(_part(split, last)) is not None:
            last += 1
        for unused in reversed(range(number, last)):
            self.delete(_part(split, unused))
            self.delete(_chunk(split, unused))

    def holds(self, splits: dict[str, SplitInfo]) -> bool:
        """Whether everything that a manifest names is there."""
        for split in splits.values():
            index = self.get(split.index.file)
            if index is None or hashlib.sha256(index).hexdigest() != split.index.sha256:
                return False
        return all(self.present(chunk) for split in splits.values() for chunk in split.chunks)


def write_dataset(
    source: Source,
    put: Callable[[str, bytes], None],
    *,
    seed: int,
    test_fraction: float,
    chunk_bytes: int = 64_000_000,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    get: Callable[[str], bytes | None] = lambda _file: None,
    delete: Callable[[str], None] = lambda _file: None,
    present: Callable[[ChunkInfo], bool] = lambda _chunk: True,
    say: Callable[[str], None] = lambda _text: None,
) -> Manifest:
    """Write `source` as a dataset; holds one chunk in memory.

    With `get` and `delete` a killed call, repeated with the same arguments, goes on after the last finished chunk and
    ends with the same bytes; where the source changed in between it starts again. On a complete dataset it returns its
    manifest. With `present` a dataset of which a file is gone is made again, to the same bytes.

    Args:
        put: writes a file atomically.
        seed: fixes the global order, and the test split where the source has none.
        test_fraction: share of each class carved out as test split where the source has none.
        chunk_bytes: a chunk ends with the sample that reaches this size.
        progress: called with (samples done, all samples) after each chunk, and now and then within one.
        get: a file's contents, None when there is none.
        delete: removes a file.
        present: whether the location still holds a chunk that was written.
        say: told what of an interrupted ingest cannot be used.

    Raises:
        UsageError: the location holds another dataset, or an unfinished one with other settings.
        RunError: the source is unreadable, or a class is too small to carve a test split out of it.
    """
    recipe, fingerprint = _recipe(source, seed, chunk_bytes, test_fraction), source.fingerprint()
    files = _Files(put, get, delete, present, say, canonical_digest(recipe), fingerprint)
    existing = get(MANIFEST)
    if existing is not None:
        manifest = Manifest.from_json(existing)
        if (manifest.recipe, manifest.fingerprint) != (recipe, fingerprint):
            raise _occupied(MANIFEST, "a dataset of other data or with other settings")
        _forget(files, manifest.splits)
        if files.holds(manifest.splits):
            return manifest
        delete(MANIFEST)
    splits = _order_splits(source, seed, test_fraction)
    total, done = sum(len(rows.rows_N) for rows in splits.values()), 0
    infos = {}
    for split, rows in splits.items():
        parts = []

        def within(count: int, before: int = done) -> None:
            progress(before + count, total)

        for part in _write_chunks(source, split, rows, files, chunk_bytes, within):
            parts.append(part)
            done += part[0].count
            progress(done, total)
        infos[split] = _write_index(split, parts, len(source.classes), files)
    classes = tuple(source.classes)
    manifest = Manifest(name=source.name, classes=classes, splits=infos, recipe=recipe, fingerprint=fingerprint)
    put(MANIFEST, manifest.to_json())
    _forget(files, infos)
    return manifest


def stratified_order(labels_N: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """A random order in which every contiguous window holds each class in proportion, within about one sample.

    Each class is shuffled; its j-th of n samples gets the key (j + u) / n with one u ~ U(0, 1) per class; sort by key.
    """
    tie_breaks = rng.permutation(len(labels_N))
    keys_N = np.empty(len(labels_N))
    for label in np.unique(labels_N):
        members = rng.permutation(np.flatnonzero(labels_N == label))
        keys_N[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return np.lexsort((tie_breaks, keys_N))


def _recipe(source: Source, seed: int, chunk_bytes: int, test_fraction: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "chunk_bytes": chunk_bytes,
        "test_fraction": None if "test" in source.splits else test_fraction,
    }


def _order_splits(source: Source, seed: int, test_fraction: float) -> dict[str, _Rows]:
    train_labels = source.splits["train"]
    if "test" in source.splits:
        chosen = {name: (name, np.arange(len(source.splits[name]))) for name in ("train", "test")}
    else:
        is_test = _carve(train_labels, source.classes, test_fraction, _generator(seed, _CARVE))
        chosen = {"train": ("train", np.flatnonzero(~is_test)), "test": ("train", np.flatnonzero(is_test))}
    splits = {}
    for name, (source_split, rows) in chosen.items():
        labels = source.splits[source_split][rows]
        order = stratified_order(labels, _generator(seed, _ORDER[name]))
        splits[name] = _Rows(source_split, rows[order], labels[order])
    return splits


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, stream]))


def _carve(
    labels_N: npt.NDArray[np.int64], classes: Sequence[str], fraction: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Mask of the samples that become test data: `fraction` of each class, at least one and not all of them."""
    is_test = np.zeros(len(labels_N), dtype=bool)
    for label, name in enumerate(classes):
        members = rng.permutation(np.flatnonzero(labels_N == label))
        is_test[members[: num_test_samples(len(members), fraction, name)]] = True
    return is_test


def num_test_samples(count: int, fraction: float, name: str) -> int:
    """How many of the `count` samples of class `name` become test data.

    Raises:
        RunError: there are fewer than two.
    """
    if count < 2:
        remedy = "add images, remove the class, or give the source a test split"
        raise RunError(f"class {name!r} has {count} image(s): too few to carve out test data", remedy)
    return min(max(1, round(fraction * count)), count - 1)


def _write_chunks(
    source: Source, split: str, rows: _Rows, files: _Files, chunk_bytes: int, progress: Callable[[int], None]
) -> Iterator[tuple[ChunkInfo, Index]]:
    """Chunks of one split with their index rows: first those an interrupted ingest finished, then new ones.

    `progress` is told of samples of this split, also those of a chunk that is not full.
    """
    done = 0
    number = 0
    while (part := files.recorded(_part(split, number))) is not None:
        yield part
        done, number = done + part[0].count, number + 1
    files.discard(split, number)

    def pack(position: int) -> bytes:
        image, ext = source.read(rows.source_split, int(rows.rows_N[position]))
        return pack_sample(f"{position:08d}", image, ext, int(rows.labels_N[position]))

    count, names = len(rows.rows_N), source.names[rows.source_split]
    with closing(ordered_map(pack, range(done, count), threads=_READ_THREADS, window=_READ_AHEAD)) as spans:
        while done < count:
            data, entries = _fill(_counted(spans, done, progress), number, rows.labels_N[done:], chunk_bytes)
            index = Index.from_rows(entries, [names[row] for row in rows.rows_N[done : done + len(entries)]])
            file = _chunk(split, number)
            files.put(file, data)
            chunk = ChunkInfo(file, len(data), hashlib.sha256(data).hexdigest(), len(index))
            files.record(_part(split, number), chunk, index)
            yield chunk, index
            done, number = done + chunk.count, number + 1


def _counted(spans: Iterator[bytes], done: int, progress: Callable[[int], None]) -> Iterator[bytes]:
    for count, span in enumerate(spans, done + 1):
        yield span
        if count % _READ_AHEAD == 0:
            progress(count)


def _fill(
    spans: Iterator[bytes], number: int, labels_N: npt.NDArray[np.int64], chunk_bytes: int
) -> tuple[bytes, list[tuple[int, int, int, int, int]]]:
    """The next chunk, from samples that come in order with these labels: its bytes and its rows of the index."""
    content: list[bytes] = []
    entries: list[tuple[int, int, int, int, int]] = []
    offset = 0
    for span in spans:
        entries.append((number, offset, len(span), int(labels_N[len(entries)]), zlib.crc32(span)))
        content.append(span)
        offset += len(span)
        if offset >= chunk_bytes:
            break
    return b"".join([*content, END_OF_TAR]), entries


def _write_index(split: str, parts: list[tuple[ChunkInfo, Index]], num_classes: int, files: _Files) -> SplitInfo:
    index = Index.concatenate([rows for _, rows in parts])
    data = index.to_parquet()
    file = f"{split}.index.parquet"
    files.put(file, data)
    return SplitInfo(
        count=len(index),
        class_counts=tuple(np.bincount(index.label, minlength=num_classes).tolist()),
        chunks=tuple(chunk for chunk, _ in parts),
        index=IndexInfo(file, hashlib.sha256(data).hexdigest()),
    )


def _chunk(split: str, number: int) -> str:
    return f"{split}-{number:05d}.tar"


def _part(split: str, number: int) -> str:
    return f"{split}-{number:05d}.part"


def _forget(files: _Files, splits: dict[str, SplitInfo]) -> None:
    """Remove the journal, its first entry last: as long as any is left, a repeated call finds that one and goes on."""
    parts = sorted(_part(split, number) for split, info in splits.items() for number in range(len(info.chunks)))
    if files.get(parts[0]) is not None:
        for part in reversed(parts):
            files.delete(part)


def _occupied(file: str, what: str) -> UsageError:
    return UsageError(
        f"the location already holds {what} ({file})",
        "choose another location, use the settings of that ingest, or delete its files first",
    )
