"""The images of one epoch, and its batches.

Shape legend: N samples of the set, K samples drawn in an epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from lipt.rng import permutation

#: An epoch has parts of this many steps: a training can stop and go on after each of them. Layers such as Dropout are
#: seeded at the start of each part, so results depend on this number.
STEPS_PER_PART = 100


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The images of one epoch."""

    rows_K: Tensor
    factors_N: Tensor | None
    """Of the losses; None: 1."""
    sizes: list[int]
    """Of the batches."""
    before: int
    """Steps of the training before this epoch."""
    total: int
    """Steps of the whole training; without `Recipe.steps`, if each epoch had as many as this one."""

    @property
    def expected(self) -> int:
        """Images from here to the end of the training, as far as it is known."""
        return round(len(self.rows_K) * (self.total - self.before) / len(self.sizes))


def loss_weights(weights_N: Tensor | None, factors_N: Tensor | None) -> Tensor | None:
    """The weights, scaled to mean 1, times the factors."""
    if weights_N is None:
        return factors_N
    weights_N = weights_N * (len(weights_N) / weights_N.sum())
    return weights_N if factors_N is None else weights_N * factors_N


def epoch_rows(n: int, size: int | None, seed: int, epoch: int) -> Tensor:
    """The rows of one epoch, int64 (K,), drawn without replacement.

    With `size` = n or None, the epoch contains all rows in a new order. With a smaller size it is RS2 without
    replacement (Okanovic et al. 2024, Algorithm 1): a pass is n // size epochs, in which no row occurs twice. If `size`
    does not divide n, a pass leaves out n % size rows, others each time: the next pass has a new order of all n.
    """
    if size is None or size >= n:
        return permutation(n, seed, "order", epoch)
    epochs_per_pass = n // size
    cycle, part = divmod(epoch, epochs_per_pass)
    return permutation(n, seed, "order", "pass", cycle)[part * size : (part + 1) * size]


def batch_sizes(n: int, batch_size: int) -> list[int]:
    """Sizes of consecutive batches: as few as possible, at most `batch_size`, equal up to one image.

    Equal batches matter. If the rest of an epoch is a batch of two or three images, their statistics in BatchNorm and
    their gradient are mostly noise, and one such step in each epoch costs several points of accuracy (docs/results).
    """
    count = max(1, math.ceil(n / batch_size))
    return [n // count + (index < n % count) for index in range(count)]
