"""The report's first section: what was done, in words that need no knowledge of the code."""

from collections.abc import Mapping, Sequence
from typing import Any

from lipt.config import Config, Model
from lipt.flow.dag import has_swarm, needs_models
from lipt.flow.outcome import Outcome
from lipt.report.names import RANDOM
from lipt.report.numbers import format_budget, format_bytes, format_count, format_percent
from lipt.report.side_by_side import CHOSEN_BY_LIPT, SAME_BESIDE
from lipt.runtime.algorithm import scoring_needs
from lipt.runtime.budgets import epoch_budget
from lipt.selection.auto import AUTO
from lipt.selection.describe import describe


def done_section(
    outcome: Outcome, others: Sequence[str], seeds: Sequence[int], machines: Mapping[str, str]
) -> dict[str, str]:
    """Topic -> sentences.

    Args:
        others: the labels of the methods that the run is compared with.
        seeds: of the run.
        machines: label of each row -> the one that trained; empty if unknown.
    """
    text = {"Question": _question(outcome), "Data": _data(outcome), "Network": _network(outcome)}
    of_seed = f"With seed {outcome.config.seed}: " if len(seeds) > 1 and outcome.race else ""  # each has a race
    text |= {"Choice": f"{of_seed}{_choice(outcome)}", "Training": _training(outcome)}
    if others:
        text["Compared with"] = f"{'; '.join(others)}. {SAME_BESIDE}"
        if any(label.startswith("Class-balanced random") for label in others):
            text["Compared with"] += " Class-balanced random: as many images, drawn at random in each class."
    text["Seeds"] = f"{format_count(len(seeds), 'seed')}: {', '.join(map(str, seeds))}."
    if len(seeds) > 1:
        text["Seeds"] += " Everything was repeated with each seed: other first weights, other draws, another order."
    if told := _machines(machines):
        text["Machine"] = told
    return text


def _machines(machines: Mapping[str, str]) -> str:
    """Where the main trainings ran; each machine with its rows if there are several."""
    labels: dict[str, list[str]] = {}
    for label, machine in machines.items():
        if machine:
            labels.setdefault(machine, []).append(label)
    if len(labels) > 1:
        told = "; ".join(f"{machine} ({'; '.join(of)})" for machine, of in labels.items())
        return f"The main trainings ran on: {told}."
    return "".join(f"The main training ran on: {machine}." for machine in labels)


def _question(outcome: Outcome) -> str:
    subset, settings = outcome.subset.summary, outcome.config.train
    per_epoch = (
        f"each epoch trains on a fresh {format_budget(settings.epoch_fraction)}" if settings.epoch_fraction else ""
    )
    if subset["count"] == subset["candidates"]:
        each = f", and {per_epoch} of them" if per_epoch else ""
        return f"How good does the network get if it may train on all images{each}?"
    kept = f"If only {format_budget(outcome.config.select.fraction)} of the training images are kept"
    if str(subset["algorithm"]) in RANDOM and not outcome.race:
        each = f" and {per_epoch} of all images" if per_epoch else ""
        return f"{kept}, drawn at random{',' if each else ''}{each}: how good does the network get?"
    return f"{kept}: how good does the network get, and does the choice matter?"


def _data(outcome: Outcome) -> str:
    data, candidates = outcome.prepared.dataset.summary, int(outcome.subset.summary["candidates"])
    train, test = int(data["train"]), int(data["test"])
    return (
        f"{data['name']}: {train + test:,} images of {len(data['classes'])} classes. {candidates:,} are candidates, "
        f"from which to choose. {outcome.num_validation_images:,} (the validation images) only help to choose. "
        f"{test:,} (the test images) only measure the accuracy at the end."
    )


def _network(outcome: Outcome) -> str:
    weights = sum(file.num_bytes for file in outcome.trained.model.files.values())
    return f"{_named(outcome.config.model)}; its weights take {format_bytes(weights)}."


def _named(model: Model) -> str:
    return f"{model.name} of width {model.width}" if model.width else model.name


def _choice(outcome: Outcome) -> str:
    config, subset = outcome.config, outcome.subset.summary
    count, candidates = int(subset["count"]), int(subset["candidates"])
    if count == candidates:
        return f"Nothing is left out: the training may use all {count:,} candidates."
    name = str(subset["algorithm"])
    return (
        f"{count:,} of the {candidates:,} candidates ({format_budget(config.select.fraction)}), by the algorithm "
        f"{name}. {_rule(name, subset.get('options', {}), count / candidates)}{_how_chosen(outcome)} {_model(outcome)}"
    )


#: What an algorithm does, for a reader who does not know it.
_RULES = {
    "aum": "It keeps the images that a training tells apart from other classes worst.",
    "craig": "It keeps images whose gradients stand for those of many others, with weights.",
    "dual": "It draws images at random, more often those on which the predictions vary. The smaller the share that is "
    "kept, the easier the images.",
    "dyn_unc": "It keeps the images on which the predictions of a training vary most.",
    "el2n": "It keeps the images with the largest errors.",
    "facility_location": "It keeps images that stand for many similar ones.",
    "forgetting": "It keeps the images that a training never learned, then those that it forgot most often.",
    "glister": "It keeps the images that promise to lower the loss on the validation images most.",
    "gradmatch": "It keeps images, with weights, whose gradients add up to the gradient of all.",
    "grand": "It keeps the images with the largest gradients.",
    "graph_cut": "It keeps images that resemble many others, but not each other.",
    "herding": "It keeps images whose mean stays close to the mean of all.",
    "k_center": "It keeps images that are far from each other.",
    "moderate": "It keeps images at the median distance from the centre of their class.",
    "random": "It draws at random, whatever the class.",
    "stratified": "It draws at random within each class.",
    "uncertainty": "It keeps the images of which the model is least certain.",
}


def _rule(name: str, options: Mapping[str, Any], kept: float) -> str:
    """What the algorithm does, in plain words where there are some.

    Args:
        options: of the algorithm, as it ran; empty in an artifact of an older LiPT.
        kept: share of the candidates.
    """
    if name == "ccs":
        dropped = min(options.get("beta", 0.0), 1 - kept)
        first = f"leaves out the hardest {format_percent(dropped, 0)}, then " if dropped >= 0.005 else ""
        return f"It {first}picks evenly from easy to hard images."
    if name == "dual" and options.get("sampling") == "top":
        return "It keeps the images on which the predictions vary most, if their label is improbable."
    return _RULES.get(name) or f"Its rule: {describe(name).picks.replace('`', '')}."


def _how_chosen(outcome: Outcome) -> str:
    """Who chose the algorithm, if not the configuration."""
    config = outcome.config
    if outcome.race:
        return " It won a race against other algorithms, on the validation images."
    return f" {CHOSEN_BY_LIPT} ({AUTO})." if config.select.algorithm == AUTO else ""


def _model(outcome: Outcome) -> str:
    """The model that the algorithm looks at."""
    config = outcome.config
    if not needs_models(config):
        return "It needs no model."
    epochs = "1 epoch" if (n := config.score.epochs) == 1 else f"{n} epochs"
    lost = f"{len(outcome.prepared.initial)} of " if outcome.prepared.failures else ""
    own = lost + format_count(config.score.runs, "training")
    proxy = _proxy(config)
    apart = ", each on its own part of the candidates," if config.score.disjoint else ""
    if not config.score.has_own_models:
        return f"{_pretrained(config)}{proxy}"
    if scoring_needs(config).trajectory:
        return f"It reads what {own} of {epochs}{apart} said about each candidate, epoch by epoch.{proxy}"
    return f"It looks at the outputs of models from {own} of {epochs}.{proxy}"


def _proxy(config: Config) -> str:
    """The network that chose, if it is not the trained one."""
    scorer, changes = config.of_scorer(), list[str]()
    if scorer.model.name != config.model.name:
        changes.append(_named(scorer.model))
    elif scorer.model != config.model:
        changes.append(f"width {scorer.model.width}")
    if scorer.data != config.data:
        changes.append(f"images of {scorer.data.image_size} pixels")
    return f" Another network (a proxy) stood in for the trained one: {' and '.join(changes)}." if changes else ""


def _pretrained(config: Config) -> str:
    """How theta_*, the swarm and theta_p came about."""
    star = f"one model was trained for {format_count(config.initialise.epochs, 'epoch')} on all candidates (theta_*)"
    if not has_swarm(config):
        return f"It looks at the outputs of a model: {star}."
    swarm = f"{star}, then {config.dispatch.jigsaws} copies of it, each on a small separate part of the data (jigsaws)"
    if config.score.model == "jigsaws":
        return f"It looks at the outputs of several models: {swarm}."
    return f"It looks at the outputs of a model: {swarm}, and merging the copies gave theta_p."


#: How draws that losses lead differ from uniform ones.
_LED = {
    "uniform": "",
    "infobatch": " An image with a loss below the mean is left out with a probability of {prune_probability:g}.",
    "ordered": " More images are drawn, and those with the highest losses are trained on.",
}


def _training(outcome: Outcome) -> str:
    settings, summary, subset = outcome.config.train, outcome.trained.model.summary, outcome.subset.summary
    start = "the pre-trained weights" if settings.start == "continue" else "random weights"
    text = (
        f"From {start}: {int(summary['steps']):,} optimiser steps of at most {settings.batch_size} images, "
        f"{int(summary['images']):,} images seen, in {format_count(len(summary['losses']), 'epoch')}."
    )
    if drawn := epoch_budget(settings, int(subset["candidates"])):
        text += f" Each epoch draws {min(drawn, subset['count']):,} of the {subset['count']:,} kept images afresh."
    text += _LED[settings.draw].format(prune_probability=settings.prune_probability)
    if every := settings.reselect_every:
        text += f" After every {format_count(every, 'epoch')} it chose again among all candidates, so all must be kept."
    return text + _raptr(outcome)


def _raptr(outcome: Outcome) -> str:
    """Which share of the blocks ran, and what that saved."""
    settings, saved = outcome.config.train.raptr, outcome.trained.model.summary.get("raptr_saved")
    if settings is None:
        return ""
    shares = ", ".join(map(format_budget, settings.keep))
    text = (
        f" RaPTr: each step ran a random part of the blocks that may be skipped: {shares}, in stages of equal length."
    )
    if saved is not None:  # not of a training by an earlier version
        text += f" That saved {format_percent(saved, 1)} of the FLOPs of the training."
    return f"{text} All methods of this run trained like this."
