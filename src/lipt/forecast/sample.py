"""What a plan has to know of images that are not ingested yet: up to 64 of them are ingested into memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipt.config import Data
from lipt.data.chunks import Dataset, thumbnails_folder, write_dataset
from lipt.data.sources import Source, check_one_size, recognise, spread
from lipt.data.sources.base import besides
from lipt.errors import RunError
from lipt.runtime.artifact import CHUNKS
from lipt.runtime.chunk_store import is_chunk_store
from lipt.runtime.context import Context
from lipt.runtime.dataset import listing, open_apart


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample of the training images of a source."""

    dataset: Dataset
    """The images, as ingestion would store them."""
    span_bytes: float
    """Stored bytes per image of the whole split, tar headers included."""
    thumbnail_bytes: float
    """Of a thumbnail; 0 without `data.thumbnails`."""
    about: str
    """Where the numbers come from."""

    @classmethod
    def of(cls, ctx: Context) -> Sample | None:
        """The sample of the configured source; None if the source is a chunk store or has to be downloaded.

        Raises:
            LiptError: as `open_apart`; no image can be read; without `data.image_size`, the images have several sizes.
        """
        data = ctx.config.data
        if is_chunk_store(data) or not recognise(data.source, data.format).is_here(data.source):
            return None
        source = open_apart(data, ctx.workspace.store.at(CHUNKS))
        listing(ctx, source)  # is kept, so that nothing lists the source again
        sampled = _Sampled(source)
        if data.image_size is None:
            check_one_size(sampled)
        files = _ingested(sampled, data)
        dataset = _opened(files)
        span_bytes = float(dataset.index("train").size.mean())
        if "train" in source.sizes:  # the files of the sample may be larger than the others
            sizes_N = source.sizes["train"]
            span_bytes *= _padded(sizes_N).mean() / _padded(sizes_N[sampled.rows]).mean()
        small = 0.0
        if data.thumbnails:
            small = float(_opened(files, f"{thumbnails_folder(data.thumbnails)}/").index("train").size.mean())
        return cls(
            dataset=dataset,
            span_bytes=span_bytes,
            thumbnail_bytes=small,
            about=f"data.source: {data.source} is not ingested yet{besides(source.left_out)}: the sizes come from "
            f"listing it and reading {len(sampled.rows):,} of its images{sampled.refused}",
        )


class _Sampled(Source):
    """The readable ones of up to 64 training images, spread evenly. Ingestion names the others.

    Attributes:
        rows: their positions in the training split.
        refused: what to say of the others; empty if there are none.
    """

    def __init__(self, source: Source) -> None:
        self._images, broken = list[tuple[bytes, str]](), list[RunError]()
        self.rows = list[int]()
        for row in spread(len(source.splits["train"])):
            try:
                self._images.append(source.read("train", row))
                self.rows.append(row)
            except RunError as error:
                broken.append(error)
        if not self.rows:
            raise broken[0]
        self.refused = f"; ingestion will refuse {len(broken):,} more, such as: {broken[0].message}" if broken else ""
        self.name, self.classes = source.name, source.classes
        labels_N = source.splits["train"][self.rows]
        names = [source.names["train"][row] for row in self.rows]
        self.splits = {"train": labels_N, "test": labels_N[:1]}
        self.names = {"train": names, "test": names[:1]}

    def read(self, _split: str, i: int) -> tuple[bytes, str]:
        return self._images[i]

    def fingerprint(self) -> str:
        return ""


def _ingested(source: Source, data: Data) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    write_dataset(
        source, files.__setitem__, seed=0, test_fraction=data.test_fraction, thumbnails=data.thumbnails, get=files.get
    )
    return files


def _opened(files: dict[str, bytes], folder: str = "") -> Dataset:
    def read(file: str, start: int, length: int | None) -> bytes:
        return files[folder + file][start:][:length]

    return Dataset(read)


def _padded(sizes_N: np.ndarray) -> np.ndarray:
    """Bytes of a sample in a tar: its image and its label, each with a header and padded to blocks of 512 bytes."""
    return 3 * 512 + 512 * -(-sizes_N // 512)
