"""The configured data set as a stage sees it: its source, its chunks, its split, its images."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from lipt.adapters.store import DatasetFiles, MissingObjectError, Store
from lipt.adapters.store.file import FileStore
from lipt.config import Data
from lipt.data.chunks import Dataset
from lipt.data.cropping import Crops
from lipt.data.images import ResidentImages, StreamedImages, group_size, open_images, stream
from lipt.data.shards import Positions, count_validation, split, with_each_class
from lipt.data.sources import Listing, Source, open_source, recognise
from lipt.errors import DamagedDataError, IntegrityError, UsageError
from lipt.runtime.artifact import CHUNKS, Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.processes.child import ProcessGroup


def open_apart(data: Data, store: Store) -> Source:
    """Open the configured source; it must not overlap with `store`, where its chunks will be written.

    Raises:
        UsageError: the two overlap; or as `open_source`.
    """
    source = open_source(data.source, data.format)
    if isinstance(store, FileStore) and source.overlaps(store.root):
        raise UsageError(
            f"{store.root} and the images of {data.source} overlap: chunks would be mixed with images",
            "choose a destination, or a workspace, that is outside of the folder of the images",
        )
    return source


def listing(ctx: Context, opened: Source | None = None) -> Listing:
    """The classes and counts of `data.source`, which must not be a chunk store. Nothing is downloaded.

    Args:
        opened: the source, if the caller has opened it.

    Raises:
        UsageError: images and workspace overlap, or as `open_source`.
    """
    data, cached = ctx.config.data, ctx.cache.listings
    key = data.source, data.format
    if key not in cached:
        published = recognise(*key).published
        cached[key] = published or Listing.of(opened or open_apart(data, ctx.workspace.store.at(CHUNKS)))
    return cached[key]


def open_dataset(attempt: Attempt, ingested: Artifact) -> Dataset:
    """The data set behind an `ingest` artifact. Its reads count for this attempt; cached parts are not read again."""
    cached = attempt.ctx.cache.datasets
    files = DatasetFiles(attempt.open(str(ingested.summary["location"])))

    def read(file: str, start: int, length: int | None) -> bytes:
        try:
            return files.read(file, start, length)
        except (MissingObjectError, IntegrityError) as error:
            raise DamagedDataError(error.message, "restore it, or run the same `lipt ingest` again") from None

    opened = Dataset(read, like=cached.get(ingested.ref))
    cached.clear()
    cached[ingested.ref] = opened
    return opened


def split_positions(ctx: Context, dataset: Dataset) -> tuple[Positions, Positions]:
    """(validation, candidates) positions of the training split. Each class has a candidate, if that is possible."""
    count = dataset.manifest.splits["train"].count
    parts = split(count, ctx.config.data.validation_fraction, seed=ctx.seed("split"))
    return with_each_class(dataset.index("train").label, *parts)


def count_candidates(ctx: Context, ingested: Artifact) -> int:
    """The number of candidates in the data set behind an `ingest` artifact; 0 if it is only planned (a dry run)."""
    count = int(ingested.summary.get("train", 0))
    return count and count - count_validation(count, ctx.config.data.validation_fraction)


def crops_of(data: Data) -> Crops | None:
    """How images are cropped when they are decoded; None: they are decoded whole."""
    if data.crop == "pad":
        return None
    assert data.image_size is not None  # `Data` checks it
    return Crops(side=data.image_size, flip=data.flip)


def images_of(
    ctx: Context,
    dataset: Dataset,
    split_name: str,
    positions: Positions,
    load: Callable[[StreamedImages], Tensor] = StreamedImages.whole,
) -> ResidentImages | StreamedImages:
    """Images of a split, resident (read by `load`) or streamed as `data.resident_mb` says."""
    data = ctx.config.data
    images = open_images(
        dataset,
        split_name,
        positions,
        image_size=data.image_size,
        crops=crops_of(data),
        resident_bytes=data.resident_mb * 1e6,
        load=load,
    )
    return images.on(ctx.device) if isinstance(images, ResidentImages) else images


def training_images(
    ctx: Context, dataset: Dataset, positions: Positions, processes: ProcessGroup | None = None
) -> ResidentImages | StreamedImages:
    """Training images as `images_of`. With `data.crop: resized` they are decoded anew at each use.

    Their files are then held in memory, if those of all processes together take at most `data.resident_mb`.
    """
    processes = processes or ProcessGroup()
    data = ctx.config.data
    crops = crops_of(data)
    if crops is None:
        return images_of(ctx, dataset, "train", positions, load=processes.load)
    group = group_size(crops.side, data.resident_mb * 1e6, crops=True)
    streamed = stream(dataset, "train", positions, image_size=data.image_size, crops=crops, group=group)
    wanted = dataset.ranges_of("train", positions)
    fits = wanted.num_bytes * processes.ranks.count <= data.resident_mb * 1e6
    return streamed.hold(wanted) if fits else streamed


def open_test_images(ctx: Context, dataset: Dataset) -> ResidentImages | StreamedImages:
    """The test split; only `evaluate` may call this."""
    return images_of(ctx, dataset, "test", np.arange(dataset.manifest.splits["test"].count))
