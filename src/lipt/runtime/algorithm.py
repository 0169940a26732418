"""The configured selection algorithm and its requirements."""

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


def check_forgetting(config: Config) -> None:
    """Check that forgetting events can be counted: this takes two epochs or more of one model.

    Raises:
        UsageError: the algorithm needs them, but the configuration provides none.
    """
    needs = needs_of(config.select)
    score_settings = config.score
    if needs.forgetting and (score_settings.model != "classic" or score_settings.epochs < 2):
        raise UsageError(
            f"select.algorithm: {config.select.algorithm} counts forgetting events during training, theta_p has none",
            "set score.model: classic, score.runs: 1 and score.epochs: 2 or more",
        )
