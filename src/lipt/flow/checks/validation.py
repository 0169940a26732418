"""Validation before a run: `run`, `compare`, `submit`, `doctor` and every dry run share these checks.

They take seconds and find errors that would otherwise stop a late stage. The network is built without memory for its
weights (a user's own model with it), and the algorithm selects among a few synthetic samples.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from lipt.config import Config, Model, override
from lipt.data.shards import check_shards
from lipt.data.sources import check_format
from lipt.errors import LiptError, UsageError, all_in_one, did_you_mean
from lipt.flow.checks.facts import Facts
from lipt.flow.checks.model import check_model, check_proxy, lonely_images
from lipt.flow.checks.raptr import schedule_problems
from lipt.flow.checks.selection import check_names, check_race, check_rounds, check_share, try_selections
from lipt.flow.checks.sharing import sharing_problems
from lipt.flow.dag import has_swarm, trains_models
from lipt.flow.variants import Variant, baseline_of, left_out, variants
from lipt.metrics import check_metrics
from lipt.report.numbers import format_count
from lipt.runtime.algorithm import check_trajectory
from lipt.runtime.budgets import epochs_of, kept_images
from lipt.runtime.context import Context
from lipt.runtime.dataset import listing
from lipt.training.networks import check_model_name

Check = Callable[[], Any]


def check_run(ctx: Context) -> None:
    """Check a configuration and its random baseline.

    Raises:
        LiptError: names all problems.
    """
    facts = _check(ctx)
    if baseline := baseline_of(ctx.config):
        raise_all(_variant_problems(ctx, f"the baseline, {baseline.label}", baseline.changes, facts))


def check_comparison(ctx: Context) -> list[Variant]:
    """Check the variants of a comparison; returns them.

    Variants that would repeat another row are left out, with a message. If `compare.variants` is empty, so are those
    that do not fit the configuration.

    Raises:
        LiptError: names all problems of the configuration and all unknown names in `compare.variants`; without such
            problems, those of its variants.
    """
    if _error_of(lambda: variants(ctx.config)):  # they depend on the algorithm, which is wrong
        _check(ctx)  # tells it with all other problems
    known, repeated = variants(ctx.config), left_out(ctx.config)
    names = ctx.config.compare.variants or [*known, *repeated]
    for name in (name for name in names if name in repeated):  # also if named: a sweep has the same rows at all points
        ctx.reporter.alert(f"left out: variant {name}: {repeated[name]}")
    names = [name for name in names if name not in repeated]
    facts = _check(ctx, misnamed(ctx.config))
    wrong = {name: _variant_problems(ctx, f"variant {name}", known[name].changes, facts) for name in names}
    if ctx.config.compare.variants:
        raise_all(problem for found in wrong.values() for problem in found)
    for found in filter(None, wrong.values()):
        ctx.reporter.alert(f"left out: {found[0].message}")
    return [known[name] for name in names if not wrong[name]]


def misnamed(config: Config) -> list[UsageError]:
    """What is wrong with the names in `compare.variants`."""
    named, known = config.compare.variants, {*variants(config), *left_out(config)}
    found = [
        UsageError(f"compare.variants: no variant {name!r}", did_you_mean(name, sorted(known)))
        for name in named
        if name not in known
    ]
    if named and "lipt" not in named:
        found.append(UsageError("compare.variants: lipt is missing", "add it: the verdict is about it"))
    return found


def check_from_afar(config: Config) -> list[str]:
    """Check a configuration on a machine that will not run it; returns what could not be checked, and why.

    Raises:
        LiptError: names all problems.
    """
    unknown = []
    facts = None
    try:
        facts = Facts.of(config.data)
    except LiptError as error:
        unknown.append(f"the data set: {error.message}")
    found = problems(config, facts, pods=config.train.nodes)
    for network, problem in _network_problems(config, partial(check_model, config, facts), facts).items():
        if ":" in network:  # it may be installed only in the image
            unknown.append(f"the model: {problem.message}")
        else:
            found.append(problem)
    raise_all(found)
    return unknown


def problems(config: Config, facts: Facts | None, *, pods: int = 1) -> list[LiptError]:
    """All problems of a configuration except its model's. Without `facts` the data set is not checked.

    Args:
        pods: the number that shares each training: `train.nodes` on a cluster.
    """
    found = [*_settings_problems(config), *_padding_problems(config, facts)]
    known = _error_of(lambda: check_names(config)) is None  # else what the selection needs is unknown
    return [*found, *(_data_problems(config, facts, pods) if facts and known else [])]


def raise_all(problems: Iterable[LiptError]) -> None:
    """Raise all problems as one error, each message once. The first one determines the exit code."""
    if found := list({error.message: error for error in problems}.values()):
        raise all_in_one(found)


def _settings_problems(config: Config) -> Iterator[LiptError]:
    """Problems that do not depend on the data: the algorithm, its options and needs."""
    if (error := _error_of(lambda: check_format(config.data.format))) is not None:
        yield error
    for check in (
        lambda: check_names(config),
        lambda: check_trajectory(config),
        lambda: check_race(config),
        lambda: try_selections(config),
        lambda: check_share(config),
    ):
        if (error := _error_of(check)) is not None:
            yield error
            return  # later checks would report the same problem again


def _padding_problems(config: Config, facts: Facts | None) -> Iterator[LiptError]:
    """A shift by a whole image leaves black pixels only, and training would not fail on them."""
    native = min(facts.size) if facts and facts.size and not config.data.image_size else None
    sides = [side for each in (config, config.of_scorer()) if (side := each.data.image_size or native)]
    padding = config.data.crop_padding
    if config.data.crop == "pad" and sides and padding >= min(sides):
        yield UsageError(
            f"data.crop_padding ({padding}) is not below the {min(sides)} pixels of an image: "
            "training would see black images",
            f"--set data.crop_padding={min(sides) // 8} is usual for this size",
        )


def _data_problems(config: Config, facts: Facts, pods: int) -> Iterator[LiptError]:
    """Problems with the data set: too few images for the shards or the subset, too few classes."""
    if facts.classes < 2:
        yield UsageError("the data set has one class; training needs two or more", "add images of another class")
    try:
        candidates = facts.candidates(config.data)
    except LiptError as error:
        yield error
        return
    held_out = facts.train - candidates
    if config.select.race and held_out < facts.classes:
        yield UsageError(
            f"select.race: {format_count(held_out, 'validation image')} for {facts.classes} classes cannot rank "
            "selections",
            "raise data.validation_fraction",
        )
    if problem := _error_of(lambda: check_rounds(config, candidates)):
        yield problem
    scoring, batch_size = config.score, config.initialise.batch_size
    if trains_models(config) and scoring.disjoint and candidates < scoring.runs * batch_size:
        yield UsageError(
            f"score.disjoint: {scoring.runs} models with a batch of {batch_size} candidates each need "
            f"{scoring.runs * batch_size:,} candidates, the data set has {candidates:,}{facts.without(config.data)}",
            "lower score.runs or initialise.batch_size",
        )
    dispatch = config.dispatch
    if has_swarm(config):
        size = dispatch.batches * dispatch.batch_size
        if problem := _error_of(lambda: check_shards(candidates, count=dispatch.jigsaws, size=size)):
            fits = candidates // (dispatch.jigsaws * dispatch.batches)
            remedy = f"--set dispatch.batch_size={fits} fits; or lower dispatch.jigsaws or dispatch.batches"
            yield UsageError(f"{problem.message}{facts.without(config.data)}", remedy if fits > 1 else problem.remedy)
    yield from _share_problems(config, candidates, facts.classes)
    yield from _reselection_problems(config, candidates)
    yield from schedule_problems(config, candidates)
    yield from sharing_problems(config, candidates, pods)


def _share_problems(config: Config, candidates: int, classes: int) -> Iterator[UsageError]:
    """Shares of the candidates that are no image, or too few for the classes."""
    for name, share, least in (
        ("select.fraction", config.select.fraction, classes),
        ("train.epoch_fraction", config.train.epoch_fraction, 1),
    ):
        if share is not None and share < 1 and round(share * candidates) < least:
            yield UsageError(
                f"{name}: {share:g} of {candidates:,} candidates are {format_count(round(share * candidates), 'image')}"
                + (f" for {classes} classes" if least > 1 else ""),
                f"raise {name} to {_rounded_up(least / candidates)} or more"
                if least <= candidates
                else "lower data.validation_fraction, or add images: there are fewer candidates than classes",
            )


def _reselection_problems(config: Config, candidates: int) -> Iterator[UsageError]:
    """A training that ends before it would select again."""
    settings = config.train
    if settings.steps is not None and settings.reselect_every:
        epochs = epochs_of(settings, candidates, kept_images(config, candidates))
        if settings.reselect_every >= epochs:
            yield UsageError(
                f"train.reselect_every ({settings.reselect_every}) is not below the epochs that train.steps "
                f"({settings.steps:,}) take, {epochs:,}: it would never select again",
                "lower train.reselect_every, or set it to 0",
            )


def _network_problems(config: Config, check: Check, facts: Facts | None) -> dict[str, LiptError]:
    """Network -> its problem. A proxy of the same network is checked if that has none.

    Args:
        check: of the network of the main training.
    """
    found = {config.model.name: _error_of(check)}
    scorer = config.of_scorer().model.name
    if config.score.proxy and not found.get(scorer):
        found[scorer] = _error_of(partial(check_proxy, config, facts))
    return {network: problem for network, problem in found.items() if problem}


def _check(ctx: Context, others: Iterable[LiptError] = ()) -> Facts:
    """Check the data, and whatever does not depend on them also if they cannot be read.

    Args:
        others: further problems that are told with those that are found.
    """
    config, found = ctx.config, list[Facts]()
    check_metrics()
    unreadable = _error_of(lambda: found.append(Facts.of(config.data, partial(listing, ctx))))
    facts = found[0] if found else None
    before = [unreadable, _error_of(lambda: ctx.device)]
    before += _network_problems(config, _model_check(config, facts), facts).values()
    raise_all([*filter(None, before), *problems(config, facts, pods=_pods(ctx)), *others])
    return found[0]


def _model_check(config: Config, facts: Facts | None) -> Check:
    """The check of the network; only of its name where nothing else can be wrong.

    Building a network of torchvision takes a second, for its import. A run that finds all artifacts finished does not
    need it.
    """
    settings = config.model
    is_default = settings == Model(name=settings.name) and settings.name.startswith("torchvision.")
    is_default &= ":" not in settings.name  # a function of torchvision, given as a user's own
    is_default &= not (config.train.raptr or config.initialise.raptr)
    is_default &= facts is None or not any(lonely_images(config, facts))
    return partial(check_model_name, settings.name) if is_default else partial(check_model, config, facts)


def _pods(ctx: Context) -> int:
    """The number of pods that share each training."""
    return ctx.config.train.nodes if ctx.pods is not None else 1


def _variant_problems(ctx: Context, name: str, changes: dict[str, Any], facts: Facts) -> list[LiptError]:
    """The problems of a variant; each message starts with `name`."""
    try:
        changed = override(ctx.config, changes)
        found = problems(changed, facts, pods=_pods(ctx))
        # The network is that of the run, which is checked. Only its batches can be others.
        if any(lonely_images(changed, facts)) and (error := _error_of(lambda: check_model(changed, facts))):
            found.append(error)
    except UsageError as error:
        found = [error]
    return [type(problem)(f"{name}: {problem.message}", problem.remedy) for problem in found]


def _error_of(check: Check) -> LiptError | None:
    try:
        check()
    except LiptError as error:
        return error
    return None


def _rounded_up(share: float) -> str:
    """`share` with two digits, rounded up, but not above 1."""
    text = f"{share:.1e}"
    return f"{float(text) if float(text) >= share else min(float(f'{share * 1.1:.1e}'), 1):g}"
