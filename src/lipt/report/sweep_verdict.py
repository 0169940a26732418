"""What a finished sweep says about its choices, in one or two sentences."""

from collections.abc import Sequence

from lipt.report.next_step import ENOUGH_SEEDS
from lipt.report.numbers import format_count, format_points
from lipt.report.significance import MIN_SEEDS, Difference
from lipt.report.sweep import Result


def sweep_verdict(results: Sequence[Result]) -> str:
    """At how many points the choice beats random; with too few seeds, that nothing is shown, and what would show it."""
    gains = [result.gain for result in results if result.gain and not result.is_random]
    if not gains:
        return "No verdict: no point compares a choice with a random subset of the same budgets."
    judged = [gain for gain in gains if gain.level != "unknown"]
    if judged:
        return _counted(judged, len(gains))
    if all(gain.at_chance for gain in gains):
        return "No verdict: at each point the choice and random are both at chance."
    means = sorted(gain.mean for gain in gains)
    low, high = format_points(means[0], 1), format_points(means[-1], 1)
    apart = low if low == high else f"{low} to {high}"
    seeds = format_count(max(gain.num_seeds for gain in gains), "seed")
    return (
        f"No verdict: the choices differ from random by {apart} points, but {seeds} cannot tell this from chance. An "
        f"interval needs {MIN_SEEDS} seeds, and {ENOUGH_SEEDS} tell more: run the sweep again with "
        f"--set 'compare.seeds=[{','.join(map(str, range(ENOUGH_SEEDS)))}]'."
    )


def _counted(judged: Sequence[Difference], points: int) -> str:
    """How many points have which result."""
    levels = [gain.level for gain in judged]
    told = f"Beats random at {levels.count('wins')} of {format_count(points, 'grid point')}"
    if worse := levels.count("loses"):
        told += f", and is worse at {worse}"
    open_points = points - levels.count("wins") - worse
    return f"{told}." + (f" At {open_points} the seeds cannot tell." if open_points else "")
