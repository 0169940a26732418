"""Packing a split of a data set into chunks: several threads read the images, one writes the chunks in their order."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lipt.data.chunks.copies import Copy, Original, Part
from lipt.data.chunks.parallel import ordered_map
from lipt.data.sources.base import Source
from lipt.errors import RunError

_READ_THREADS = 16  # they mostly wait: for a disk in the network, milliseconds per file
_READ_AHEAD = 64  # samples
#: Unreadable images: in the message; until the source is given up.
NAMED, _COUNTED = 5, 1000


@dataclass(frozen=True)
class OrderedSplit:
    """A split in global order: its samples as rows of a split of the source."""

    source_split: str
    rows_N: npt.NDArray[np.int64]
    labels_N: npt.NDArray[np.int64]


class _Chunk(NamedTuple):
    """The samples of a chunk."""

    number: int
    start: int
    """Position of the first sample in the split."""
    spans: list[list[bytes]]
    """The bytes of each sample, in each copy."""


@dataclass(frozen=True, kw_only=True)
class Packer:
    """Writes the chunks of a split. A chunk of every copy holds the same samples.

    Attributes:
        progress: called with the number of samples read in this split.
        broken: gets an error for each unreadable image.
    """

    source: Source
    split: str
    rows: OrderedSplit
    copies: Sequence[Copy]
    chunk_bytes: int
    progress: Callable[[int], None]
    broken: list[RunError]

    def chunks(self) -> Iterator[tuple[Part, ...]]:
        """The chunks, one part per copy: first those that an interrupted ingest finished, then new ones.

        If an image is unreadable, no further chunk is written: the other images are only checked.
        """
        done = number = 0
        while found := self._recorded(number):
            yield found
            done, number = done + found[0][0].count, number + 1
            self.progress(done)
        for copy in self.copies:
            copy.journal.discard(self.split, number)
        positions = range(done, len(self.rows.rows_N))
        read = ordered_map(self._pack, positions, threads=_READ_THREADS, window=_READ_AHEAD)
        with closing(read), ThreadPoolExecutor(1) as writer:
            writing: Future[tuple[Part, ...]] | None = None
            for chunk in self._filled(self._intact(self._counted(read, done)), number, done):
                if writing:
                    yield writing.result()  # before the next chunk is written: none may follow a chunk that failed
                writing = writer.submit(self._write, chunk)
            if writing:
                yield writing.result()

    def _recorded(self, number: int) -> tuple[Part, ...]:
        """A chunk that an interrupted ingest has finished, of every copy; empty if one is missing."""
        parts = [copy.journal.recorded(self.split, number) for copy in self.copies]
        found = tuple(part for part in parts if part is not None)
        return found if len(found) == len(self.copies) else ()

    def _pack(self, position: int) -> list[bytes] | RunError:
        """The bytes of a sample in each copy, or why it is unreadable."""
        split, row = self.rows.source_split, int(self.rows.rows_N[position])
        try:
            image = self.source.read(split, row)
            label, name = int(self.rows.labels_N[position]), self.source.names[split][row]
            sample = Original(f"{position:08d}", *image, label, name)
            return [copy.pack(sample) for copy in self.copies]
        except RunError as error:
            return error

    def _counted(self, packed: Iterator[list[bytes] | RunError], done: int) -> Iterator[list[bytes] | RunError]:
        """Report progress; `done` samples are read already."""
        for read, spans in enumerate(packed, done + 1):
            yield spans
            if read % _READ_AHEAD == 0 or read == len(self.rows.rows_N):
                self.progress(read)

    def _intact(self, packed: Iterator[list[bytes] | RunError]) -> Iterator[list[bytes]]:
        """The samples before the first unreadable one; the errors of all go into `broken`."""
        for each in packed:
            if isinstance(each, RunError):
                self.broken.append(each)
                if len(self.broken) >= _COUNTED:
                    return
            elif not self.broken:
                yield each

    def _filled(self, packed: Iterator[list[bytes]], number: int, start: int) -> Iterator[_Chunk]:
        """The next chunks, as long as all images are intact. The bytes of the first copy end a chunk."""
        for new in itertools.count(number):
            spans, size = [], 0
            for each in packed:
                spans.append(each)
                size += len(each[0])
                if size >= self.chunk_bytes:
                    break
            if self.broken or not spans:
                return
            yield _Chunk(new, start, spans)
            start += len(spans)

    def _write(self, chunk: _Chunk) -> tuple[Part, ...]:
        here = slice(chunk.start, chunk.start + len(chunk.spans))
        names = self.source.names[self.rows.source_split]
        labels, named = self.rows.labels_N[here].tolist(), [names[row] for row in self.rows.rows_N[here]]
        # The images last: what an interruption leaves of the others is then written again.
        parts = [
            copy.write_chunk(self.split, chunk.number, [each[which] for each in chunk.spans], labels, named)
            for which, copy in reversed([*enumerate(self.copies)])
        ]
        return tuple(reversed(parts))


def unreadable_images(broken: Sequence[RunError]) -> RunError:
    """One error for all unreadable images."""
    if len(broken) == 1:
        return broken[0]
    most = " or more" if len(broken) >= _COUNTED else ""
    named = "; ".join(error.message for error in broken[:NAMED])
    more = f"; and {len(broken) - NAMED:,} more" if len(broken) > NAMED else ""
    found = RunError(f"{len(broken):,}{most} images cannot be ingested: {named}{more}", broken[0].remedy)
    found.remedy = found.remedy.replace("the file", "these files")
    first = f"; the first {NAMED}" if more else ""
    found.heading, found.problems = f"{len(broken):,}{most} images cannot be ingested{first}:", broken[:NAMED]
    return found
