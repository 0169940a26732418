"""The cost of each share to keep and of each way to choose, with the gain that we measured.

The gains stand in docs/results; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lipt.config import Config, Merge, override
from lipt.errors import UsageError
from lipt.forecast.sizes import DataSize
from lipt.forecast.time import Forecast
from lipt.forecast.work import Work
from lipt.report.numbers import format_budget
from lipt.runtime.algorithm import algorithm_of, proxy_width
from lipt.runtime.budgets import kept_images, passes_of
from lipt.selection.auto import rule_by_passes
from lipt.selection.measured import DUAL_GAINS, MEASURED_EPOCHS, THETA_P_GAINS

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
#: Points that fresh draws gained over a fixed random subset of their size, by steps and share.
RS2_GAINS: Mapping[int, Mapping[float, str]] = {
    500: {0.01: "+10.6 ± 2.8", 0.05: "+0.6 ± 0.7", 0.1: "−0.1 ± 1.1", 0.2: "−0.1 ± 1.6", 0.3: "−0.0 ± 0.5"},
    2000: {0.01: "+19.6 ± 2.1", 0.05: "+5.8 ± 1.2", 0.1: "+2.7 ± 1.9", 0.2: "+0.9 ± 1.6", 0.3: "+1.1 ± 1.6"},
    8000: {0.01: "+34.1 ± 1.7", 0.05: "+20.5 ± 1.5", 0.1: "+10.2 ± 0.8", 0.2: "+3.3 ± 1.4", 0.3: "+1.5 ± 1.3"},
}
#: Points above a class-balanced random subset of the same size on CIFAR-10, with the 95 % interval, by way, steps and
#: share. Where one of `RULES_BY_PASSES` holds, it has the gain of the way `trajectory`.
GAINS: Mapping[Way, Mapping[int, Mapping[float, str]]] = {
    "random": {},
    "continued": {2000: {0.1: "+15.7 ± 2.0"}},
    "theta_p": THETA_P_GAINS,
    "proxy": {4000: {0.05: "+6.6 ± 3.1"}},
    "trajectory": DUAL_GAINS,
    "rs2": RS2_GAINS,
    "all": {},
}
#: Settings that a way sets itself or must not have, section by section.
_PLAIN: Mapping[str, Mapping[str, Any]] = {
    "select": {"options": {}, "race": None},
    "score": {"proxy": None, "disjoint": False},
    "train": {
        "epoch_fraction": None,
        "draw": "uniform",
        "first_losses": "none",
        "reselect_every": 0,
        "start": "fresh",
    },
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
        """The measured gain with its 95 % interval, such as "+3.4 ± 1.5", in points; empty if there is none."""
        return self._measured[0]

    @property
    def gain_interval(self) -> tuple[float, float]:
        """The gain as numbers: points, and the half width of the interval; zeros if there is none."""
        points, _, half_width = self.gain.replace("−", "-").partition(" ± ")
        return (float(points), float(half_width)) if points else (0.0, 0.0)

    @property
    def gain_steps(self) -> int | None:
        """The steps of the training in which it was measured."""
        return self._measured[1]

    @property
    def _measured(self) -> tuple[str, int | None]:
        """Gain and steps, of the number of steps that is nearest among those at which this share was measured."""
        rule = rule_by_passes(self.share, self.passes, MEASURED_EPOCHS)
        if self.way == "trajectory" and rule:
            return (rule.gain, rule.steps) if self.share == rule.share else ("", None)
        by_steps = GAINS[self.way]
        measured = [steps for steps, gains in by_steps.items() if self.share in gains]
        nearest = min(measured, key=lambda steps: abs(math.log(steps / self.steps)), default=None)
        return (by_steps[nearest][self.share], nearest) if nearest else ("", None)


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
    trajectory: dict[str, Any] = {"model": "trajectory", "runs": 1, "epochs": MEASURED_EPOCHS}
    scores: dict[Way, dict[str, Any]] = {
        "continued": trajectory,
        "theta_p": {"model": "merged"},
        "proxy": trajectory | {"proxy": {"width": proxy}},
        "trajectory": trajectory,
    }
    settings = {"select": {"algorithm": algorithms.get(way, "auto"), "fraction": share}}
    scored = {"score": scores[way]} if way in scores else {}
    return settings | scored | ({"train": {"start": "continue"}} if way == "continued" else {})


def _settings(config: Config, way: Way, share: float) -> dict[str, Any]:
    """`settings_of` in place of what the configuration has: a merge for theta_p if it has none, no other proxy."""
    settings = settings_of(way, share, proxy_width(config))
    if way == "theta_p" and config.merge.method == "none":
        settings["merge"] = {"method": Merge().method}
    if way == "proxy" and (given := config.score.proxy):  # nothing else of it stays
        settings["score"]["proxy"] |= dict.fromkeys(given.model_fields_set - {"width"})
    return settings


def configured(config: Config, way: Way, share: float) -> Config:
    """The configuration with the settings of a way, without a baseline, a race and other draws."""
    changes = _settings(config, way, share)
    plain = {section: {**_PLAIN.get(section, {}), **changes.get(section, {})} for section in {**_PLAIN, **changes}}
    plain["train"]["random_baseline"] = False
    return override(config, plain)


def _to_paste(config: Config, way: Way, share: float) -> dict[str, Any]:
    """The settings of a way, and those of the configuration that must not stay beside them."""
    settings = _settings(config, way, share)
    for section, values in _PLAIN.items():
        if section == "score" and section not in settings:  # nothing scores
            continue
        given = getattr(config, section)
        reset = {key: value for key, value in values.items() if getattr(given, key) != value}
        if found := reset | settings.get(section, {}):
            settings[section] = found
    return settings


def is_own(config: Config, option: Option) -> bool:
    """Whether the configuration chooses as this option does, and keeps as much."""
    other = override(config, dict(option.settings))
    select = other.select.model_copy(update={"algorithm": config.select.algorithm})
    return algorithm_of(other) == algorithm_of(config) and other.model_copy(update={"select": select}) == config


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
    own, settings = configured(config, way, share), _to_paste(config, way, share)
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
