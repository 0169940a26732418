"""The cost of each share to keep and of each way to choose, and the option that was best in our measurements.

The gains stand in docs/results; a test compares them. Only options that helped in a measurement are advised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lipt.config import Config, override
from lipt.errors import UsageError
from lipt.forecast.sizes import DataSize
from lipt.forecast.time import Forecast
from lipt.forecast.work import Work
from lipt.report.numbers import format_budget, format_bytes, format_number
from lipt.runtime.algorithm import proxy_width
from lipt.runtime.budgets import kept_images, passes_of
from lipt.selection.auto import DUAL_GAINS, THETA_P_GAINS, rule_by_passes, worth_its_cost

Way = Literal["random", "continued", "theta_p", "proxy", "trajectory", "rs2", "all"]

SHARES = (0.01, 0.05, 0.1, 0.2, 0.3)
LABELS: Mapping[Way, str] = {
    "random": "class-balanced random",
    "continued": "random, start: 10 epochs",
    "theta_p": "scores of theta_p (ccs)",
    "proxy": "10 epochs, half width",
    "trajectory": "10 epochs (auto)",
    "rs2": "fresh draws (RS2)",
    "all": "no choice",
}
#: Epochs of the scorers along whose trajectory an option chooses, and of the training on all images from whose weights
#: a training starts.
_EPOCHS = 10
#: The shares around those at which such a start was compared with random weights.
START_SHARES = (0.07, 0.14)
#: Points that fresh draws gained over a fixed random subset of their size, by steps and share.
RS2_GAINS: Mapping[int, Mapping[float, str]] = {
    500: {0.01: "+10.6 ± 2.8", 0.05: "+0.6 ± 0.7", 0.1: "−0.1 ± 1.1", 0.2: "−0.1 ± 1.6", 0.3: "−0.0 ± 0.5"},
    2000: {0.01: "+19.6 ± 2.1", 0.05: "+5.8 ± 1.2", 0.1: "+2.7 ± 1.9", 0.2: "+0.9 ± 1.6", 0.3: "+1.1 ± 1.6"},
    8000: {0.01: "+34.1 ± 1.7", 0.05: "+20.5 ± 1.5", 0.1: "+10.2 ± 0.8", 0.2: "+3.3 ± 1.4", 0.3: "+1.5 ± 1.3"},
}
#: Points above a class-balanced random subset of the same size on CIFAR-10, with the 95 % interval, by way, steps and
#: share. From 25 passes on or more `RULES_BY_PASSES` have those of the way `trajectory`.
GAINS: Mapping[Way, Mapping[int, Mapping[float, str]]] = {
    "random": {},
    "continued": {2000: {0.1: "+15.7 ± 2.0"}},
    "theta_p": THETA_P_GAINS,
    "proxy": {4000: {0.05: "+6.6 ± 3.1"}},
    "trajectory": DUAL_GAINS,
    "rs2": RS2_GAINS,
    "all": {},
}
#: From this share on, theta_p's scores gained little or nothing over a random subset.
THETA_P_PAYS_BELOW = 0.05

#: A subset with fewer images per class, on average, is not advised: we measured 45 or more.
LEAST_PER_CLASS = 10

#: Settings of the scorer that a way sets itself or must not have.
_PLAIN_SCORE = {"proxy": None, "disjoint": False}
_PLAIN_TRAIN = {
    "epoch_fraction": None,
    "draw": "uniform",
    "first_losses": "none",
    "reselect_every": 0,
    "start": "fresh",
    "random_baseline": False,
}


@dataclass(frozen=True, kw_only=True)
class Option:
    """A way to choose at a share, and its cost."""

    way: Way
    share: float
    """Kept, or with `rs2` trained on per epoch."""
    images: int
    """Images that must be kept for the training."""
    stored_bytes: float
    """Of these images."""
    read_bytes: float
    """Images that travel from the store, scoring included."""
    steps: float
    passes: float
    """How often the training sees each kept image."""
    gpu_hours: float
    scoring_hours: float
    """The part of `gpu_hours` before the main training."""
    settings: Mapping[str, Any]
    """The settings of this option, section by section."""

    @property
    def gain(self) -> str:
        """The measured gain; empty if there is none."""
        return self._measured[0]

    @property
    def gain_steps(self) -> int | None:
        """The steps of the training in which it was measured."""
        return self._measured[1]

    @property
    def _measured(self) -> tuple[str, int | None]:
        """Gain and steps, of the number of steps that is nearest among those at which this share was measured."""
        rule = rule_by_passes(self.share, self.passes, _EPOCHS)
        if self.way == "trajectory" and rule:
            return (rule.gain, rule.steps) if self.share == rule.share else ("", None)
        by_steps = GAINS[self.way]
        measured = [steps for steps, gains in by_steps.items() if self.share in gains]
        nearest = min(measured, key=lambda steps: abs(math.log(steps / self.steps)), default=None)
        return (by_steps[nearest][self.share], nearest) if nearest else ("", None)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the user has; None: any amount."""

    storage_bytes: float | None = None
    """Room for the kept images."""
    transfer_bytes: float | None = None
    """Images that the whole run may read from the store."""
    gpu_hours: float | None = None
    """Of the whole run."""

    def hold(self, option: Option) -> bool:
        """Whether an option keeps to all limits."""
        pairs = (
            (option.stored_bytes, self.storage_bytes),
            (option.read_bytes, self.transfer_bytes),
            (option.gpu_hours, self.gpu_hours),
        )
        return all(limit is None or needed <= limit for needed, limit in pairs)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The best option that fits, and why; None if nothing fits."""

    option: Option | None
    why: str


def nearest_measured(steps: float) -> int:
    """The number of steps, among those in which gains were measured, whose ratio to `steps` is nearest to 1."""
    measured = {each for by_steps in GAINS.values() for each in by_steps}
    return min(measured, key=lambda each: abs(math.log(each / steps)))


def settings_of(way: Way, share: float, proxy: int | None = None) -> dict[str, Any]:
    """The settings of a way at a share, section by section.

    Args:
        proxy: the width of the proxy, with the way `proxy`.
    """
    if way in ("rs2", "all"):
        select = {"algorithm": "random", "fraction": 1.0}
        return {"select": select} | ({"train": {"epoch_fraction": share}} if way == "rs2" else {})
    algorithms = {"random": "stratified", "continued": "stratified", "theta_p": "ccs"}
    trajectory: dict[str, Any] = {"model": "trajectory", "runs": 1, "epochs": _EPOCHS}
    scores: dict[Way, dict[str, Any]] = {
        "continued": trajectory,
        "theta_p": {"model": "merged"},
        "proxy": trajectory | {"proxy": {"width": proxy}},
        "trajectory": trajectory,
    }
    settings = {"select": {"algorithm": algorithms.get(way, "auto"), "fraction": share}}
    scored = {"score": scores[way]} if way in scores else {}
    return settings | scored | ({"train": {"start": "continue"}} if way == "continued" else {})


def configured(config: Config, way: Way, share: float) -> Config:
    """The configuration with the settings of a way, without a baseline, a race and other draws."""
    changes = settings_of(way, share, proxy_width(config))
    plain = {"select": {"options": {}, "race": None}, "score": _PLAIN_SCORE, "train": _PLAIN_TRAIN}
    return override(config, {section: values | changes.get(section, {}) for section, values in plain.items()})


def options(
    config: Config,
    data: DataSize,
    predict: Callable[[Config], tuple[Sequence[Work], Sequence[Forecast]]],
    *,
    storage_bytes: float | None,
) -> list[Option]:
    """Every way at every share; also at the share that the storage holds. The last option is to train on all images.

    Args:
        predict: the work and the forecast of a configuration.
        storage_bytes: room for the kept images; None: any.

    Raises:
        UsageError: even the largest share has fewer images than there are classes.
    """
    given = {*SHARES} if storage_bytes is None else {*SHARES, held_share(data, storage_bytes)} - {1.0}
    shares = [share for share in given if round(share * data.candidates) >= data.classes]
    if not shares:
        raise UsageError(
            f"{format_budget(max(given))} of {data.candidates:,} candidates are fewer than {data.classes} classes",
            "with so few images, train on all of them",
        )
    ways = [way for way in LABELS if way != "all" and (way != "proxy" or proxy_width(config))]
    parts = [_option(config, data, predict, way, share) for share in sorted(shares) for way in ways]
    return [*parts, _option(config, data, predict, "all", 1.0)]


def held_share(data: DataSize, storage_bytes: float) -> float:
    """The share of the candidates that the storage holds, rounded down to two digits; at most 1."""
    share = storage_bytes / (data.candidates * data.span_bytes)
    if share >= 1:
        return 1.0
    unit = 10.0 ** (math.floor(math.log10(share)) - 1)
    return round(math.floor(share / unit + 1e-9) * unit, 12)


def _option(
    config: Config,
    data: DataSize,
    predict: Callable[[Config], tuple[Sequence[Work], Sequence[Forecast]]],
    way: Way,
    share: float,
) -> Option:
    own, settings = configured(config, way, share), settings_of(way, share, proxy_width(config))
    if "score" in settings:  # what the configuration sets otherwise
        changed = {key: value for key, value in _PLAIN_SCORE.items() if getattr(config.score, key) != value}
        settings["score"] = changed | settings["score"]
    works, stages = predict(own)
    (training,) = (work for work in works if work.stage == "train")
    return Option(
        way=way,
        share=share,
        images=kept_images(own, data.candidates),
        stored_bytes=own.select.fraction * data.candidates * data.span_bytes,
        read_bytes=sum(stage.read["data"] for stage in stages),
        steps=training.steps,
        passes=passes_of(own, data.candidates),
        settings=settings,
        gpu_hours=sum(stage.gpu_hours for stage in stages),
        scoring_hours=sum(stage.gpu_hours for stage in stages if stage.stage not in ("train", "evaluate")),
    )


def advise(found: Sequence[Option], limits: Limits, classes: int) -> Advice:
    """The option to take; ten epochs on all images only where they were worth their cost.

    None without limits, and none that keeps fewer than `LEAST_PER_CLASS` images per class.
    """
    if limits == Limits():
        return Advice(option=None, why="give what you have: --storage GB, --transfer GB, --gpu-hours H")
    fits = [each for each in found if limits.hold(each)]
    if not fits:
        least = min(found, key=lambda each: (each.stored_bytes, each.read_bytes, each.gpu_hours))
        need = (
            f"{format_bytes(least.stored_bytes)} of storage, {format_bytes(least.read_bytes)} of transfer and "
            f"{format_number(least.gpu_hours)} GPU hours"
        )
        return Advice(option=None, why=f"nothing fits, the smallest option needs {need}")
    if whole := [each for each in fits if each.way == "all"]:
        return Advice(option=whole[0], why="all images fit, and the time to train on all of them")
    if drawn := [each for each in fits if each.way == "rs2"]:
        why = "all images fit; fresh draws need no scores, and in our measurements were worth as much or more per FLOP"
        return Advice(option=max(drawn, key=lambda each: each.share), why=why)
    largest = max(each.share for each in fits)
    images = max(each.images for each in fits)
    if images < LEAST_PER_CLASS * classes:
        few = f"{format_budget(largest)} ({images:,} images for {classes:,} classes) is the largest share that fits"
        return Advice(
            option=None,
            why=f"{few}; fewer than {LEAST_PER_CLASS} images per class are too few: raise your limits, or train on all "
            "images",
        )
    ways = {each.way: each for each in fits if each.share == largest}
    passes = next(each.passes for each in ways.values())
    if "continued" in ways and START_SHARES[0] <= largest <= START_SHARES[1]:
        option, (measured,) = ways["continued"], GAINS["continued"]
        why = "the largest share that fits; a start from the weights of ten epochs on all images gained most"
        if max(option.steps, measured) > 2 * min(option.steps, measured):
            why += f" (measured in {measured:,} steps; this one has {option.steps:,.0f})"
        return Advice(option=option, why=why)
    if worth := worth_its_cost(largest, passes, ways):
        option = ways[worth.scorer]
        why = (
            f"the largest share that fits; the training sees each image {passes:,.0f} times, and in such a training "
            "these scores were worth more than their FLOPs as more steps"
        )
        if option.steps < worth.steps:
            why += f" (measured in {worth.steps:,} steps; this one has {option.steps:,.0f})"
        return Advice(option=option, why=why)
    if largest >= THETA_P_PAYS_BELOW:
        why = "the largest share that fits; scores of theta_p gained 8 points at 1 %, and little or nothing from 5 % on"
        return Advice(option=ways["random"], why=why)
    if "theta_p" in ways:
        why = "the largest share that fits; at 1 % scores of theta_p gained 8 points"
        return Advice(option=ways["theta_p"], why=why)
    return Advice(option=ways["random"], why="the largest share that fits; scores of theta_p exceed your limits")
