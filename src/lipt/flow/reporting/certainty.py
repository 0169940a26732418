"""The report's section about how sure the scores are."""

from collections.abc import Sequence
from statistics import fmean

from lipt.flow.outcome import Outcome
from lipt.report.certainty import ScoreCheck
from lipt.runtime import Attempt
from lipt.selection.reliability import Positions, overlap
from lipt.stages.select import read_subset


def score_check(attempt: Attempt, label: str, outcomes: Sequence[Outcome]) -> ScoreCheck | None:
    """The check of one row, an outcome per seed; None without scores."""
    scored = [outcome for outcome in outcomes if any(ref.startswith("score/") for ref in outcome.subset.inputs)]
    if not scored:
        return None
    summaries = [outcome.subset.summary for outcome in scored]
    reliable = [float(summary["reliability"]) for summary in summaries if "reliability" in summary]
    shared = overlap([_positions(attempt, outcome) for outcome in scored]) if len(scored) > 1 else None
    if not reliable and not shared:
        return None
    return ScoreCheck(
        label=label,
        reliability=fmean(reliable) if reliable else None,
        halved=next((summary["halved"] for summary in summaries if "halved" in summary), None),
        shared=shared[0] if shared else None,
        by_chance=shared[1] if shared else None,
    )


def _positions(attempt: Attempt, outcome: Outcome) -> tuple[Positions, Positions]:
    """The positions of all candidates, and of those that are kept."""
    stored = read_subset(attempt, outcome.subset)
    return stored.positions_N.numpy(), stored.ascending()[0].numpy()
