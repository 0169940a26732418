"""What a training does, and how far it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from lipt.data.augmentation import Augment
from lipt.training.precision import Precision
from lipt.training.raptr import RaptrSchedule


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """SGD with Nesterov momentum."""

    epochs: int
    """Epochs of the whole training. With `steps`, the last one may end early; draws that are led by losses may take
    more epochs."""
    batch_size: int
    lr: float
    schedule: Literal["constant", "cosine"]
    augment: Augment
    epoch_size: int | None = None
    """Samples drawn uniformly per epoch; None = all N."""
    steps: int | None = None
    """Optimiser steps of the whole training; None = `epochs` whole epochs."""
    precision: Precision = "fp32"
    raptr: RaptrSchedule | None = None
    """Train random subnetworks; None = the full network."""
    lr_name: str = "the learning rate"
    """The setting that gives `lr`, for messages."""

    def lr_at(self, progress: float) -> float:
        """Learning rate after the share `progress` of all steps; cosine from `lr` to 0."""
        return self.lr if self.schedule == "constant" else self.lr * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(kw_only=True)
class TrainingProgress:
    """How far a training is; a checkpoint stores it with weights and momentum."""

    epoch: int = 0
    """Finished epochs."""
    steps: int = 0
    """Optimiser steps in finished epochs."""
    images: int = 0
    """Images trained on in finished epochs, repetitions included."""
    part: int = 0
    """Finished parts of the epoch that has begun."""
    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    """Number of images that skipped each block of the network; only blocks that were skipped."""

    def skip(self, blocks: Sequence[str], images: int) -> None:
        """Count a batch that skipped these blocks."""
        for name in blocks:
            self.skipped[name] = self.skipped.get(name, 0) + images
