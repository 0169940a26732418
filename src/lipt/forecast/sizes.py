"""Sizes of the data set and of the network, from which a plan starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from lipt.adapters.store import DatasetFiles, Store, open_store
from lipt.config import Config, Data, override
from lipt.data.chunks import Dataset, thumbnails_folder
from lipt.data.chunks.manifest import MANIFEST
from lipt.data.images import image_shape, stream
from lipt.data.shards import count_validation
from lipt.errors import UsageError
from lipt.flow.checks.facts import Facts
from lipt.forecast.sample import Sample
from lipt.runtime.artifact import thumbnails_ref
from lipt.runtime.chunk_store import is_chunk_store
from lipt.runtime.context import Context
from lipt.runtime.dataset import listing
from lipt.runtime.network import new_model
from lipt.stages.ingest import ingest
from lipt.training.flops import flops_per_image
from lipt.training.raptr import block_flops, has_batchnorm, skippable_blocks

#: The options that describe data which are not here.
SIZES = "--images N --image-kb KB --classes C --set data.image_size=PX"
#: Measured bytes: an index row on disk with a file name; the overhead of each tensor in a file of weights.
_INDEX_ROW, _TENSOR_HEADER = 16, 84
#: Measured bytes of a square thumbnail, and per pixel: CIFAR-10 at 8 to 32 pixels.
_THUMBNAIL, _THUMBNAIL_PIXEL = 100, 2.2
#: Measured bytes of a jigsaw's delta: per kept weight (bf16, zstd), per weight (pattern of zeros), per tensor.
_DELTA_KEPT, _DELTA_WEIGHT, _DELTA_TENSOR = 1.31, 0.19, 73


@dataclass(frozen=True, kw_only=True)
class ThumbnailSize:
    """Bytes of thumbnails; each field as in `DataSize`."""

    span_bytes: float
    chunk_bytes: float
    index_bytes: float


@dataclass(frozen=True, kw_only=True)
class DataSize:
    """Counts and bytes of a data set."""

    train: int
    test: int
    candidates: int
    """Number of training images that are not held out for validation."""
    classes: int
    span_bytes: float
    """Stored bytes per image, tar headers included."""
    chunk_bytes: float
    side: int
    """Longer side of an image in pixels."""
    index_bytes: float
    """The index of the training split, and the manifest."""
    names_bytes: float
    """Bytes to read for the names of the images: the index once more."""
    thumbnails: ThumbnailSize | None = None
    """With `data.thumbnails`."""

    @classmethod
    def stored(cls, ctx: Context, typed: str = "CONFIG") -> DataSize:
        """The sizes of the configuration's data set.

        Args:
            typed: the configuration and its `--set`, as they were typed, for the error.

        Raises:
            UsageError: the data set is not ingested yet.
        """
        (store, data), side = _open(ctx, typed=typed), ctx.config.data.thumbnails
        train = data.manifest.splits["train"]
        first = stream(data, "train", np.zeros(1, np.int64), image_size=ctx.config.data.image_size, crops=None)
        return cls(
            train=train.count,
            test=data.manifest.splits["test"].count,
            candidates=train.count - count_validation(train.count, ctx.config.data.validation_fraction),
            classes=len(data.manifest.classes),
            side=max(image_shape(first)[1:]),
            names_bytes=store.size(train.index.file) or 0,
            thumbnails=ThumbnailSize(**_bytes_of(*_open(ctx, side))) if side else None,
            **_bytes_of(store, data),
        )

    @classmethod
    def listed(cls, ctx: Context, sample: Sample | None = None) -> DataSize:
        """The sizes of data that are not ingested: counts as in the source, bytes as in the sample.

        Args:
            sample: of the source; None: 3 bytes per pixel, and images are read only until one is readable.

        Raises:
            LiptError: as `Facts.of`; the size of the images is unknown.
        """
        found, data = listing(ctx), ctx.config.data
        facts = Facts.of(data, lambda: found)
        side = max(facts.size) if facts.size else None
        config = override(ctx.config, {"data": {"image_size": side}})
        sizes = cls.described(config, images=facts.train, image_kb=3e-3 * (side or 0) ** 2, classes=facts.classes)
        sizes = replace(sizes, test=facts.test or sum(found.counts["test"]))
        if sample is None:
            return sizes
        chunks = math.ceil(facts.train * sample.span_bytes / sizes.chunk_bytes)
        thumbnails = sizes.thumbnails and replace(
            sizes.thumbnails,
            span_bytes=sample.thumbnail_bytes,
            chunk_bytes=facts.train * sample.thumbnail_bytes / chunks,
        )
        return replace(
            sizes,
            span_bytes=sample.span_bytes,
            chunk_bytes=facts.train * sample.span_bytes / chunks,
            thumbnails=thumbnails,
        )

    @classmethod
    def described(cls, config: Config, *, images: int, image_kb: float, classes: int) -> DataSize:
        """The sizes of hypothetical data.

        Args:
            images: number of training images; 5 % as many test images are added.
            image_kb: average size of a file, in 1,000 bytes.

        Raises:
            UsageError: the configuration does not set `data.image_size`.
            RunError: too few images for a validation split.
        """
        if config.data.image_size is None:
            raise UsageError("the size of an image in pixels is unknown", "--set data.image_size=PX")
        span_bytes, chunk_bytes, side = image_kb * 1000 + 2048, config.data.chunk_mb * 1e6, config.data.thumbnails
        thumbnails = None
        if side is not None:
            small = _THUMBNAIL + _THUMBNAIL_PIXEL * side**2
            share = small / span_bytes
            thumbnails = ThumbnailSize(
                span_bytes=small, chunk_bytes=share * chunk_bytes, index_bytes=_INDEX_ROW * images
            )
        return cls(
            train=images,
            test=max(1, images // 20),
            candidates=images - count_validation(images, config.data.validation_fraction),
            classes=classes,
            span_bytes=span_bytes,
            chunk_bytes=chunk_bytes,
            side=config.data.image_size,
            index_bytes=_INDEX_ROW * images,
            names_bytes=_INDEX_ROW * images,
            thumbnails=thumbnails,
        )

    def to_score(self, config: Config) -> DataSize:
        """The data that the stages up to the scores read: the thumbnails, if there are any for `score.proxy`."""
        if config.thumbnails_to_score is None or self.thumbnails is None:
            return self
        return replace(self, **asdict(self.thumbnails))

    def seen_as(self, settings: Data) -> DataSize:
        """The same data with images of `data.image_size`."""
        return replace(self, side=settings.image_size or self.side)


def is_ingested(ctx: Context) -> bool:
    """Whether the configuration's data set can be read without its source."""
    return is_chunk_store(ctx.config.data) or ingest(ctx).find() is not None


def stored_dataset(ctx: Context) -> Dataset:
    """The configuration's data set; raises as `DataSize.stored`."""
    return _open(ctx)[1]


def _open(ctx: Context, thumbnails: int | None = None, typed: str = "CONFIG") -> tuple[Store, Dataset]:
    """Where the data set lies, or its thumbnails of that size; and the data set, which reads its files once."""
    store = _store_of(ctx, thumbnails, typed)
    return store, Dataset(DatasetFiles(store).read)


def _bytes_of(store: Store, data: Dataset) -> dict[str, float]:
    """The fields of `ThumbnailSize` for a data set."""
    train = data.manifest.splits["train"]
    return {
        "span_bytes": float(data.index("train").size.mean()),
        "chunk_bytes": sum(chunk.size for chunk in train.chunks) / len(train.chunks),
        "index_bytes": sum(store.size(file) or 0 for file in (MANIFEST, train.index.file)),
    }


def _store_of(ctx: Context, thumbnails: int | None, typed: str) -> Store:
    source = ctx.config.data.source
    if is_chunk_store(ctx.config.data):
        return open_store(f"{source}/{thumbnails_folder(thumbnails)}" if thumbnails else source)
    found = ingest(ctx).find()
    if found is None:
        raise UsageError(
            f"data.source: {source} was not ingested into {ctx.config.workspace}, so its size is unknown",
            f"run `lipt stage ingest {typed}` first, or give: {SIZES}",
        )
    if thumbnails:
        found = ctx.artifact(thumbnails_ref(found, thumbnails))
    return ctx.workspace.store.metered().at(str(found.summary["location"]))


@dataclass(frozen=True, kw_only=True)
class NetworkSize:
    """FLOPs and bytes of a network."""

    forward: int
    """FLOPs per image, forward."""
    both: int
    """FLOPs per image, forward and backward."""
    file_bytes: float
    state_bytes: int
    delta_bytes: float
    features: int
    batchnorm: bool
    block_flops: Mapping[str, int]
    """FLOPs per image, forward and backward, of each block that RaPTr can skip; empty if RaPTr is off."""

    @classmethod
    def of(cls, ctx: Context, data: DataSize) -> NetworkSize:
        """The sizes of the configured network."""
        model = new_model(ctx, data.classes, 0)
        forward, both = flops_per_image(model, (3, data.side, data.side))
        state = model.state_dict()
        weights = sum(tensor.numel() for tensor in state.values() if tensor.dim() > 1)
        state_bytes = sum(tensor.nbytes for tensor in state.values())
        density = 1.0 if ctx.config.pretrain.prune == "none" else sum(ctx.config.pretrain.density) / 2
        each = _DELTA_KEPT * density + _DELTA_WEIGHT
        layer = model.get_submodule(str(model.classifier_name))
        raptr = ctx.config.train.raptr or ctx.config.initialise.raptr
        blocks = skippable_blocks(model) if raptr else []
        return cls(
            forward=forward,
            both=both,
            file_bytes=state_bytes + _TENSOR_HEADER * len(state),
            state_bytes=state_bytes,
            delta_bytes=each * weights + state_bytes - 4 * weights + _DELTA_TENSOR * len(state),
            features=int(str(layer.in_features)),
            batchnorm=has_batchnorm(model),
            block_flops=block_flops(model, blocks, (3, data.side, data.side)),
        )
