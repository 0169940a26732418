"""Measure how fast this machine trains and scores with the configured network, on a few batches."""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cached_property, partial
from typing import Literal

import numpy as np
import torch
from torch import nn

from lipt.config import Raptr
from lipt.data.augmentation import Augment
from lipt.data.chunks import Dataset
from lipt.data.chunks.images import decoding_threads
from lipt.data.images import ResidentImages, StreamedImages, image_shape, stream
from lipt.forecast.machine import Setup
from lipt.forecast.run_sizes import RunSizes
from lipt.forecast.sizes import DataSize
from lipt.pipeline import FORWARDING
from lipt.runtime.context import Context
from lipt.runtime.dataset import crops_of
from lipt.runtime.network import jigsaw_augment, new_model, standard_augment
from lipt.stages.pretrain import prune_model
from lipt.training.batches import batch_sizes
from lipt.training.flops import flops_per_image
from lipt.training.forward import evaluation_batch, predictions
from lipt.training.loop import Trainer
from lipt.training.recipe import Recipe
from lipt.training.soup import interpolate
from lipt.training.tensor_files import decode_delta, encode_delta, state_of

#: Least seconds of a measurement, after a first batch.
_LASTS_S = 0.5
#: Number of images that are decoded for a measurement.
_DECODED = 256
#: Seconds of the look whether this machine is busy, and wall-clock per CPU second from which on it is.
_LOOKS_S, _BUSY = 0.3, 1.25
#: Most FLOPs of a batch, by kind of device: batches of large images are made smaller, because they could take minutes,
#: or more memory than this machine has.
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
    speeds = _Speeds(ctx, data, stages)
    return speeds.measured(), speeds.setups


class _Speeds:
    """Measures the stages that run one network."""

    def __init__(self, ctx: Context, data: DataSize, stages: Collection[str]) -> None:
        self.ctx, self.data, self.stages = ctx, data, stages
        self.sizes = RunSizes.of(ctx, data)
        self.clock = clock_of(ctx.device)
        self.setups: dict[str, Setup] = {}
        """The set-up of each stage that was measured and trains or merges."""

    def measured(self) -> dict[str, float]:
        """TFLOP/s of each stage that trains or scores."""
        dispatch, standard = self.ctx.config.dispatch, standard_augment(self.ctx)
        shard, strong = self.sizes.shard, jigsaw_augment(self.ctx)
        candidates, at_start = self.data.candidates, self.ctx.config.initialise.batch_size
        forward: dict[str, Callable[[], float]] = dict.fromkeys(FORWARDING, lambda: self._forward)
        measures = forward | {
            "initialise": lambda: self._train(
                "initialise", candidates, at_start, standard, raptr=self.ctx.config.initialise.raptr
            ),
            "pretrain": lambda: self._train(
                "pretrain", shard, dispatch.batch_size, strong, finish=self._finish_jigsaw, shares=False
            ),
            "race": lambda: self._train_on_subset,
            "train": lambda: self._train_on_subset,
            "group": lambda: self._merge("group"),
            "merge": lambda: self._merge("merge"),
        }
        return {stage: measures[stage]() for stage in self.stages if stage in measures}

    @cached_property
    def _train_on_subset(self) -> float:
        settings, augment = self.ctx.config.train, standard_augment(self.ctx)
        rate = self._train("train", self.sizes.drawn, settings.batch_size, augment, raptr=settings.raptr)
        if "race" in self.stages:  # the same training, only shorter; it comes first, and pays for the first set-up
            self.setups["race"] = self.setups["train"]
            self.setups["train"] = replace(self.setups["train"], first_s=0)
        return rate

    def _train(
        self,
        stage: str,
        per_epoch: int,
        batch_size: int,
        augment: Augment,
        *,
        raptr: Raptr | None = None,
        finish: Callable[[nn.Module, ResidentImages], object] | None = None,
        shares: bool = True,
    ) -> float:
        """
        Args:
            per_epoch: images of an epoch.
            raptr: a GPU does not replay the steps of such a training.
            finish: what a part does after its training, with the network and a batch.
            shares: whether several processes share each batch. The speed is that of one of them; a GPU does not replay
                these steps either.
        """
        both, clock = self.sizes.net.both, self.clock
        whole = batch_sizes(per_epoch, batch_size)[0]
        asked = self.ctx.config.processes
        processes = min(whole, asked) if shares and isinstance(asked, int) else 1
        batch = self._images(math.ceil(whole / processes), both)
        # On a GPU an epoch of one batch would measure what Python does before and after it.
        batches = 1 if self.ctx.device.type == "cpu" else _BATCHES
        epoch = batch.subset(torch.arange(len(batch)).repeat(batches))
        recipe = Recipe(
            epochs=10**6,
            batch_size=len(batch),
            lr=1e-6,
            schedule="constant",
            augment=augment,
            precision=self.ctx.precision,
        )

        def prepared() -> Trainer:
            trainer = Trainer(self._network(), recipe, seed=0, device=self.ctx.device)
            if raptr or processes > 1:
                trainer.replayed = None
            flops_per_image(trainer.model, image_shape(batch))
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
        rate = _rate(lambda: trainer.run_epoch(epoch), both * len(epoch), clock)
        self.setups[stage] = setup_of(first_s, part_s, 1e-12 * both * len(epoch) / rate)
        return rate

    def _finish_jigsaw(self, model: nn.Module, batch: ResidentImages) -> None:
        prune_model(self.ctx, model, batch, 0)
        encode_delta(state_of(model), state_of(self._network(seed=1)))

    def _merge(self, stage: str) -> float:
        model = self._network().to(self.ctx.device)
        state = state_of(model)
        delta = encode_delta(state_of(self._network(seed=1)), state)

        def unpack() -> None:
            decode_delta(delta, state, origin=stage)

        unpack()
        jigsaws, groups = self.ctx.config.dispatch.jigsaws, self.ctx.config.merge.groups
        ingredients = math.ceil(jigsaws / groups) if stage == "group" else groups if groups > 1 else jigsaws
        # It unpacks each alone, for the average and for the search, and the best one once more.
        self.setups[stage] = Setup(part_s=(3 * ingredients + 1) * _seconds(unpack, self.clock), first_s=0)
        # A merge averages weights before it looks at the search images.
        average = partial(interpolate, state, state, 0.5)
        return self._look(model, self.sizes.searched, lambda: model.load_state_dict(average()))

    @cached_property
    def _forward(self) -> float:
        return self._look(self._network().to(self.ctx.device), evaluation_batch(self.ctx.device))

    def _look(self, model: nn.Module, batch_size: int, before: Callable[[], object] = lambda: None) -> float:
        """Of a forward pass, each time after `before`."""
        ctx, forward = self.ctx, self.sizes.net.forward
        batch = self._images(batch_size, forward)

        def look() -> None:
            before()
            predictions([model], batch, device=ctx.device, precision=ctx.precision)

        return _rate(look, forward * len(batch), self.clock)

    def _network(self, *, seed: int = 0) -> nn.Module:
        return new_model(self.ctx, self.data.classes, seed)

    def _images(self, batch_size: int, flops: int) -> ResidentImages:
        """A batch, made smaller if it takes more than `_BATCH_FLOPS` at `flops` per image."""
        side, limit = self.data.side, _BATCH_FLOPS[self.ctx.device.type]
        count = max(2, min(batch_size, self.data.candidates, int(limit / flops)))
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(256, (count, 3, side, side), dtype=torch.uint8, generator=generator)
        return ResidentImages(images_NCHW=pixels, labels_N=torch.arange(count) % self.data.classes)


def decoding_here(ctx: Context, dataset: Dataset) -> dict[Literal["crop", "whole"], float]:
    """Seconds per image in which a process of this machine decodes the stored images, in all its threads.

    They are the CPU seconds of all threads, divided by their number, so other work on the machine is not counted.
    """
    settings = ctx.config.data
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
