"""What an algorithm reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """The inputs that an algorithm needs or can use."""

    models: int = 0
    """The smallest number of scored models (entries of `Candidates.outputs`)."""
    logits: bool = False
    """Reads their logits."""
    features: bool = False
    """Reads their features."""
    trajectory: bool = False
    """Reads `Candidates.trajectories`, if they are given, instead of outputs. With `models` = 0 it needs them."""
    scores: bool = False
    """Needs `Candidates.scores_N`."""
    initial: bool = False
    """Accepts samples that are already selected (`select(initial=...)`)."""
    validation: bool = False
    """Uses validation outputs if they are given; never mandatory."""
    passes: int = 0
    """Number of passes over the outputs, a block at a time; 0 = all must be in memory, because candidates are compared
    with each other."""

    @property
    def outputs(self) -> bool:
        """Whether a scoring pass is needed at all."""
        return self.models > 0


class Size(NamedTuple):
    """The size of a problem: a group of `n` candidates, `k` of which are picked, and the outputs of models for them."""

    n: int
    k: int
    models: int = 1
    classes: int = 0
    features: int = 0
    """Of each model."""

    @property
    def numbers(self) -> int:
        """How many numbers all models together give for a candidate."""
        return self.models * (self.classes + self.features)
