"""The work of a run before it runs: FLOPs, bytes at the store and memory of each stage.

They follow from the configuration and the size of the data, as the stages do it; how long it takes is `forecast`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO

import numpy as np
import torch
from torch import Tensor

from lipt.adapters.store import DatasetFiles, open_store
from lipt.config import Config, Merge
from lipt.core.chunks import Dataset, load_images
from lipt.core.chunks.manifest import MANIFEST
from lipt.core.selection import requirements
from lipt.errors import UsageError
from lipt.progress import Reporter
from lipt.stages.context import Context
from lipt.stages.graph import has_swarm, needs_models, random_baseline
from lipt.stages.ingest import ingest, is_chunk_store

#: Bytes, measured: an index row on disk, in memory with order and label; a row of a subset's table, its score.
_INDEX_ROW, _ROW_MEMORY, _SUBSET_ROW, _SUBSET_SCORE = 9, 52, 2.4, 5
#: A process that has imported torch, bytes; fp32 states that a merge holds besides the deltas.
_PROCESS_BYTES, _MERGE_STATES = 0.9e9, 8
#: A jigsaw's delta, bytes, measured: per weight that is kept (bf16, zstd), per weight (which are zero), per tensor.
_DELTA_KEPT, _DELTA_WEIGHT, _DELTA_TENSOR = 1.31, 0.19, 73
#: Images per run of a streamed epoch; images per forward pass.
_RUN, _FORWARD_BATCH = 256, 128


@dataclass(frozen=True, kw_only=True)
class Data:
    """What a plan must know of a data set."""

    train: int
    test: int
    per_class: tuple[int, ...]
    """Candidates of each class."""
    span_bytes: float
    """Stored bytes of a training image, headers included."""
    test_span_bytes: float
    chunk_bytes: float
    side: int
    """Pixels."""
    index_bytes: tuple[float, float]
    """Of the training and the test split."""
    manifest_bytes: float

    @classmethod
    def stored(cls, ctx: Context) -> Data:
        """As the data set of the configuration is.

        Raises:
            UsageError: it was not ingested yet.
        """
        source, location = ctx.config.data.source, ""
        if not is_chunk_store(ctx.config.data):
            found = ingest(replace(ctx, dry_run=True, reporter=Reporter(StringIO())))
            location = str(found.summary.get("location", ""))
            if not location:
                raise UsageError(
                    f"data.source: {source} was not ingested into {ctx.config.workspace}, so its size is not known",
                    "`lipt ingest` it, or describe it: --images N --image-kb KB --classes C --set data.image_size=PX",
                )
        store = ctx.workspace.store.metered().at(location) if location else open_store(source)
        data = Dataset(DatasetFiles(store).read)
        train, test = data.manifest.splits["train"], data.manifest.splits["test"]
        index, candidates = data.index("train"), ctx.split(data)[1]
        one = load_images(data.plan("train", [0]), data.read, image_size=ctx.config.data.image_size)
        return cls(
            train=train.count,
            test=test.count,
            per_class=tuple(np.bincount(index.label[candidates], minlength=len(data.manifest.classes)).tolist()),
            span_bytes=float(index.size.mean()),
            test_span_bytes=sum(chunk.size for chunk in test.chunks) / test.count,
            chunk_bytes=sum(chunk.size for chunk in train.chunks) / len(train.chunks),
            side=max(one.images_NCHW.shape[2:]),
            index_bytes=(store.size(train.index.file) or 0, store.size(test.index.file) or 0),
            manifest_bytes=store.size(MANIFEST) or 0,
        )

    @classmethod
    def described(cls, config: Config, *, images: int, image_kb: float, classes: int) -> Data:
        """Data that are not there.

        Args:
            images: training images; a test split of 5 % lies beside them.
            image_kb: of one file, in 1,000 bytes.

        Raises:
            UsageError: the configuration does not say the side of an image.
        """
        if config.data.image_size is None:
            raise UsageError("the side of an image is not known", "--set data.image_size=PX")
        span, test = image_kb * 1000 + 2048, max(1, images // 20)
        each, more = divmod(images - round(config.data.validation_fraction * images), classes)
        chunk_bytes = config.data.chunk_mb * 1e6
        return cls(
            train=images,
            test=test,
            per_class=tuple(each + (label < more) for label in range(classes)),
            span_bytes=span,
            test_span_bytes=span,
            chunk_bytes=chunk_bytes,
            side=config.data.image_size,
            index_bytes=(_INDEX_ROW * images, _INDEX_ROW * test),
            manifest_bytes=150 * math.ceil((images + test) * span / chunk_bytes) + 40 * classes,
        )


@dataclass(frozen=True, kw_only=True)
class Net:
    """What a plan must know of the network."""

    forward: int
    """FLOPs of an image."""
    both: int
    """FLOPs of an image, forward and backward."""
    file_bytes: int
    state_bytes: int
    delta_bytes: float
    features: int

    @classmethod
    def of(cls, ctx: Context, data: Data) -> Net:
        """The configured network, without memory for its weights."""
        with torch.device("meta"):
            model = ctx.model(len(data.per_class), 0)
        forward, both = ctx.flops(model, (3, data.side, data.side))
        state = model.state_dict()
        weights = sum(tensor.numel() for tensor in state.values() if tensor.dim() > 1)
        state_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
        density = 1.0 if ctx.config.pretrain.prune == "none" else sum(ctx.config.pretrain.density) / 2
        each = _DELTA_KEPT * density + _DELTA_WEIGHT
        layer = model.get_submodule(str(model.classifier_name))
        return cls(
            forward=forward,
            both=both,
            file_bytes=packed_bytes(state),
            state_bytes=state_bytes,
            delta_bytes=each * weights + state_bytes - 4 * weights + _DELTA_TENSOR * len(state),
            features=int(str(layer.in_features)),
        )


def packed_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Length of `core.wire.pack(tensors)`; the tensors may lie on the device `meta`."""
    header, offset = {}, 0
    names = {torch.float32: "F32", torch.int64: "I64"}
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        end = offset + tensor.numel() * tensor.element_size()
        kind = names.get(tensor.dtype, "BF16")
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    return 8 + math.ceil(len(json.dumps(header, separators=(",", ":"))) / 8) * 8 + offset


@dataclass(frozen=True, kw_only=True)
class Work:
    """A stage: `pieces`, one after the other or, where it `spreads`, in as many pods; the rest is of one piece."""

    stage: str
    pieces: int = 1
    spreads: bool = False
    flops: float = 0
    steps: float = 0
    """Batches that go through the network."""
    items: float = 0
    """What a stage without FLOPs handles: images, index rows, numbers."""
    decoded: float = 0
    """Images."""
    read: Mapping[str, float] = field(default_factory=dict)
    """Bytes by kind: data, model, other."""
    written: Mapping[str, float] = field(default_factory=dict)
    once: float = 0
    """Bytes of weights that a process reads once, whatever the number of its pieces."""
    requests: float = 0
    memory_bytes: float = 0
    streams: bool = False
    checkpoints: int = 0
    """At most so many, of `checkpoint_bytes`, one every `train.checkpoint_s`."""
    checkpoint_bytes: float = 0


def kept(config: Config, per_class: Sequence[int]) -> int:
    """Samples that the selection keeps."""
    fraction, algorithm = config.select.fraction, config.select.algorithm
    each = algorithm == "stratified" or (config.select.balanced and algorithm != "random")
    return sum(max(1, round(fraction * count)) for count in (per_class if each else [sum(per_class)]) if count)


def work_of(config: Config, data: Data, net: Net) -> list[Work]:
    """All stages of a run, in order. FLOPs are exact, but for the merge, whose search depends on what it finds."""
    total, classes = sum(data.per_class), len(data.per_class)
    validation, pixels = data.train - total, 3 * data.side**2
    index, test_index = (data.manifest_bytes + size for size in data.index_bytes)
    train_bytes, test_bytes = data.train * data.span_bytes, data.test * data.test_span_bytes
    base = _PROCESS_BYTES + _ROW_MEMORY * data.train
    limit, swarm, models = config.data.resident_mb * 1e6, has_swarm(config), needs_models(config)
    shard, count = config.dispatch.batches * config.dispatch.batch_size, config.dispatch.jigsaws
    plan_bytes = 170 + shard * (
        20 + sum(len(str(int(x))) for x in (data.train, classes - 1, data.chunk_bytes, data.span_bytes))
    )

    def resident(images: float) -> float:
        return min(images * pixels, limit)

    def ranges(images: float) -> float:
        return images * data.span_bytes / data.chunk_bytes + 1

    works = []
    if not is_chunk_store(config.data):
        works.append(
            Work(
                stage="ingest", items=data.train + data.test, decoded=data.train + data.test,
                written={"data": train_bytes + test_bytes, "other": 2 * sum(data.index_bytes) + data.manifest_bytes},
                requests=4 * (train_bytes + test_bytes) / data.chunk_bytes, memory_bytes=base + data.chunk_bytes,
            )
        )  # fmt: skip
    if models:
        classic = config.score.model == "classic"
        epochs = config.score.epochs if classic else config.initialise.epochs
        streams = total * pixels > limit
        passes = epochs if streams else 1
        works.append(
            Work(
                stage="initialise", pieces=config.score.runs if classic else 1, flops=epochs * total * net.both,
                steps=epochs * math.ceil(total / config.initialise.batch_size), decoded=passes * total,
                read={"data": passes * total * data.span_bytes, "other": index},
                written={"model": net.file_bytes, "other": 4 * total},
                requests=passes * total / _RUN if streams else ranges(total), streams=streams,
                memory_bytes=base + resident(total) + 3 * net.state_bytes,
                checkpoints=epochs - 1, checkpoint_bytes=2 * net.state_bytes + 10 * total,
            )
        )  # fmt: skip
    if swarm:
        works += [
            Work(
                stage="dispatch", items=total, read={"other": index}, written={"other": count * plan_bytes},
                requests=count, memory_bytes=base,
            ),
            Work(
                stage="pretrain", pieces=count, spreads=True, flops=config.pretrain.passes * shard * net.both,
                steps=config.pretrain.passes * config.dispatch.batches, decoded=shard, once=net.file_bytes,
                read={"data": shard * data.span_bytes, "other": plan_bytes}, written={"model": net.delta_bytes},
                requests=4 + ranges(shard) if config.dispatch.stratified else 4 + shard,
                memory_bytes=_PROCESS_BYTES + shard * pixels + 5 * net.state_bytes,
            ),
        ]  # fmt: skip
        judged = merge_images(config.merge, count, validation, shard)
        streams = validation * pixels > limit  # then every candidate reads and decodes its images again
        looked = shard + (merge_images(config.merge, count, validation, 0) if streams else validation)
        works.append(
            Work(
                stage="merge", flops=judged * net.forward, steps=judged / _FORWARD_BATCH, decoded=looked,
                read={
                    "data": looked * data.span_bytes, "model": count * net.delta_bytes, "other": index + plan_bytes,
                },
                written={"model": net.file_bytes}, once=net.file_bytes, streams=streams,
                requests=count + (looked / _RUN if streams else ranges(looked)),
                memory_bytes=base + count * net.delta_bytes + _MERGE_STATES * net.state_bytes + resident(validation),
            )
        )  # fmt: skip
    needs = requirements(config.select.algorithm)
    scored = total + (validation if needs.validation else 0)
    scorers = {"classic": config.score.runs, "jigsaws": count if swarm else 1, "merged": 1}[config.score.model]
    outputs = 0.0
    if models:
        block = min(config.score.block_images, scored)
        blocks = math.ceil(total / config.score.block_images)
        blocks += math.ceil((scored - total) / config.score.block_images)
        part = scored / blocks  # of the mean block
        streams = block * pixels > limit
        ensemble = config.score.model == "jigsaws" and swarm
        sizes = [packed_bytes({"labels": _meta(part, dtype=torch.int64)})]
        rows = {"logits": _meta(part, classes), "features": _meta(part, net.features)}
        sizes += scorers * [packed_bytes(rows)]
        sizes += [packed_bytes({"forgetting": _meta(part)})] * (not swarm)
        outputs = blocks * float(sum(sizes))
        works.append(
            Work(
                stage="score", pieces=blocks, spreads=True, flops=scorers * part * net.forward, streams=streams,
                steps=scorers * math.ceil(part / _FORWARD_BATCH), decoded=part * (scorers if streams else 1),
                read={
                    "data": part * data.span_bytes * (scorers if streams else 1), "other": index,
                    "model": scorers * (net.delta_bytes if ensemble else net.file_bytes * (scorers > 1)),
                },
                written={"other": sum(sizes)}, once=net.file_bytes if scorers == 1 or ensemble else 0,
                requests=part / _RUN if streams else ranges(part),
                memory_bytes=base + resident(block) + sum(sizes) + 2 * net.state_bytes,
            )
        )  # fmt: skip
    chosen, twice = kept(config, data.per_class), random_baseline(config) is not None
    plain_bytes = 3500 + _SUBSET_ROW * total  # as the baseline has it
    subset_bytes = plain_bytes + _SUBSET_SCORE * total * models
    numbers = scorers * scored * (classes + net.features) if models else total
    works.append(
        Work(
            stage="select", items=numbers, read={"other": outputs + index * (1 + twice)},
            written={"other": subset_bytes + plain_bytes * twice},
            requests=2 * (1 + scored / config.score.block_images),
            memory_bytes=base + outputs + (8 * total * classes if models else 0),
        )
    )  # fmt: skip
    table_bytes = (subset_bytes + plain_bytes * twice) / (1 + twice)
    settings = config.train
    drawn = chosen
    if settings.epoch_fraction is not None:
        drawn = min(chosen, max(1, round(settings.epoch_fraction * total)))
    # Only the selected run of the two selects again; a piece is the mean of both.
    again = (settings.epochs - 1) // settings.reselect_every * scored / (1 + twice) if settings.reselect_every else 0
    source = scored if settings.reselect_every else chosen
    streams = source * pixels > limit
    looked = settings.epochs * drawn + again if streams else (source + chosen * twice) / (1 + twice)
    scattered = min(1.0, 1 - source / total + 1 / _RUN)
    works.append(
        Work(
            stage="train", pieces=1 + twice, streams=streams, decoded=looked,
            flops=settings.epochs * drawn * net.both + again * net.forward,
            steps=settings.epochs * math.ceil(drawn / settings.batch_size),
            read={"data": looked * data.span_bytes, "other": index + table_bytes},
            written={"model": net.file_bytes}, once=net.file_bytes * (settings.start == "continue"),
            requests=4 + looked * scattered, memory_bytes=base + resident(source) + 3 * net.state_bytes,
            checkpoints=settings.epochs - 1, checkpoint_bytes=2 * net.state_bytes,
        )
    )  # fmt: skip
    works.append(
        Work(
            stage="evaluate", pieces=1 + twice, flops=data.test * net.forward, streams=data.test * pixels > limit,
            steps=math.ceil(data.test / _FORWARD_BATCH), decoded=data.test, requests=4 + ranges(data.test),
            read={"data": data.test * data.test_span_bytes, "model": net.file_bytes, "other": test_index},
            memory_bytes=_PROCESS_BYTES + _ROW_MEMORY * data.test + resident(data.test) + net.state_bytes,
        )
    )  # fmt: skip
    return works


def _meta(count: float, *more: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(round(count), *more, dtype=dtype, device="meta")


def merge_images(settings: Merge, count: int, validation: int, shard: int) -> float:
    """Images that a merge forwards: exact but for `coarse_to_fine`, where half of the winners are taken to be judged
    with recalibrated statistics and no ingredient to be given up."""
    search = min(settings.search_images or validation, validation)
    fresh = min(settings.recalibration_images, shard)
    one = {"averaged": search, "recalibrated": fresh + search, "best": fresh + 2 * search}[settings.batchnorm]
    per_jigsaw = {"uniform": 0, "best_single": 0, "greedy": one, "none": 0}.get(settings.method)
    if per_jigsaw is None:
        fine = {"best": 5 * search + 2 * fresh}.get(settings.batchnorm, 4 * one)
        per_jigsaw = 10 * one if settings.search == "grid" else fine
    return (count + 1) * search + one + 4 * validation + (count - 1) * per_jigsaw
