"""Settings of a race of selections."""

from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field, field_validator

from lipt.config.base import Section


class Contestant(Section):
    """A selection that takes part in a race."""

    algorithm: str
    """Name of the selection algorithm."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the algorithm."""


class Race(Section):
    """A race of selections: each trains the network for a part of the steps, and the best one on validation images gets
    the main training. `select.algorithm` and a class-balanced random subset always take part."""

    contestants: list[Contestant] = Field([])
    """Further selections that take part, such as `{algorithm: ccs, options: {score: aum}}`."""
    rounds: list[Annotated[float, Field(gt=0, lt=1)]] = Field([0.1], min_length=1)
    """Share of the main training's steps in each round. The better half of a round takes part in the next one. If
    `train.draw: infobatch` ends the epochs earlier, the share is of the steps that uniform draws would take."""

    @field_validator("rounds")
    @classmethod
    def _rounds_grow(cls, values: list[float]) -> list[float]:
        if any(later <= earlier for earlier, later in pairwise(values)):
            raise ValueError(f"select.race.rounds must ascend, as in [0.05, 0.2], not {values}")
        return values
