"""Checks of the configured selections: each chooses among a few synthetic samples, before anything runs."""

from itertools import pairwise

import torch

from lipt.config import Config
from lipt.errors import UsageError, did_you_mean, in_one_line
from lipt.report.names import RANDOM
from lipt.report.numbers import format_count
from lipt.runtime.algorithm import algorithm_of, contestants, needs_of, reselection_needs
from lipt.runtime.budgets import kept_images, round_steps, steps_of
from lipt.selection import Candidates, Outputs, Trajectory
from lipt.selection.auto import AUTO
from lipt.selection.registry import names
from lipt.stages.select import apply


def check_names(config: Config) -> None:
    """
    Raises:
        UsageError: an unknown algorithm; names the setting.
    """
    race, known = config.select.race, [AUTO, *sorted(names())]
    named = {"select.algorithm": config.select.algorithm}
    named |= {
        f"select.race.contestants[{index}].algorithm": each.algorithm
        for index, each in enumerate(race.contestants if race else [])
    }
    for setting, name in named.items():
        if name not in known:
            raise UsageError(f"{setting}: no algorithm {name!r}", did_you_mean(name, known))


def check_race(config: Config) -> None:
    """
    Raises:
        UsageError: a race with a single contestant, or whose contestants all keep the same images.
    """
    field = contestants(config)
    if config.select.race and config.select.fraction == 1:
        raise UsageError(
            "select.race: with select.fraction: 1 all contestants keep the same images",
            "lower select.fraction, or set select.race: null",
        )
    if config.select.race and len(field) == 1:
        name, runs = config.select.algorithm, field[0].select.algorithm
        why = f"; select.algorithm: {name} is {runs} here" if name != runs else ""
        raise UsageError(
            f"select.race: class-balanced random would race alone{why}",
            "add another selection to select.race.contestants, or set select.race: null",
        )


def check_rounds(config: Config, candidates: int) -> None:
    """
    Raises:
        UsageError: two rounds of the race have equally many steps, so the later one would only repeat the earlier; or
            the last one has as many as the main training, which would then repeat it.
    """
    rounds = config.select.race.rounds if config.select.race else []
    whole = steps_of(config.train, candidates, kept_images(config, candidates))
    length = "train.steps" if config.train.steps else "train.epochs"
    for earlier, later in pairwise(rounds):
        steps = round_steps(later, whole)
        if steps == round_steps(earlier, whole):
            raise UsageError(
                f"select.race.rounds: {earlier:.12g} and {later:.12g} of {format_count(whole, 'step')} are both "
                f"{format_count(steps, 'step')}: a round would be repeated",
                f"list only one of them, or raise {length}",
            )
    if rounds and round_steps(rounds[-1], whole) == whole:
        raise UsageError(
            f"select.race.rounds: {rounds[-1]:.12g} of {format_count(whole, 'step')} is "
            f"{format_count(whole, 'step')}: the main training would repeat the last round",
            f"raise {length}, or lower the last round",
        )


def check_share(config: Config) -> None:
    """
    Raises:
        UsageError: scores that nothing depends on, because everything is kept.
    """
    if config.select.fraction < 1 or config.select.race or config.train.reselect_every:
        return
    if (name := algorithm_of(config)) not in RANDOM:
        raise UsageError(
            f"select.algorithm: {name} has nothing to choose with select.fraction: 1, which keeps everything",
            "lower select.fraction, or set select.algorithm: random",
        )


def try_selections(config: Config) -> None:
    """Select among a few synthetic samples, once for each kind of selection in the run, to find wrong options.

    Raises:
        UsageError: unknown algorithm or option, a value out of range, too few models.
    """
    for each in contestants(config):
        _try_selection(each)


def _try_selection(config: Config) -> None:
    settings, scoring = config.select, config.score
    needs = needs_of(config)
    swarm = config.dispatch.jigsaws if scoring.model == "jigsaws" else 1
    models = scoring.runs if scoring.has_own_models else swarm
    recorded = min(scoring.trajectories, _MOST_MODELS)
    counts = [min(models, _MOST_MODELS) if needs.outputs or needs.trajectory else 0]
    if config.train.reselect_every:
        reselection_needs(config)
        counts.append(1)
    for count in counts:
        if count < needs.models and not (needs.trajectory and recorded):
            raise UsageError(
                f"select.algorithm: {settings.algorithm} needs the outputs of {needs.models} models or more, "
                f"but there is only {count}",
                "set train.reselect_every: 0 and score: {model: trajectory, runs: 1, epochs: 10}"
                if config.train.reselect_every
                else f"set score: {{model: trajectory, runs: 1, epochs: 10}}, or {_more(config, needs.models)}",
            )
        samples = _samples(count, epochs=min(scoring.epochs, _MOST_EPOCHS), trajectories=recorded)
        try:
            apply(settings, samples, samples if needs.validation else None, seed=0)
        except (RuntimeError, ValueError, OverflowError) as error:  # an option so extreme that numbers overflow
            why = f"select.options: {settings.algorithm} does not work with {settings.options}: {in_one_line(error)}"
            raise UsageError(why, "choose less extreme values") from error


def _more(config: Config, models: int) -> str:
    """How to get this many models that score."""
    if config.score.model == "jigsaws":
        return f"dispatch.jigsaws: {models}"
    return f"score.runs: {models}" if config.score.has_own_models else "score.model: jigsaws"


#: Beyond this number of models, no option behaves differently.
_MOST_MODELS = 1000
#: The same for the epochs of a trajectory.
_MOST_EPOCHS = 10_000


def _samples(models: int, *, epochs: int, trajectories: int) -> Candidates:
    """24 synthetic samples of two classes."""
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(24) % 2
    outputs = Outputs(
        logits_NC=torch.randn(24, 2, generator=generator), features_ND=torch.randn(24, 4, generator=generator)
    )
    p_NT = torch.rand(24, epochs, generator=generator)
    return Candidates(
        labels_N=labels_N,
        num_classes=2,
        outputs=[outputs] * models,
        trajectories=[Trajectory(p_NT=p_NT, error_NT=1 - p_NT, margin_NT=p_NT - 0.5) for _ in range(trajectories)],
    )
