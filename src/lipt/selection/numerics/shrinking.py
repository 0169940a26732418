"""Greedy selection by values that never grow; most steps evaluate only a few candidates."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from lipt.selection.arrays import View
from lipt.selection.numerics.maxima import TIE
from lipt.selection.numerics.steps import Pick, leader, positions

#: How many candidates compete at first: this share of all, and at least this number.
SHARE, FEWEST = 1 / 8, 256
#: If another candidate catches up within this number of picks, the number of competitors doubles.
PATIENCE = 8


class Objective(Protocol):
    """The values of candidates, given the picks so far. A value never grows."""

    def values(self, old_B: Tensor, rows_B: Tensor, picks_P: Tensor, seen: int) -> Tensor:
        """The values (B,) of `rows_B` after all picks; `old_B` already accounts for at least the first `seen` picks."""
        ...

    def focus(self, rows_A: Tensor) -> None:
        """Set the candidates that `step` updates."""
        ...

    def step(self, values_A: View, pick: Pick) -> None:
        """Update the values of the candidates in focus for one more pick, in place."""
        ...

    def least_loss(self, pick: int) -> float:
        """A lower bound, 0 or more, of the loss of value that this pick causes to any candidate."""
        ...


def shrinking_greedy(objective: Objective, values_M: Tensor, k: int, picked_P: Tensor) -> Tensor:
    """Positions (k,): each pick has the highest value, given the earlier picks; ties go to the lowest position.

    Args:
        values_M: values after the picks `picked_P`; changed in place.
        picked_P: earlier picks; not part of the result.
    """
    if values_M.device.type != "cpu":  # updating all on a GPU is faster than telling the host which ones matter
        return _all_compete(objective, values_M, k, picked_P)
    picks = picked_P.tolist()
    competition = _Competition(objective, values_M, picks)
    for _ in range(k):
        competition.pick()
    return torch.tensor(picks[len(picked_P) :], dtype=torch.int64)


def _all_compete(objective: Objective, values_M: Tensor, k: int, picked_P: Tensor) -> Tensor:
    objective.focus(torch.arange(len(values_M), device=values_M.device))
    picks: list[Pick] = []
    values_M[picked_P] = -torch.inf
    for _ in range(k):
        picks.append(leader(values_M))
        objective.step(values_M, picks[-1])
        values_M[picks[-1]] = -torch.inf
    return positions(picks, values_M.device)


class _Competition:
    """Only the candidates of highest value compete, and only their values are updated.

    The old value of any other candidate bounds its new value from above. When the best competitor falls to the highest
    bound, the values with the highest bounds are computed again.
    """

    def __init__(self, objective: Objective, values_M: Tensor, picks: list[int]) -> None:
        self._objective, self._values_M, self._picks = objective, values_M, picks
        self._seen_M = torch.full((len(values_M),), len(picks))
        self._values_M[picks] = -torch.inf
        self._width = max(FEWEST, round(SHARE * len(values_M)))
        self._begin()

    def pick(self) -> None:
        """Append the next pick."""
        at = int(leader(self._values_A))
        if not self._leads(float(self._values_A[at]), self._bound):
            self._end()
            self._begin()
            at = int(leader(self._values_A))
        pick = self._rows[at]
        self._picks.append(pick)
        self._objective.step(self._values_A, pick)
        self._values_A[at] = -torch.inf
        if self._bound > -torch.inf:
            self._bound -= self._objective.least_loss(pick)

    def _leads(self, value: float, bound: float) -> bool:
        """Whether no other candidate can reach this value, up to rounding."""
        return bound == -torch.inf or value - 2 * TIE * abs(value) > bound

    def _end(self) -> None:
        self._values_M[self._rows_A] = torch.from_numpy(self._values_A)
        self._seen_M[self._rows_A] = len(self._picks)
        if len(self._picks) - self._begun < PATIENCE:
            self._width *= 2

    def _begin(self) -> None:
        self._begun, n = len(self._picks), len(self._values_M)
        reach = self._width + 1
        while True:
            count = min(self._width, n)
            top_W, rows_W = self._values_M.topk(min(reach, n))
            self._bound = float(top_W[count]) if count < len(top_W) else -torch.inf
            old_W = (self._seen_M[rows_W] < self._begun) & (top_W > -torch.inf)
            top_A, rows_A, old_B = top_W[:count], rows_W[:count], rows_W[old_W]
            if bool(old_W[:count].any()):
                picks_P = torch.tensor(self._picks)
                seen = int(self._seen_M[old_B].min())
                self._values_M[old_B] = self._objective.values(self._values_M[old_B], old_B, picks_P, seen)
                self._seen_M[old_B] = self._begun
                reach += self._width
            elif self._leads(float(top_A[0]), self._bound):
                break
            else:
                self._width *= 2
                reach = max(reach, self._width + 1)
        self._rows_A = rows_A.sort().values
        self._rows = self._rows_A.tolist()
        self._values_A = self._values_M[self._rows_A].numpy()
        self._objective.focus(self._rows_A)
