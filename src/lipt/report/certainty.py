"""How sure the scores of a row are: within a run, and over the seeds of a comparison."""

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from lipt.report.fields import STRICT, Share
from lipt.report.numbers import format_percent

#: A reliability below this is warned of: more than half of the variance of the ranks is chance.
WEAK = 0.5
#: Subsets overlap like random ones if the shared and the other part of a subset are both within this of a draw's.
_ALIKE = 0.1
_HALVES = {"models": "two halves of the models", "epochs": "even against odd epochs"}


class ScoreCheck(BaseModel):
    """Reliability of the scores, and overlap of the subsets over seeds, of one row; None if it cannot be measured."""

    model_config = STRICT

    label: str
    """Of the row."""
    reliability: Share | None = None
    """Split-half reliability, mean over seeds."""
    halved: Literal["models", "epochs"] | None = None
    """What was divided into halves: the models, or the epochs of the trajectory."""
    shared: Share | None = None
    """Share of the images kept with one seed that are kept with another too, among those that both could keep: seeds
    set aside other validation images. Mean over all pairs."""
    by_chance: Share | None = None
    """The same of random subsets of these sizes."""

    @property
    def weak(self) -> bool:
        """Whether to warn."""
        return self.reliability is not None and self.reliability < WEAK


def statements(check: ScoreCheck) -> list[str]:
    """A sentence per measurement, for the page and the terminal."""
    found = []
    if check.reliability is not None and check.halved:
        found.append(f"{check.label}: reliability of the scores {check.reliability:.2f} ({_HALVES[check.halved]}).")
    if check.shared is not None and check.by_chance is not None:
        like_random = all(
            math.isclose(ours, theirs, rel_tol=_ALIKE)
            for ours, theirs in ((check.shared, check.by_chance), (1 - check.shared, 1 - check.by_chance))
        )
        so = " So the choice depends on the seed about as much as a random draw does." if like_random else ""
        found.append(
            f"{check.label}: two seeds share {format_percent(check.shared)} of their kept images. Two random subsets "
            f"would share {format_percent(check.by_chance)}.{so}"
        )
    return found


def all_statements(checks: Sequence[ScoreCheck]) -> list[str]:
    """The statements of all rows, and a warning of those that are weak."""
    found = [sentence for check in checks for sentence in statements(check)]
    if weak := [check.label for check in checks if check.weak]:
        found.append(
            f"Warning: the reliability of {' and '.join(weak)} is below {WEAK:g}: the order of the samples is mostly "
            "chance. Train the scoring models for longer (score.epochs, or pretrain.passes for jigsaws)."
        )
    return found
