"""Sizes in one run, which follow from the configuration and from the sizes of the data set and of the network."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from lipt.config import Config, Raptr, override
from lipt.data.images import group_size
from lipt.flow.dag import has_swarm, needs_models
from lipt.flow.variants import baseline_of
from lipt.forecast.sizes import DataSize, NetworkSize
from lipt.runtime.algorithm import scoring_needs
from lipt.runtime.budgets import epoch_images, kept_images
from lipt.runtime.context import Context
from lipt.runtime.network import raptr_schedule
from lipt.stages.score import output_bytes
from lipt.training.batches import STEPS_PER_PART, batch_sizes
from lipt.training.forward import models_at_once
from lipt.training.raptr import recalibration_images

#: Measured bytes: an index row in memory with order and label; a row of a shard; a row of a subset; its score.
ROW_MEMORY, _SHARD_ROW, _SUBSET_ROW, _SUBSET_SCORE = 52, 42, 9, 5
#: Bytes of a process that has imported torch.
PROCESS_BYTES = 0.9e9
#: Bytes that a trajectory takes per image and epoch.
EPOCH_BYTES = 12
#: Images per forward pass.
FORWARD_BATCH = 128
#: Images per run of a streamed epoch.
RUN_IMAGES = 256


def checkpoints(epochs: int, steps: int) -> int:
    """How many checkpoints a training writes at most, if each of its epochs has `steps` steps."""
    return epochs * math.ceil(steps / STEPS_PER_PART) - 1


@dataclass(frozen=True, kw_only=True)
class RunSizes:
    """Numbers of images and bytes in one run."""

    config: Config
    data: DataSize
    net: NetworkSize

    @classmethod
    def of(cls, ctx: Context, data: DataSize) -> Self:
        """The sizes of a run, or (with `Context.of_scorer`) of its stages up to the scores."""
        data = data.seen_as(ctx.config.data)
        return cls(config=ctx.config, data=data, net=NetworkSize.of(ctx, data))

    def without_reselection(self) -> Self:
        """The sizes of the trainings in a race, which never select again."""
        return replace(self, config=override(self.config, {"train": {"reselect_every": 0}}))

    @cached_property
    def swarm(self) -> bool:
        return has_swarm(self.config)

    @cached_property
    def validation(self) -> int:
        return self.data.train - self.data.candidates

    @cached_property
    def kept(self) -> int:
        return kept_images(self.config, self.data.candidates)

    @cached_property
    def drawn(self) -> int:
        """Number of images per epoch of the main training."""
        return epoch_images(self.config.train, self.data.candidates, self.kept)

    @cached_property
    def searched(self) -> int:
        """Number of search images of a merge."""
        return min(self.config.merge.search_images or self.validation, self.validation)

    @cached_property
    def shard(self) -> int:
        return self.config.dispatch.batches * self.config.dispatch.batch_size

    @cached_property
    def scored(self) -> int:
        """Number of images that each scoring model forwards."""
        return self.data.candidates + (self.validation if scoring_needs(self.config).validation else 0)

    @cached_property
    def scorers(self) -> int:
        settings = self.config.score
        if settings.has_own_models:
            return settings.runs
        return self.config.dispatch.jigsaws if self.swarm and settings.model == "jigsaws" else 1

    @cached_property
    def shard_bytes(self) -> float:
        """Bytes of a shard's file: for each sample label, position, offset, size and checksum, as text."""
        return _SHARD_ROW * self.shard

    @cached_property
    def label_bytes(self) -> float:
        """Bytes stored per image besides its outputs: the label, and the trajectories if the algorithm reads them."""
        return 8 + scoring_needs(self.config).trajectory * self.trajectory_bytes

    @property
    def trajectory_bytes(self) -> float:
        """Bytes of the trajectories of one image."""
        return self.config.score.trajectories * EPOCH_BYTES * self.config.score.epochs

    @cached_property
    def first_loss_bytes(self) -> float:
        """Bytes that a training reads for its first losses."""
        return (self.config.train.first_losses == "trajectory") * self.trajectory_bytes * self.data.candidates

    @cached_property
    def output_bytes(self) -> float:
        """Bytes of the stored outputs of one image; 0 if the algorithm reads none."""
        if not scoring_needs(self.config).outputs:
            return 0
        return self.scorers * output_bytes(self.config, self.data.classes, self.net.features)

    def scored_at_once(self, images: float) -> int:
        """Number of models that share a pass over a block of this size."""
        if not self.streams(images):
            return 1
        each = self.net.state_bytes + images * self.output_bytes / self.scorers
        return min(self.scorers, models_at_once(each, self.config.data.resident_mb * 1e6))

    @cached_property
    def memory(self) -> float:
        """Bytes of a process that holds the index of the training split."""
        return PROCESS_BYTES + ROW_MEMORY * self.data.train

    @cached_property
    def trainer(self) -> float:
        """Bytes of a process that trains, without images: weights, gradients, momentum."""
        return self.memory + 3 * self.net.state_bytes

    @cached_property
    def beside(self) -> Config | None:
        """The configuration of the baseline, for which selection, training and evaluation are repeated."""
        baseline = baseline_of(self.config)
        return override(self.config, baseline.changes) if baseline else None

    @property
    def twice(self) -> bool:
        """Whether there is a baseline."""
        return self.beside is not None

    @cached_property
    def subset_bytes(self) -> float:
        """Bytes of a subset's table; with a baseline, the mean of both tables."""
        scored = needs_models(self.config) / (1 + self.twice)  # the baseline's has no scores
        return 3500 + (_SUBSET_ROW + _SUBSET_SCORE * scored) * self.data.candidates

    def saved_flops(
        self, raptr: Raptr | None, seed: int, *, images: int, batch_size: int, epochs: int, steps: int | None = None
    ) -> int:
        """FLOPs that RaPTr saves in a training with this seed and this number of images per epoch."""
        schedule = raptr_schedule(raptr)
        if schedule is None:
            return 0
        flops = self.net.block_flops
        blocks = schedule.choose(list(flops))
        skipped = schedule.skipped_images(blocks, seed, epochs, batch_sizes(images, batch_size), steps)
        return sum(count * flops[name] for name, count in skipped.items())

    def recalibrated(self, raptr: Raptr | None, images: int) -> int:
        """Number of images that are forwarded to compute BatchNorm statistics anew."""
        return recalibration_images(images) if raptr and self.net.batchnorm else 0

    def pixels(self, images: float) -> float:
        """Bytes of decoded images."""
        return images * 3 * self.data.side**2

    def resident(self, images: float, batch_size: int = FORWARD_BATCH) -> float:
        """Bytes of decoded images that are held in memory at once: all, or two groups if they are streamed."""
        return self._streamed(images, batch_size) if self.streams(images) else self.pixels(images)

    def _streamed(self, images: float, batch_size: int) -> float:
        """Bytes of decoded images if they are streamed: two groups, each of one batch at least."""
        group = group_size(self.data.side, self.config.data.resident_mb * 1e6, crops=self.crops)
        return self.pixels(min(images, 2 * max(group, batch_size)))

    @property
    def crops(self) -> bool:
        """Whether training decodes a random crop of an image at each use."""
        return self.config.data.crop == "resized"

    def files(self, images: float) -> float:
        """Bytes of the image files that each process of a training holds in memory; 0 if it holds no files."""
        size = images * self.data.span_bytes
        processes = self.config.processes if isinstance(self.config.processes, int) else 1
        fits = size * processes * self.config.train.nodes <= self.config.data.resident_mb * 1e6
        return size if self.crops and fits else 0

    def training_memory(self, images: float, batch_size: int) -> float:
        """Bytes that a training with these images holds in memory for them; crops are decoded anew at each use."""
        if not self.crops:
            return self.resident(images, batch_size)
        return self.files(images) + self._streamed(images, batch_size)

    def streams_training(self, images: float) -> bool:
        """Whether a training with these images reads them from the store at each use."""
        return not self.files(images) if self.crops else self.streams(images)

    def streams(self, images: float) -> bool:
        return self.pixels(images) > self.config.data.resident_mb * 1e6

    def requests(self, images: float, *, streams: bool) -> float:
        """Number of requests for images that lie side by side."""
        return images / RUN_IMAGES if streams else images * self.data.span_bytes / self.data.chunk_bytes + 1
