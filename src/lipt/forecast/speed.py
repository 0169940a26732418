"""Measure how fast this machine trains and scores with the configured network, on a few batches."""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache, partial
from typing import Literal

import numpy as np
import torch
from torch import nn

from lipt.data.augmentation import Augment
from lipt.data.chunks.images import decoding_threads
from lipt.data.images import ResidentImages, StreamedImages, stream
from lipt.forecast.run_sizes import RunSizes
from lipt.forecast.sizes import DataSize, stored_dataset
from lipt.forecast.time import Setup
from lipt.pipeline import FORWARDING
from lipt.runtime.context import Context
from lipt.runtime.dataset import crops_of
from lipt.runtime.network import jigsaw_augment, new_model, standard_augment
from lipt.stages.pretrain import prune_model
from lipt.training.flops import flops_per_image
from lipt.training.forward import evaluation_batch, predictions
from lipt.training.loop import Recipe, Trainer, batch_sizes
from lipt.training.soup import interpolate
from lipt.training.tensor_files import decode_delta, encode_delta, state_of

#: Least seconds of a measurement, after a first batch. Most FLOPs of a batch, by kind of device: batches of large
#: images are made smaller, because they could take minutes, or more memory than this machine has.
_LASTS_S = 0.5
#: Number of images that are decoded for a measurement.
_DECODED = 256
#: Seconds of the look whether this machine is busy, and wall-clock per CPU second from which on it is.
_LOOKS_S, _BUSY = 0.3, 1.25
_BATCH_FLOPS = {"cpu": 1e11, "cuda": 2e13}
#: Batches of an epoch that is measured on a GPU.
_BATCHES = 16


def rates_here(ctx: Context, data: DataSize, stages: Collection[str]) -> tuple[dict[str, float], dict[str, Setup]]:
    """TFLOP/s that this machine sustains, for each of the stages that trains or scores; the set-up of those that train.

    Each stage is measured with its batch size and augmentation, without decoding and reading. A part of `pretrain` also
    prunes and encodes; a step of `merge` averages weights. With a large network this takes a few seconds. The first
    measurement in a process pays for imports, as the first stage of a run does.
    """
    scorer = ctx.of_scorer()
    if scorer is ctx:
        return _rates(ctx, data, stages)
    rates, setups = _rates(ctx, data, [stage for stage in stages if stage in _OF_TRAINED])
    others = _rates(scorer, data.seen_as(scorer.config.data), [stage for stage in stages if stage not in _OF_TRAINED])
    return rates | others[0], setups | others[1]


#: The stages that run the network of the main training, even if another one scores.
_OF_TRAINED = ("race", "train", "evaluate")


def _rates(ctx: Context, data: DataSize, stages: Collection[str]) -> tuple[dict[str, float], dict[str, Setup]]:
    config, sizes, setups = ctx.config, RunSizes.of(ctx, data), {}
    net = sizes.net
    limit, clock = _BATCH_FLOPS[ctx.device.type], clock_of(ctx.device)

    def images(batch_size: int, flops: int) -> ResidentImages:
        count = max(2, min(batch_size, data.candidates, int(limit / flops)))
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(256, (count, 3, data.side, data.side), dtype=torch.uint8, generator=generator)
        return ResidentImages(images_NCHW=pixels, labels_N=torch.arange(count) % data.classes)

    # On a GPU an epoch of one batch would measure what Python does before and after it.
    batches = 1 if ctx.device.type == "cpu" else _BATCHES

    def trains(
        stage: str,
        per_epoch: int,
        batch_size: int,
        augment: Augment,
        finish: Callable[[nn.Module, ResidentImages], object] | None = None,
    ) -> float:
        batch = images(batch_sizes(per_epoch, batch_size)[0], net.both)
        epoch = batch.subset(torch.arange(len(batch)).repeat(batches))
        recipe = Recipe(
            epochs=10**6,
            batch_size=len(batch),
            lr=1e-6,
            schedule="constant",
            augment=augment,
            precision=ctx.precision,
        )

        def prepared() -> Trainer:
            trainer = Trainer(new_model(ctx, data.classes, 0), recipe, seed=0, device=ctx.device)
            flops_per_image(trainer.model, (3, data.side, data.side))
            return trainer

        def part(*, trained: bool) -> None:
            trainer = prepared()
            if trained:
                trainer.run_epoch(epoch)
            if finish:
                finish(trainer.model, batch)

        first_s = _seconds(lambda: part(trained=True), clock)
        part_s = _seconds(lambda: part(trained=False), clock)
        trainer = prepared()
        rate = _rate(lambda: trainer.run_epoch(epoch), net.both * len(epoch), clock)
        setups[stage] = setup_of(first_s, part_s, 1e-12 * net.both * len(epoch) / rate)
        return rate

    def finish_jigsaw(model: nn.Module, batch: ResidentImages) -> None:
        prune_model(ctx, model, batch, 0)
        encode_delta(state_of(model), state_of(new_model(ctx, data.classes, 1)))

    def merges(stage: str) -> float:
        batch = images(sizes.searched, net.forward)
        model = new_model(ctx, data.classes, 0).to(ctx.device)
        state = state_of(model)
        delta = encode_delta(state_of(new_model(ctx, data.classes, 1)), state)

        def unpack() -> None:
            decode_delta(delta, state, origin=stage)

        unpack()
        jigsaws, groups = config.dispatch.jigsaws, config.merge.groups
        ingredients = math.ceil(jigsaws / groups) if stage == "group" else groups if groups > 1 else jigsaws
        # It unpacks each alone, for the average and for the search, and the best one once more.
        setups[stage] = Setup(part_s=(3 * ingredients + 1) * _seconds(unpack, clock), first_s=0)

        def look() -> None:  # a merge averages weights before it looks at the search images
            model.load_state_dict(interpolate(state, state, 0.5))
            predictions([model], batch, device=ctx.device, precision=ctx.precision)

        return _rate(look, net.forward * len(batch), clock)

    @cache
    def forwards() -> float:
        batch = images(evaluation_batch(ctx.device), net.forward)
        model = new_model(ctx, data.classes, 0).to(ctx.device)
        return _rate(
            lambda: predictions([model], batch, device=ctx.device, precision=ctx.precision),
            net.forward * len(batch),
            clock,
        )

    @cache
    def trains_on_subset() -> float:
        rate = trains("train", sizes.drawn, config.train.batch_size, standard)
        if "race" in stages:  # the same training, only shorter; it comes first, and pays for what the first one sets up
            setups["race"], setups["train"] = setups["train"], replace(setups["train"], first_s=0)
        return rate

    standard, strong, dispatch = standard_augment(ctx), jigsaw_augment(ctx), config.dispatch
    training: dict[str, Callable[[], float]] = {
        "initialise": lambda: trains("initialise", data.candidates, config.initialise.batch_size, standard),
        "pretrain": lambda: trains("pretrain", sizes.shard, dispatch.batch_size, strong, finish_jigsaw),
        "race": trains_on_subset,
        "train": trains_on_subset,
    }
    measures = (
        training | dict.fromkeys(FORWARDING, forwards) | {stage: partial(merges, stage) for stage in ("group", "merge")}
    )
    return {stage: measures[stage]() for stage in stages if stage in measures}, setups


def decoding_here(ctx: Context) -> dict[Literal["crop", "whole"], float]:
    """Seconds per image in which a process of this machine decodes the stored images, in all its threads.

    They are the CPU seconds of all threads, divided by their number, so other work on the machine is not counted.

    Raises:
        UsageError: the data set is not ingested yet.
    """
    dataset, settings = stored_dataset(ctx), ctx.config.data
    positions = np.arange(min(_DECODED, dataset.manifest.splits["train"].count))
    crops = crops_of(settings)
    images = stream(dataset, "train", positions, image_size=settings.image_size, crops=crops)
    images = images.hold(dataset.ranges_of("train", positions))
    uses: dict[Literal["crop", "whole"], int | None] = {"crop": 0, "whole": None} if crops else {"whole": None}
    return {use: _decoding_s(images, seed) for use, seed in uses.items()}


def _decoding_s(images: StreamedImages, seed: int | None) -> float:
    assert images.held is not None
    rows_N, seconds = torch.arange(len(images)), []
    for _ in range(2):  # the first time pays for imports
        started = time.process_time()
        for _batch in images.batches(rows_N, [len(images)], seed):
            pass
        seconds.append(time.process_time() - started)
    return min(seconds) / len(images) / decoding_threads(next(iter(images.held.values())))


def setup_of(first_s: float, part_s: float, epoch_s: float) -> Setup:
    """The set-up of a stage.

    Args:
        first_s: seconds of the first part: its set-up and one epoch.
        part_s: seconds of the set-up of a later part.
        epoch_s: seconds of a later epoch.
    """
    return Setup(part_s=part_s, first_s=max(0.0, first_s - part_s - epoch_s))


def clock_of(device: torch.device) -> Callable[[], float]:
    """The clock that measures work on the device, in seconds.

    On a CPU it counts the CPU seconds of the calling thread, which takes part in everything that several threads
    compute. So a machine that does other work is not taken for a slow one, except where `is_busy`. The time that a
    thread waits for a GPU is no CPU time, so there the wall-clock counts.
    """
    return time.thread_time if device.type == "cpu" else time.monotonic


def is_busy(device: torch.device) -> bool:
    """Whether other work on this machine delays threads that compute together.

    A thread spins while it waits for a delayed one. Its clock counts that, so the measured speeds are too low.
    """
    if device.type != "cpu" or torch.get_num_threads() == 1:
        return False
    matrix_NN = torch.ones(512, 512)
    _ = matrix_NN @ matrix_NN  # starts the threads
    wall_s, cpu_s = time.monotonic(), time.thread_time()
    while time.monotonic() - wall_s < _LOOKS_S:
        _ = matrix_NN @ matrix_NN
    return time.monotonic() - wall_s > _BUSY * (time.thread_time() - cpu_s)


def _seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    work()
    return clock() - started


def _rate(work: Callable[[], object], flops: int, clock: Callable[[], float]) -> float:
    """TFLOP/s of `work`; one call takes `flops` FLOPs."""
    work()  # warm-up: torch allocates memory and chooses kernels
    started, done = clock(), 0
    while (seconds := clock() - started) < _LASTS_S:
        work()
        done += flops
    return 1e-12 * done / seconds


def name_of_device(ctx: Context) -> str:
    """The name of the device that `rates_here` measures."""
    if ctx.device.type == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU, threads: {torch.get_num_threads()}, in CPU seconds"
