"""The settings of RaPTr, which the sections `initialise` and `train` share."""

from itertools import pairwise
from typing import Literal

from pydantic import Field, NonNegativeInt, field_validator

from lipt.config.base import Section


class Raptr(Section):
    """RaPTr: train random subnetworks that grow to the full network. It saves FLOPs and may cost accuracy."""

    keep: tuple[float, ...] = Field((0.5, 0.67, 0.83, 1.0), min_length=2)
    """For each stage, the probability that a block runs in a step. The steps are divided equally among the stages. The
    probabilities never fall, and the last one is 1, the full network."""
    fixed_first: NonNegativeInt = 1
    """Number of blocks that always run, counted from the first one that could be skipped."""
    fixed_last: NonNegativeInt = 1
    """Number of blocks that always run, counted from the last one that could be skipped."""
    rescale: Literal["inverse", "inverse_sqrt"] = "inverse"
    """A block that runs with probability p adds its output to its input. The output is first multiplied by 1/p
    (`inverse`) or by 1/sqrt(p) (`inverse_sqrt`)."""

    @field_validator("keep")
    @classmethod
    def _rises_to_one(cls, keep: tuple[float, ...]) -> tuple[float, ...]:
        if keep[0] <= 0 or keep[-1] != 1 or any(a > b for a, b in pairwise(keep)):
            raise ValueError(f"keep must be above 0, never fall and end with 1, not {list(keep)}")
        return keep
