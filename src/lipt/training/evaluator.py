"""Comparing merged weights on validation images: the same ones in the same order, with an early stop for the worse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lipt.training.tensor_files import State

Statistics = Literal["averaged", "recalibrated"]

#: A model is compared with its rival after this number of images, and whenever the number has doubled.
FIRST_LOOK = 256


class Judged(NamedTuple):
    """Weights, and which of the first N validation images they classify correctly."""

    state: State
    correct_N: Tensor
    """bool."""
    alpha: float = 1.0
    """Weight of the last ingredient."""

    @property
    def accuracy(self) -> float:
        return accuracy(self.correct_N)

    def lead(self, rival: Judged) -> float:
        """Accuracy minus the rival's, on the images that these weights were evaluated on."""
        return lead(self.correct_N, rival.correct_N)


@dataclass(frozen=True)
class Evaluator:
    """Evaluates weights on validation images."""

    correct: Callable[[Sequence[State], int, int], list[Tensor]]
    """Which of the images start..stop-1 each state classifies correctly, bool. They are read once for all states."""
    recalibrate: Callable[[State], State]
    """The same weights, with running statistics from a forward pass over training images."""
    search: int
    """Number of images that the search uses."""
    confirm: range
    """Images of the last comparison."""

    def judge(self, state: State, rival_N: Tensor | None = None) -> Tensor:
        """Which search images `state` classifies correctly, bool.

        Args:
            rival_N: the same of a rival. If `state` has fewer correct than the rival after 256, 512, … images, it is
                unlikely to win, and the result ends there. None: evaluate on all search images.
        """
        correct_N = torch.empty(0, dtype=torch.bool)
        for stop in [self.search] if rival_N is None else looks(self.search):
            correct_N = self.extend(state, correct_N, stop)
            if rival_N is not None and lead(correct_N, rival_N) < 0:
                break
        return correct_N

    def extend(self, state: State, correct_N: Tensor, stop: int) -> Tensor:
        """`correct_N` with the images up to `stop` that are missing in it."""
        start = len(correct_N)
        return torch.cat([correct_N, *self.correct([state], start, stop)]) if start < stop else correct_N

    def confirmed(self, models: Sequence[Judged]) -> list[float]:
        """Accuracy of each model on the images of the last comparison.

        Nothing is evaluated twice: neither images that a model was judged on, nor weights that occur twice.
        """
        distinct = {id(model.state): model for model in models}
        known = {key: model.correct_N[:0] for key, model in distinct.items()}
        if self.confirm.start < self.search:
            stop = min(self.search, self.confirm.stop)
            known = {key: self.extend(model.state, model.correct_N, stop) for key, model in distinct.items()}
        start = max(self.search, self.confirm.start)
        if start < self.confirm.stop:
            states = [model.state for model in distinct.values()]
            more = self.correct(states, start, self.confirm.stop)
            known = {key: torch.cat([known[key], more_N]) for key, more_N in zip(known, more, strict=True)}
        return [accuracy(known[id(model.state)]) for model in models]


def looks(search: int) -> list[int]:
    """The numbers of images after which a model is compared with its rival; the last is `search`."""
    numbers, look = [], FIRST_LOOK
    while look < search:
        numbers.append(look)
        look *= 2
    return [*numbers, search]


def accuracy(correct_N: Tensor) -> float:
    """Share of correct ones."""
    return int(correct_N.sum()) / len(correct_N)


def lead(correct_N: Tensor, rival_N: Tensor) -> float:
    """Accuracy minus the rival's on the same images, the first N of the rival's."""
    return (int(correct_N.sum()) - int(rival_N[: len(correct_N)].sum())) / len(correct_N)
