"""Writing a data set: fix a stratified random order, pack the samples into tars, write the manifest last.

A `Journal` records the finished chunks, so that an interrupted call can continue.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lipt.data.chunks.index import END_OF_TAR, Index, pack_sample
from lipt.data.chunks.journal import Journal, chunk_file, occupied
from lipt.data.chunks.manifest import MANIFEST, ChunkInfo, IndexInfo, Manifest, SplitInfo, canonical_digest
from lipt.data.chunks.parallel import ordered_map
from lipt.data.sources.base import Source
from lipt.errors import RunError

_READ_THREADS = 4
_READ_AHEAD = 64  # samples

# Independent random streams of one seed.
_TEST_SPLIT, _ORDER = 0, {"train": 1, "test": 2}


@dataclass(frozen=True)
class _OrderedSplit:
    """A split in global order: its samples as rows of a split of the source."""

    source_split: str
    rows_N: npt.NDArray[np.int64]
    labels_N: npt.NDArray[np.int64]


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
    """Write `source` as a data set; one chunk is in memory at a time.

    If a call with `get` and `delete` is killed, the same call continues after the last finished chunk and writes the
    same bytes; if the source has changed, it starts again. If the data set is complete, the call returns its manifest.
    If `present` reports a missing chunk, the data set is written again, with the same bytes.

    Args:
        put: writes a file atomically.
        seed: fixes the global order, and the test split if the source has none.
        test_fraction: share of each class that becomes the test split if the source has none.
        chunk_bytes: a chunk ends with the sample that reaches this size.
        progress: called with (samples done, all samples), at least after each chunk.
        get: returns the contents of a file, None if there is no such file.
        delete: removes a file.
        present: whether the location still holds a chunk that was written.
        say: called with a message for each part of an interrupted ingest that cannot be used.

    Raises:
        UsageError: the location holds another data set, or an unfinished one with other settings.
        RunError: the source is unreadable, or a class is too small to be divided into training and test data.
    """
    recipe, fingerprint = _recipe(source, seed, chunk_bytes, test_fraction), source.fingerprint()
    journal = Journal(put, get, delete, present, say, canonical_digest(recipe), fingerprint)
    existing = get(MANIFEST)
    if existing is not None:
        manifest = Manifest.from_json(existing)
        if (manifest.recipe, manifest.fingerprint) != (recipe, fingerprint):
            raise occupied(MANIFEST, "a data set of other data or with other settings")
        journal.remove(manifest.splits)
        if journal.holds(manifest.splits):
            return manifest
        delete(MANIFEST)
    splits = _order_splits(source, seed, test_fraction)
    total, done = sum(len(rows.rows_N) for rows in splits.values()), 0
    infos = {}
    for split, rows in splits.items():
        parts = []

        def within(count: int, before: int = done) -> None:
            progress(before + count, total)

        for part in _write_chunks(source, split, rows, journal, chunk_bytes, within):
            parts.append(part)
            done += part[0].count
            progress(done, total)
        infos[split] = _write_index(split, parts, len(source.classes), put)
    classes = tuple(source.classes)
    manifest = Manifest(name=source.name, classes=classes, splits=infos, recipe=recipe, fingerprint=fingerprint)
    put(MANIFEST, manifest.to_json())
    journal.remove(infos)
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
    """The settings that determine the chunks, besides the contents of the source."""
    return {
        "seed": seed,
        "chunk_bytes": chunk_bytes,
        "test_fraction": None if "test" in source.splits else test_fraction,
    }


def _order_splits(source: Source, seed: int, test_fraction: float) -> dict[str, _OrderedSplit]:
    train_labels = source.splits["train"]
    if "test" in source.splits:
        chosen = {name: (name, np.arange(len(source.splits[name]))) for name in ("train", "test")}
    else:
        is_test = _draw_test_split(train_labels, source.classes, test_fraction, _generator(seed, _TEST_SPLIT))
        chosen = {"train": ("train", np.flatnonzero(~is_test)), "test": ("train", np.flatnonzero(is_test))}
    splits = {}
    for name, (source_split, rows) in chosen.items():
        labels = source.splits[source_split][rows]
        order = stratified_order(labels, _generator(seed, _ORDER[name]))
        splits[name] = _OrderedSplit(source_split, rows[order], labels[order])
    return splits


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, stream]))


def _draw_test_split(
    labels_N: npt.NDArray[np.int64], classes: Sequence[str], fraction: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """True for the samples that become test data: `fraction` of each class, at least one sample and not all."""
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
        raise RunError(f"class {name!r} has {count} image(s): too few for training and test data", remedy)
    return min(max(1, round(fraction * count)), count - 1)


def _write_chunks(
    source: Source, split: str, rows: _OrderedSplit, journal: Journal, chunk_bytes: int, progress: Callable[[int], None]
) -> Iterator[tuple[ChunkInfo, Index]]:
    """The chunks of a split with their index rows: first those that an interrupted ingest finished, then new ones.

    `progress` is called with the number of samples done in this split, also within a chunk.
    """
    done = 0
    number = 0
    while (part := journal.recorded(split, number)) is not None:
        yield part
        done, number = done + part[0].count, number + 1
    journal.discard(split, number)

    def pack(position: int) -> bytes:
        image, ext = source.read(rows.source_split, int(rows.rows_N[position]))
        return pack_sample(f"{position:08d}", image, ext, int(rows.labels_N[position]))

    count, names = len(rows.rows_N), source.names[rows.source_split]
    with closing(ordered_map(pack, range(done, count), threads=_READ_THREADS, window=_READ_AHEAD)) as spans:
        while done < count:
            data, entries = _fill(_counted(spans, done, progress), number, rows.labels_N[done:], chunk_bytes)
            index = Index.from_rows(entries, [names[row] for row in rows.rows_N[done : done + len(entries)]])
            file = chunk_file(split, number)
            journal.put(file, data)
            chunk = ChunkInfo(file, len(data), hashlib.sha256(data).hexdigest(), len(index))
            journal.record(split, number, chunk, index)
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
    """The next chunk: its bytes and its index rows.

    Args:
        spans: the samples that are still to be written, in order.
        labels_N: their labels.
    """
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


def _write_index(
    split: str, parts: list[tuple[ChunkInfo, Index]], num_classes: int, put: Callable[[str, bytes], None]
) -> SplitInfo:
    index = Index.concatenate([rows for _, rows in parts])
    data = index.to_parquet()
    file = f"{split}.index.parquet"
    put(file, data)
    return SplitInfo(
        count=len(index),
        class_counts=tuple(np.bincount(index.label, minlength=num_classes).tolist()),
        chunks=tuple(chunk for chunk, _ in parts),
        index=IndexInfo(file, hashlib.sha256(data).hexdigest()),
    )
