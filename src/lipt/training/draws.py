"""Fresh draws that are led by a table of losses: InfoBatch and OrderDP.

The table holds the loss of each sample when the training last saw it, so a draw takes no forward pass. All draws are
functions of (table, seed, epoch), and so equal in all processes.

Shape legend: N samples of the set, S samples drawn uniformly for an epoch, K of them trained on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from lipt.rng import uniform

#: Share of the training after which InfoBatch trains on everything (Qin et al. 2024, Section 3.3: delta).
PRUNED_UNTIL = 0.875


class LossDraws(ABC):
    """A table of losses, and the rule by which an epoch draws from it.

    Args:
        loss_N: float32 (N,), the first losses; NaN = not seen yet.
    """

    def __init__(self, loss_N: Tensor) -> None:
        self.loss_N = loss_N

    @abstractmethod
    def of_epoch(self, rows_S: Tensor, *, done: float, seed: int, epoch: int) -> tuple[Tensor, Tensor | None]:
        """The rows to train on, int64 (K,), in the order of `rows_S`, and the factors of their losses by row of the
        set, float32 (N,), or None.

        Args:
            rows_S: int64 (S,), a uniform draw in random order.
            done: the share of the training before this epoch.
        """

    def record(self, _epoch: int, rows_K: Tensor, seen_K3: Tensor) -> None:
        """Enter what `dynamics.observe` saw of these rows."""
        self.loss_N[rows_K] = losses(seen_K3[:, 0])

    def tensors(self) -> dict[str, Tensor]:
        """The table, for a checkpoint."""
        return {"losses": self.loss_N}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        self.loss_N = tensors["losses"]


class InfoBatch(LossDraws):
    """Leave out samples whose loss is below the mean with a fixed probability r, and multiply the losses of the other
    samples below the mean by 1 / (1 - r): summed over an epoch, the expected gradient is that of all S samples. The
    epoch has K / S as many steps, so each is S / K times as long as one of a uniform draw.

    Qin et al., ICLR 2024, eq. 2 and Section 3.3. A sample that was not seen yet is never left out. If at most one
    sample of a very small draw would stay, it is trained on whole: an epoch needs an image, and BatchNorm two.
    """

    def __init__(self, loss_N: Tensor, *, probability: float) -> None:
        super().__init__(loss_N)
        self.probability = probability

    @staticmethod
    def fewest(drawn: int, probability: float) -> int:
        """How many of `drawn` samples stay at least: six standard deviations below the mean, were all losses low."""
        mean = drawn * (1 - probability)
        return min(drawn, max(2, math.floor(mean - 6 * math.sqrt(mean * probability))))

    def of_epoch(self, rows_S: Tensor, *, done: float, seed: int, epoch: int) -> tuple[Tensor, Tensor | None]:
        if done >= PRUNED_UNTIL:
            return rows_S, None
        below_N = self.loss_N < self.loss_N.double().nanmean()  # false where the loss is NaN
        stays_S = uniform(rows_S, 1, seed, "infobatch", epoch).squeeze(1) >= self.probability
        rows_K = rows_S[stays_S | ~below_N[rows_S]]
        if len(rows_K) < 2:
            return rows_S, None
        return rows_K, below_N.to(torch.float32) * (1 / (1 - self.probability) - 1) + 1


class Ordered(LossDraws):
    """Train on the `count` samples of the uniform draw with the highest losses.

    Jin et al., ICLR 2026 (OrderDP), Algorithm 1, with stored losses as in the authors' code. A sample that was not seen
    yet comes first. Equal losses are in random order.
    """

    def __init__(self, loss_N: Tensor, *, count: int) -> None:
        super().__init__(loss_N)
        self.count = count

    def of_epoch(self, rows_S: Tensor, *, done: float, seed: int, epoch: int) -> tuple[Tensor, Tensor | None]:
        hardest_first_S = self.loss_N[rows_S].nan_to_num(torch.inf).argsort(descending=True, stable=True)
        # Sorted by loss, a batch would hold equally hard samples. The order of the uniform draw is random.
        return rows_S[hardest_first_S[: self.count].sort().values], None


def losses(p: Tensor) -> Tensor:
    """Cross-entropy of samples from the probabilities of their own classes; finite for every p."""
    return -p.clamp_min(torch.finfo(p.dtype).tiny).log()
