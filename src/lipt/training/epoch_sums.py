"""What an epoch has seen so far: its loss, its hits, and each sample if something records them.

Shape legend: N samples of the set, P this process's part of a batch, C classes, R processes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lipt.training.distributed import Ranks
from lipt.training.dynamics import observe
from lipt.training.tensor_files import State


class EpochSums:
    """Adds up what the processes see in one epoch, each row once.

    Args:
        own_P: int64, the rows that this process trains on from here to the end of the epoch.
        samples: N.
        observes: keep what `observe` says of each sample.
        before: `so_far` of the attempt that was interrupted in this epoch; empty: it begins here.
    """

    def __init__(
        self, ranks: Ranks, own_P: Tensor, *, samples: int, observes: bool, before: State, device: torch.device
    ) -> None:
        self._ranks, self._own, self._samples, self._observes = ranks, own_P, samples, observes
        self._observed: list[Tensor] = []
        self._observed_before = before.get("observed") if ranks.rank == 0 else None  # of all processes: counts once
        totals_R2 = before.get("totals", torch.zeros(ranks.count, 2))
        if len(totals_R2) != ranks.count:  # the attempt before had another number of processes
            totals_R2 = torch.cat([totals_R2.sum(0, keepdim=True), torch.zeros(ranks.count - 1, 2)])
        self._totals_2 = totals_R2[ranks.rank].to(device, copy=True)

    def add(self, sums_2: Tensor, logits_PC: Tensor, labels_P: Tensor) -> None:
        """Add a batch: the sum of its losses and its number of hits; logits and labels of this process's part."""
        self._totals_2 += sums_2
        if self._observes:
            self._observed.append(observe(logits_PC.float(), labels_P))

    def so_far(self) -> State:
        """float32 "totals" (R, 2): losses and hits; with `observes` "observed" (N, 3), zeros where not seen yet.

        The same in all processes: each must call it.
        """
        totals_R2 = torch.zeros(self._ranks.count, 2)
        totals_R2[self._ranks.rank] = self._totals_2.cpu()
        found = {"totals": self._ranks.sum(totals_R2)}
        if self._observes:
            observed_N3 = torch.zeros(self._samples, 3)
            if self._observed_before is not None:
                observed_N3 += self._observed_before
            if self._observed:
                seen_P3 = torch.cat(self._observed).cpu()
                observed_N3[self._own[: len(seen_P3)]] = seen_P3
            found["observed"] = self._ranks.sum(observed_N3)
        return found
