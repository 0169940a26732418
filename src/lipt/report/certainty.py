"""How sure the scores of a row are: within a run, and over the seeds of a comparison."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lipt.report.numbers import format_percent

#: A reliability below this is warned of: more than half of the variance of the ranks is chance.
WEAK = 0.5
_HALVES = {"models": "two halves of the models", "epochs": "even against odd epochs"}


class ScoreCheck(BaseModel):
    """Reliability of the scores, and overlap of the subsets over seeds, of one row; None if it cannot be measured."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    label: str
    reliability: Annotated[float, Field(ge=0, le=1)] | None = None
    """Split-half reliability, mean over seeds."""
    halved: Literal["models", "epochs"] | None = None
    overlap: Annotated[float, Field(ge=0, le=1)] | None = None
    """Jaccard index of the subsets of two seeds, mean over all pairs."""
    chance: Annotated[float, Field(ge=0, le=1)] | None = None
    """The same of random subsets of these sizes."""

    @property
    def weak(self) -> bool:
        """Whether to warn."""
        return self.reliability is not None and self.reliability < WEAK


def statements(check: ScoreCheck) -> list[str]:
    """A sentence per measurement, and one that warns, for the page and the terminal."""
    found = []
    if check.reliability is not None and check.halved:
        found.append(f"{check.label}: reliability of the scores {check.reliability:.2f} ({_HALVES[check.halved]}).")
    if check.weak:
        found.append(
            f"Warning: with a reliability below {WEAK:g} the order of the samples is mostly chance. Train the scorer "
            "for more epochs, or train more of them (score.epochs, score.runs)."
        )
    if check.overlap is not None and check.chance is not None:
        found.append(
            f"{check.label}: the subsets of two seeds have {format_percent(check.overlap)} of their samples in common "
            f"(Jaccard index); random subsets have {format_percent(check.chance)}."
        )
    return found


def all_statements(checks: Sequence[ScoreCheck]) -> list[str]:
    """The statements of all rows."""
    return [sentence for check in checks for sentence in statements(check)]
