"""The configured selection algorithm and its requirements."""

import math
from dataclasses import replace

from lipt.config import Config, Contestant, Select
from lipt.errors import UsageError
from lipt.report.names import RANDOM
from lipt.runtime.budgets import kept_images, passes_of, steps_of
from lipt.selection import Requirements, requirements, resolve
from lipt.selection.auto import AUTO, auto_reason, continued_reason, other_network_reason, rule_by_passes
from lipt.selection.measured import CONTINUED_SHARES, RuleByPasses
from lipt.selection.needs import Size
from lipt.selection.options import bind_options, keywords
from lipt.selection.registry import lookup, names
from lipt.training.networks import default_width

#: The algorithm `stratified` as reports write it.
CLASS_BALANCED = "Class-balanced random"


def algorithm_of(config: Config) -> str:
    """The algorithm that runs: the configured one, or the one that `auto` chooses.

    With a trajectory, `auto` can also depend on the number of candidates (`selecting`). Then this is its choice
    without `rule_by_passes`, and the subset's artifact names the algorithm that ran.
    """
    settings = selecting(config)
    return resolve(settings.algorithm, settings.fraction, balanced=settings.balanced, epochs=_recorded(config))


def running(config: Config, candidates: int) -> Select:
    """The section `select` as it runs: with the algorithm that `auto` takes, and without settings that have no effect.
    Configurations that choose the same subset have the same section, and so share the subset and its training.

    Args:
        candidates: as of `selecting`.
    """
    settings = selecting(config, candidates)
    name = resolve(settings.algorithm, settings.fraction, balanced=settings.balanced, epochs=_recorded(config))
    idle = ["balanced"] if name in RANDOM else []  # the one never balances, the other always does
    return settings.model_copy(update={"algorithm": name}).with_defaults(*idle)


def own_memory(config: Config, group: int, *, models: int, classes: int, features: int) -> int:
    """Bytes that the algorithm takes itself; the outputs and a copy of them are not among these.

    Args:
        group: number of candidates that it compares with each other.
        models: that score; `features` is the number of each.

    Raises:
        UsageError: an unknown option of the algorithm, or a value of the wrong type.
    """
    name, options = algorithm_of(config), config.select.options
    found = lookup(name)
    size = Size(group, math.ceil(config.select.fraction * group), models, classes, features)
    return found.memory(size, **bind_options(name, found.function, options))


def selecting(config: Config, candidates: int = 0) -> Select:
    """The section `select`; with another rule in place of `auto` where that gained more than `dual`: docs/results.

    That is the rule of `rule_by_passes`. Along the trajectory of another network than the trained one it is `ccs`; if
    the training starts from the trajectory's network, a random subset.

    Args:
        candidates: their number; 0: unknown, then `rule_by_passes` does not hold. In a race it never does, since the
            race itself can find out.
    """
    settings = config.select
    if settings.algorithm != AUTO or _auto(config) != "dual":
        return settings
    if _starts_from_scorer(config):
        return settings.model_copy(update={"algorithm": "stratified" if settings.balanced else "random", "options": {}})
    by_passes = _by_passes(config, candidates)
    rule = by_passes.algorithm if by_passes else "ccs" if _of_another_network(config) else AUTO
    if rule == AUTO:
        return settings
    options = {"score": "el2n"} if rule == "ccs" else {}
    return settings.model_copy(update={"algorithm": rule, "options": options})


def _auto(config: Config) -> str:
    """What `auto` chooses here along the trajectory of the trained network, without `rule_by_passes`."""
    settings = config.select
    return resolve(AUTO, settings.fraction, balanced=settings.balanced, epochs=_recorded(config))


def _by_passes(config: Config, candidates: int) -> RuleByPasses | None:
    """`rule_by_passes`, if it was measured with this scorer; `candidates` as of `selecting`."""
    if _of_another_network(config):
        return None
    passes = passes_of(config, candidates) if candidates and not config.select.race else 0.0
    return rule_by_passes(config.select.fraction, passes, _recorded(config))


def _starts_from_scorer(config: Config) -> bool:
    """Whether the training starts from the trajectory's network, at a share where no choice gained from this start. In
    a race it does not count, since the race itself can find out."""
    least, most = CONTINUED_SHARES
    starts = config.train.start == "continue" and not (config.select.race or _of_another_network(config))
    return starts and least <= config.select.fraction <= most


def _of_another_network(config: Config) -> bool:
    """Whether the trajectory is not that of the trained network on all candidates."""
    scorer = config.of_scorer()
    # A proxy may be equal to the trained network. The address of its selection is then that without a proxy.
    return config.score.disjoint or (scorer.model, scorer.data) != (config.model, config.data)


def reason_of_auto(config: Config, candidates: int) -> str:
    """Why `auto` chooses this algorithm from that many candidates, with the measured gain, and what gained more."""
    settings, proxy = config.select, proxy_width(config) is not None
    passes, steps = passes_of(config, candidates), steps_of(config.train, candidates, kept_images(config, candidates))
    if config.train.start == "continue":
        return continued_reason(algorithm_of(config))
    if _auto(config) == "dual" and _of_another_network(config):
        return other_network_reason()
    return auto_reason(
        settings.fraction,
        balanced=settings.balanced,
        epochs=_recorded(config),
        passes=passes,
        steps=steps,
        proxy=proxy,
    )


def proxy_width(config: Config) -> int | None:
    """Half the width of the network; None if its width is fixed, or if no proxy of such a network was measured."""
    model = config.model
    width = None if model.name == "vit_small" else default_width(model.name)
    return (model.width or width) // 2 if width and model.width != 1 else None


def algorithm_label(config: Config, ran: str | None = None) -> str:
    """The algorithm as reports write it: `herding`, `auto (ccs)` if `auto` chose it, or `Class-balanced random`.
    With a race it is the winner.

    Args:
        ran: the algorithm that ran; None: as `algorithm_of`.
    """
    configured, runs = config.select.algorithm, ran or algorithm_of(config)
    name = CLASS_BALANCED if runs == "stratified" else runs
    return name if runs == configured or config.select.race else f"{configured} ({name.lower()})"


def label_with_options(config: Config) -> str:
    """The algorithm with its options, such as `ccs (score: aum)`."""
    options = ", ".join(f"{name}: {value}" for name, value in config.select.options.items())
    return algorithm_label(config) + (f" ({options})" if options else "")


def needs_of(config: Config) -> Requirements:
    """The outputs and other inputs that the algorithm needs."""
    settings = selecting(config)
    return requirements(settings.algorithm, settings.fraction, settings.options, epochs=_recorded(config))


def reselection_needs(config: Config) -> Requirements:
    """The requirements of a selection in the course of the training (`train.reselect_every`).

    Raises:
        UsageError: the algorithm reads trajectories alone, and the model in training has none yet.
    """
    needs = needs_of(config)
    if not needs.outputs and needs.trajectory:
        algorithm = config.select.algorithm
        raise UsageError(f"train.reselect_every: {algorithm} cannot select again during training", "set it to 0")
    return needs


def _recorded(config: Config) -> int:
    """Epochs of the trajectories that the scoring records."""
    return config.score.epochs if config.score.model == "trajectory" else 0


def contestants(config: Config) -> list[Config]:
    """The configurations that race, class-balanced random first; without a race only the configuration itself."""
    race = config.select.race
    if race is None:
        return [config]
    named = [_resolved(config, each) if each.algorithm == AUTO else each for each in race.contestants]
    taking_part = [Contestant(algorithm="stratified"), _resolved(config, config.select), *named]
    in_full = [_with_defaults(each) for each in taking_part]
    return [
        config.model_copy(update={"select": config.select.model_copy(update={**dict(each), "race": None})})
        for number, each in enumerate(taking_part)
        if in_full[number] not in in_full[:number]
    ]


def _resolved(config: Config, each: Contestant | Select) -> Contestant:
    """A selection that races, with the algorithm that `auto` chooses here in its place.

    It is resolved while the configuration still has its race: without one, `selecting` has other rules.

    Raises:
        UsageError: `auto` with options.
    """
    if each.algorithm == AUTO and each.options:
        raise UsageError("select.race: algorithm auto takes no options", "name the algorithm to set its options")
    chosen = {"algorithm": each.algorithm, "options": each.options}
    own = config.model_copy(update={"select": config.select.model_copy(update=chosen)})
    return Contestant(algorithm=algorithm_of(own), options=selecting(own).options)


def _with_defaults(contestant: Contestant) -> Contestant:
    """The same selection with all options written out, so that it is told from others only if it differs."""
    if contestant.algorithm not in names():
        return contestant
    defaults, _ = keywords(lookup(contestant.algorithm).function)
    return contestant.model_copy(update={"options": defaults | contestant.options})


def field_sizes(config: Config) -> list[int]:
    """The number of contestants in each round of the race; empty without a race."""
    sizes, left = [], len(contestants(config))
    for _ in config.select.race.rounds if config.select.race else []:
        sizes.append(left)
        left = (left + 1) // 2
    return sizes


def scoring_needs(config: Config) -> Requirements:
    """The inputs that the algorithm reads from the scoring of a run: a trajectory, if it can and one is recorded; else
    outputs. With a race, the inputs of all contestants together.
    """
    each = [_scoring_needs(one) for one in contestants(config)]
    return Requirements(
        models=max(needs.models for needs in each),
        passes=min((needs.passes for needs in each if needs.outputs), default=0),
        **{
            name: any(getattr(needs, name) for needs in each)
            for name in ("logits", "features", "trajectory", "validation")
        },
    )


def _scoring_needs(config: Config) -> Requirements:
    needs = needs_of(config)
    if needs.trajectory and config.score.model == "trajectory":
        return Requirements(trajectory=True)
    return replace(needs, trajectory=False)


def check_trajectory(config: Config) -> None:
    """
    Raises:
        UsageError: an algorithm reads a trajectory, but the configuration records none, or too few epochs.
    """
    for each in contestants(config):
        needs, scoring, name = needs_of(each), each.score, each.select.algorithm
        if not needs.trajectory:
            continue
        if not needs.outputs and scoring.model != "trajectory":
            raise UsageError(
                f"select.algorithm: {name} needs scores from each epoch of a training (a trajectory); "
                f"score.model: {scoring.model} does not record it",
                "set score.model: trajectory, score.runs: 1 and score.epochs: 10",
            )
        if scoring.model == "trajectory" and not scoring.epochs:
            raise UsageError("score.model: trajectory needs score.epochs: 1 or more", "set score.epochs: 10")
