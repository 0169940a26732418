"""Reading a dataset: manifest, index, and exactly the byte ranges that a set of samples lies in."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lipt.data.chunks.index import Index, read_names, unpack_image
from lipt.data.chunks.manifest import MANIFEST, Manifest, SplitInfo
from lipt.data.chunks.parallel import ordered_map
from lipt.errors import DamagedDataError, RunError, did_you_mean

RangeRead = Callable[[str, int, int | None], bytes]
"""read(file, start, length): the bytes of a file from `start` on, `length` of them or (None) all."""

_IN_FLIGHT_BYTES = 256 * 2**20

_REMEDY = "restore the chunk, or delete the dataset and ingest it again"

Ints = npt.NDArray[np.int64]


class ByteRange(NamedTuple):
    """One request: `length` bytes at `start` of `file`, in which the next `num_samples` lie."""

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
class ShardPlan:
    """What a worker needs to read exactly these N samples; neither manifest nor index.

    Attributes:
        split: the split the positions refer to.
        digest: the dataset's digest.
        positions_N, labels_N: the samples, in the order in which they were asked for.
        offsets_N, sizes_N, crcs_N: where each lies in its chunk, and its crc32.
        ranges: the requests, by ascending position.
    """

    split: str
    digest: str
    positions_N: Ints
    labels_N: Ints
    offsets_N: Ints
    sizes_N: Ints
    crcs_N: Ints
    ranges: tuple[ByteRange, ...]

    def __len__(self) -> int:
        return len(self.positions_N)

    @property
    def num_bytes(self) -> int:
        """Bytes that reading the plan transfers."""
        return sum(byte_range.length for byte_range in self.ranges)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; `from_dict` is the inverse."""
        arrays = {name: getattr(self, f"{name}_N").tolist() for name in _ARRAYS}
        return {"split": self.split, "digest": self.digest, "ranges": [list(item) for item in self.ranges], **arrays}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> ShardPlan:
        arrays = {f"{name}_N": np.array(document[name], dtype=np.int64) for name in _ARRAYS}
        ranges = tuple(ByteRange(*item) for item in document["ranges"])
        return cls(split=document["split"], digest=document["digest"], ranges=ranges, **arrays)


_ARRAYS = ("positions", "labels", "offsets", "sizes", "crcs")


@dataclass(kw_only=True)
class _Fetched:
    """What is read whole, and once."""

    manifest: Manifest | None = None
    indexes: dict[str, Index] = field(default_factory=dict)


class Dataset:
    """A dataset whose files `read` reads; manifest and index are fetched when first needed."""

    def __init__(self, read: RangeRead, *, like: Dataset | None = None) -> None:
        """
        Args:
            like: the same dataset as another reader opened it: what one of the two fetched, the other has.
        """
        self.read = read
        self._fetched: _Fetched = like._fetched if like else _Fetched()

    @property
    def manifest(self) -> Manifest:
        """
        Raises:
            DamagedDataError, RunError: as `Manifest.from_json`; also when there is no dataset.
        """
        if self._fetched.manifest is None:
            self._fetched.manifest = Manifest.from_json(self.read(MANIFEST, 0, None))
        return self._fetched.manifest

    def index(self, split: str) -> Index:
        """
        Raises:
            RunError: no such split.
            DamagedDataError: the file is not the one that the manifest names, or contradicts it.
        """
        indexes = self._fetched.indexes
        if split not in indexes:
            info = self._split(split)
            file = info.index.file
            index = Index.from_parquet(self.read(file, 0, None), info.index.sha256, file)
            _check_index(index, info)
            indexes[split] = index
        return indexes[split]

    def names(self, split: str) -> pa.ChunkedArray | None:
        """The name of each sample in the source, by position; read anew, since few need it and it may be large.

        None in a data set of format 1, which has none.

        Raises:
            RunError, DamagedDataError: as `index`.
        """
        info = self._split(split)
        if self.manifest.format_version == 1:
            return None
        names = read_names(self.read(info.index.file, 0, None), info.index.sha256, info.index.file)
        if names is not None and len(names) != info.count:
            raise DamagedDataError(f"{info.index.file}: {len(names):,} rows for {info.count:,} samples", _REMEDY)
        return names

    def _split(self, split: str) -> SplitInfo:
        splits = self.manifest.splits
        if split not in splits:
            raise RunError(f"{MANIFEST}: no split {split!r}", did_you_mean(split, splits))
        return splits[split]

    def plan(self, split: str, positions: npt.ArrayLike, *, gap_bytes: int = 0) -> ShardPlan:
        """How to read the samples at `positions` of a split; contiguous ones take one request per chunk.

        Args:
            positions: (N,) distinct integers in any order, which the plan keeps.
            gap_bytes: two ranges this close are fetched as one (more bytes, fewer requests).

        Raises:
            RunError: a position is outside the split, or comes twice.
        """
        index = self.index(split)
        positions_N = np.array(positions, dtype=np.int64)
        _check_positions(positions_N, split, len(index))
        files = [chunk.file for chunk in self.manifest.splits[split].chunks]
        return ShardPlan(
            split=split,
            digest=self.manifest.digest,
            positions_N=positions_N,
            labels_N=index.label[positions_N].astype(np.int64),
            offsets_N=index.offset[positions_N],
            sizes_N=index.size[positions_N].astype(np.int64),
            crcs_N=index.crc32[positions_N].astype(np.int64),
            ranges=_coalesce(index, np.sort(positions_N), files, gap_bytes),
        )


def _check_index(index: Index, info: SplitInfo) -> None:
    """DamagedDataError where the index and the manifest contradict each other."""
    if not (len(index) == info.count and _fits(index, info)):
        raise DamagedDataError(f"{info.index.file}: its rows do not fit the chunks in {MANIFEST}", _REMEDY)


def _fits(index: Index, info: SplitInfo) -> bool:
    """Whether labels are those that were counted, and samples lie side by side in their chunks."""
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
        remedy = "use a selection that was made for this dataset"
        raise RunError(f"position {outside[0]} is outside split {split!r}, which has {count} samples", remedy)
    if len(np.unique(positions_N)) < len(positions_N):
        raise RunError(f"a position of split {split!r} is asked for twice", "name each sample once")


def _coalesce(index: Index, positions_N: Ints, files: list[str], gap_bytes: int) -> tuple[ByteRange, ...]:
    """Ranges of ascending positions, which lie in their chunks in this order."""
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


def read_samples(plan: ShardPlan, read: RangeRead, *, threads: int = 8) -> Iterator[Sample]:
    """The samples of a plan by ascending position, each checked against its crc32; a few ranges are read ahead.

    Raises:
        DamagedDataError: a chunk is truncated or a sample's bytes changed.
    """
    order = np.argsort(plan.positions_N)
    ends = np.cumsum([byte_range.num_samples for byte_range in plan.ranges])
    longest = max((byte_range.length for byte_range in plan.ranges), default=1)
    window = int(np.clip(_IN_FLIGHT_BYTES // longest, 1, threads))
    contents = ordered_map(
        lambda wanted: read(wanted.file, wanted.start, wanted.length), plan.ranges, threads=threads, window=window
    )
    with closing(contents):
        for byte_range, end, content in zip(plan.ranges, ends, contents, strict=True):
            if len(content) != byte_range.length:
                raise DamagedDataError(f"{byte_range.file}: the chunk is shorter than its index says", _REMEDY)
            yield from _samples(plan, order[end - byte_range.num_samples : end], byte_range, memoryview(content))


def _samples(plan: ShardPlan, rows: Ints, byte_range: ByteRange, content: memoryview) -> Iterator[Sample]:
    for row in rows:
        begin = int(plan.offsets_N[row]) - byte_range.start
        span = content[begin : begin + int(plan.sizes_N[row])]
        position = int(plan.positions_N[row])
        if zlib.crc32(span) != plan.crcs_N[row]:
            damage = f"sample {position} of split {plan.split!r} is damaged (crc32)"
            raise DamagedDataError(f"{byte_range.file}: {damage}", _REMEDY)
        image, ext = unpack_image(span)
        yield Sample(position, int(plan.labels_N[row]), image, ext)
