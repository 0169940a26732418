"""Reading a data set: the manifest, the index, and exactly the bytes of the samples that are asked for."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lipt.data.chunks.index import RESTORE, Index, read_names
from lipt.data.chunks.manifest import MANIFEST, Manifest, SplitInfo
from lipt.data.chunks.members import unpack_image
from lipt.data.chunks.parallel import ordered_map
from lipt.errors import DamagedDataError, RunError, did_you_mean

RangeRead = Callable[[str, int, int | None], bytes]
"""read(file, start, length): `length` bytes of a file from byte `start` on; with length None, all of them."""

_IN_FLIGHT_BYTES = 256 * 2**20
#: Requests at a time, as many as a store's client keeps connections: of a scattered subset each sample is one.
REQUESTS_AT_ONCE = 32

Ints = npt.NDArray[np.int64]


class ByteRange(NamedTuple):
    """One request: `length` bytes from byte `start` of `file`. They hold the next `num_samples` samples."""

    file: str
    start: int
    length: int
    num_samples: int


class Sample(NamedTuple):
    """One image file as it was ingested."""

    position: int
    label: int
    image: bytes
    ext: str


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleRanges:
    """Where N samples lie: a worker reads its shard with this alone, without manifest and index.

    Attributes:
        split: the split that the positions refer to.
        digest: the digest of the data set.
        positions_N, labels_N: the samples, in the order in which they were asked for.
        offsets_N, sizes_N, crcs_N: the first byte of each sample in its chunk, its bytes, and its crc32.
        requests: the byte ranges to read, by ascending position.
    """

    split: str
    digest: str
    positions_N: Ints
    labels_N: Ints
    offsets_N: Ints
    sizes_N: Ints
    crcs_N: Ints
    requests: tuple[ByteRange, ...]

    def __len__(self) -> int:
        return len(self.positions_N)

    @property
    def num_bytes(self) -> int:
        """Bytes that all requests transfer."""
        return sum(request.length for request in self.requests)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` is the inverse."""
        arrays = {name: getattr(self, f"{name}_N").tolist() for name in _ARRAYS}
        return {"split": self.split, "digest": self.digest, "ranges": [list(item) for item in self.requests], **arrays}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> SampleRanges:
        arrays = {f"{name}_N": np.array(document[name], dtype=np.int64) for name in _ARRAYS}
        requests = tuple(ByteRange(*item) for item in document["ranges"])
        return cls(split=document["split"], digest=document["digest"], requests=requests, **arrays)


_ARRAYS = ("positions", "labels", "offsets", "sizes", "crcs")


@dataclass(kw_only=True)
class _Cache:
    """Files that are read whole, and once."""

    manifest: Manifest | None = None
    indexes: dict[str, Index] = field(default_factory=dict)


class Dataset:
    """A data set whose files `read` reads. Manifest and index are fetched when they are first needed."""

    def __init__(self, read: RangeRead, *, like: Dataset | None = None) -> None:
        """
        Args:
            like: the same data set, opened by another reader. The two share the manifest and indexes that they fetch.
        """
        self.read = read
        self._cache: _Cache = like._cache if like else _Cache()

    @property
    def manifest(self) -> Manifest:
        """
        Raises:
            DamagedDataError, RunError: as `Manifest.from_json`; also when there is no data set.
        """
        if self._cache.manifest is None:
            self._cache.manifest = Manifest.from_json(self.read(MANIFEST, 0, None))
        return self._cache.manifest

    def index(self, split: str) -> Index:
        """
        Raises:
            RunError: there is no such split.
            DamagedDataError: the file has another digest than in the manifest, or contradicts the manifest.
        """
        indexes = self._cache.indexes
        if split not in indexes:
            info = self._split(split)
            file = info.index.file
            index = Index.from_parquet(self.read(file, 0, None), info.index.sha256, file)
            _check_index(index, info)
            indexes[split] = index
        return indexes[split]

    def names(self, split: str) -> pa.ChunkedArray:
        """The name of each sample in the source, by position.

        Names are not cached: they may be large, and few callers need them.

        Raises:
            RunError, DamagedDataError: as `index`.
        """
        info = self._split(split)
        names = read_names(self.read(info.index.file, 0, None), info.index.sha256, info.index.file)
        if len(names) != info.count:
            raise DamagedDataError(f"{info.index.file}: {len(names):,} rows for {info.count:,} samples", RESTORE)
        return names

    def _split(self, split: str) -> SplitInfo:
        splits = self.manifest.splits
        if split not in splits:
            raise RunError(f"{MANIFEST}: no split {split!r}", did_you_mean(split, splits))
        return splits[split]

    def ranges_of(self, split: str, positions: npt.ArrayLike, *, gap_bytes: int = 0) -> SampleRanges:
        """The byte ranges of the samples at `positions` of a split; contiguous samples take one request per chunk.

        Args:
            positions: (N,) distinct integers in any order; the result keeps the order.
            gap_bytes: two ranges with at most this many bytes between them become one request.

        Raises:
            RunError: a position is outside the split, or occurs twice.
        """
        index = self.index(split)
        positions_N = np.array(positions, dtype=np.int64)
        _check_positions(positions_N, split, len(index))
        files = [chunk.file for chunk in self.manifest.splits[split].chunks]
        return SampleRanges(
            split=split,
            digest=self.manifest.digest,
            positions_N=positions_N,
            labels_N=index.label[positions_N].astype(np.int64),
            offsets_N=index.offset[positions_N],
            sizes_N=index.size[positions_N].astype(np.int64),
            crcs_N=index.crc32[positions_N].astype(np.int64),
            requests=_coalesce(index, np.sort(positions_N), files, gap_bytes),
        )


def _check_index(index: Index, info: SplitInfo) -> None:
    """
    Raises:
        DamagedDataError: the index and the manifest contradict each other.
    """
    if not (len(index) == info.count and _fits(index, info)):
        raise DamagedDataError(f"{info.index.file}: its rows do not fit the chunks in {MANIFEST}", RESTORE)


def _fits(index: Index, info: SplitInfo) -> bool:
    """Whether the labels have the counts of the manifest, and the samples lie side by side in their chunks."""
    if index.label.min() < 0 or index.label.max() >= len(info.class_counts):
        return False
    chunk_N = np.repeat(np.arange(len(info.chunks)), [chunk.count for chunk in info.chunks])
    end_N = index.offset + index.size
    adjacent = index.offset[1:] == np.where(chunk_N[1:] == chunk_N[:-1], end_N[:-1], 0)
    return bool(
        np.array_equal(index.chunk, chunk_N)
        and np.array_equal(np.bincount(index.label, minlength=len(info.class_counts)), info.class_counts)
        and (index.size >= 0).all()
        and index.offset[0] == 0
        and adjacent.all()
        and (end_N <= np.array([chunk.size for chunk in info.chunks])[chunk_N]).all()
    )


def _check_positions(positions_N: Ints, split: str, count: int) -> None:
    outside = positions_N[(positions_N < 0) | (positions_N >= count)]
    if len(outside):
        remedy = "use a selection that was made for this data set"
        raise RunError(f"position {outside[0]} is outside split {split!r}, which has {count} samples", remedy)
    if len(np.unique(positions_N)) < len(positions_N):
        raise RunError(f"a position of split {split!r} is asked for twice", "list each position once")


def _coalesce(index: Index, positions_N: Ints, files: list[str], gap_bytes: int) -> tuple[ByteRange, ...]:
    """Byte ranges of ascending positions; samples lie in their chunks in the same order."""
    if not len(positions_N):
        return ()
    chunk, start = index.chunk[positions_N], index.offset[positions_N]
    end = start + index.size[positions_N]
    splits_here = (chunk[1:] != chunk[:-1]) | (start[1:] - end[:-1] > gap_bytes)
    firsts = np.concatenate([[0], np.flatnonzero(splits_here) + 1])
    lasts = np.concatenate([firsts[1:], [len(positions_N)]]) - 1
    return tuple(
        ByteRange(files[chunk[first]], int(start[first]), int(end[last] - start[first]), int(last - first + 1))
        for first, last in zip(firsts, lasts, strict=True)
    )


def read_samples(wanted: SampleRanges, read: RangeRead) -> Iterator[Sample]:
    """The samples by ascending position, each checked against its crc32; up to `REQUESTS_AT_ONCE` requests run ahead.

    Raises:
        DamagedDataError: a chunk is truncated or a sample's bytes changed.
    """
    order = np.argsort(wanted.positions_N)
    ends = np.cumsum([request.num_samples for request in wanted.requests])
    longest = max((request.length for request in wanted.requests), default=1)
    window = int(np.clip(_IN_FLIGHT_BYTES // longest, 1, REQUESTS_AT_ONCE))
    contents = ordered_map(
        lambda request: read(request.file, request.start, request.length),
        wanted.requests,
        threads=REQUESTS_AT_ONCE,
        window=window,
    )
    with closing(contents):
        for request, end, content in zip(wanted.requests, ends, contents, strict=True):
            if len(content) != request.length:
                raise DamagedDataError(f"{request.file}: the chunk is shorter than its index says", RESTORE)
            yield from _samples(wanted, order[end - request.num_samples : end], request, memoryview(content))


def _samples(wanted: SampleRanges, rows: Ints, request: ByteRange, content: memoryview) -> Iterator[Sample]:
    for row in rows:
        begin = int(wanted.offsets_N[row]) - request.start
        span = content[begin : begin + int(wanted.sizes_N[row])]
        position = int(wanted.positions_N[row])
        if zlib.crc32(span) != wanted.crcs_N[row]:
            damage = f"sample {position} of split {wanted.split!r} is damaged (crc32)"
            raise DamagedDataError(f"{request.file}: {damage}", RESTORE)
        image, ext = unpack_image(span)
        yield Sample(position, int(wanted.labels_N[row]), image, ext)
