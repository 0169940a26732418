"""The configured selection algorithm and its requirements."""

from dataclasses import replace

from lipt.config import Config, Select
from lipt.errors import UsageError
from lipt.selection import Requirements, requirements, resolve


def algorithm_of(settings: Select) -> str:
    """The algorithm that runs: the configured one, or the one that `auto` chooses."""
    return resolve(settings.algorithm, settings.fraction, balanced=settings.balanced)


def algorithm_label(settings: Select) -> str:
    """The algorithm as reports write it: `herding`, or `auto (ccs)` if `auto` chose it."""
    configured, runs = settings.algorithm, algorithm_of(settings)
    return runs if runs == configured else f"{configured} ({runs})"


def needs_of(settings: Select) -> Requirements:
    """The outputs and other inputs that the algorithm needs."""
    return requirements(settings.algorithm, settings.fraction, settings.options)


def scoring_needs(config: Config) -> Requirements:
    """What the algorithm reads from the scoring of a run: a trajectory, if it can and one is recorded; else outputs."""
    needs = needs_of(config.select)
    if needs.trajectory and config.score.model == "trajectory":
        return Requirements(trajectory=True)
    return replace(needs, trajectory=False)


def check_trajectory(config: Config) -> None:
    """
    Raises:
        UsageError: the algorithm reads a trajectory, but the configuration records none, or too few epochs.
    """
    needs, scoring = needs_of(config.select), config.score
    if not needs.trajectory:
        return
    name = config.select.algorithm
    if not needs.outputs and scoring.model != "trajectory":
        raise UsageError(
            f"select.algorithm: {name} reads what each epoch of a training says of a sample; "
            f"score.model: {scoring.model} does not record it",
            "set score.model: trajectory, score.runs: 1 and score.epochs: 10",
        )
    if scoring.model == "trajectory" and not scoring.epochs:
        raise UsageError("score.model: trajectory needs score.epochs: 1 or more", "set score.epochs: 10")
