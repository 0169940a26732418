"""The rows of a comparison, and the random baseline beside a plain run."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from lipt.config import Config, override
from lipt.errors import UsageError
from lipt.flow.dag import needs_models, trains_models
from lipt.report.names import CONTINUED, FIXED, LONGER, RANDOM
from lipt.runtime.algorithm import CLASS_BALANCED, algorithm_of

#: The variants that change only `merge.method`, to this.
_MERGES = {"theta-star": "none", "best-single": "best_single"}
_ORIGIN = {
    "merged": "LiPT",
    "jigsaws": "LiPT as an ensemble",
    "classic": "Classic pre-training",
    "trajectory": "Trajectory",
    "theta_star": "theta_* alone",
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A row of a comparison."""

    name: str
    label: str
    """Without the algorithm, if `names_algorithm`."""
    changes: dict[str, Any]
    """Changes to the configuration of the run."""
    names_algorithm: bool = False
    """The configured algorithm chooses, and the row's label ends with its name."""

    def label_with(self, algorithms: Iterable[str]) -> str:
        """The label of the row.

        Args:
            algorithms: those of its runs, as `algorithm_label` writes them. With a race they can differ.
        """
        return f"{self.label}, {one_or_more(algorithms)}" if self.names_algorithm else self.label


def one_or_more(algorithms: Iterable[str]) -> str:
    """The algorithms of the runs of a row: `ccs`; or `ccs or herding`, if seeds had races with different winners."""
    return " or ".join(dict.fromkeys(algorithms))


def scorer_of(config: Config) -> str:
    """The model that would score: `score.model`, or `theta_star` where no jigsaws are merged."""
    merges = config.merge.method != "none"
    return config.score.model if config.score.has_own_models or merges else "theta_star"


def origin_of(config: Config) -> str:
    """The scoring model as reports write it."""
    return _ORIGIN[scorer_of(config)]


#: The models from which a main training can start.
_START = {"classic": "a classic model", "trajectory": "the model of the trajectory", "theta_star": "theta_*"}


def start_name(config: Config) -> str:
    """The model from which the main training starts with `train.start: continue`."""
    return _START.get(scorer_of(config), "theta_p")


def possible_start(config: Config) -> str:
    """The model of the run from which the main training could start, or does; empty if there is none."""
    has_model = needs_models(config) or config.train.start == "continue"
    return start_name(config) if has_model and not config.score.proxy else ""


def baseline_of(config: Config) -> Variant | None:
    """The baseline of a run: a random subset with the same two budgets, class-balanced if the selection is balanced.

    If the selection is itself random, or is repeated during the training (so that all data are kept), the baseline is
    RS2 with the same trained budget. If the run is RS2, the baseline is a fixed random subset. Draws that are led by
    losses are compared with uniform draws from the same random subset; such draws from all data, and a start from
    theta_p, with uniform draws from random weights (RS2, or all data). None if it is switched off, or the run trains on
    all data.
    """
    settings = config.train
    is_random = algorithm_of(config) in RANDOM
    is_plain, whole = settings.draw == "uniform" and settings.start == "fresh", settings.epoch_fraction in (None, 1)
    trains_on_all, is_rs2 = (is_random and config.select.fraction == 1 and each for each in (whole, not whole))
    if not settings.random_baseline or (trains_on_all and is_plain):
        return None
    if settings.reselect_every:
        return variants(config)["rs2"]
    if is_random and config.select.fraction < 1 and settings.draw != "uniform":
        return variants(config)[algorithm_of(config)]
    if is_random and not (is_rs2 and is_plain):
        return variants(config)["full" if trains_on_all else "rs2"]
    found = variants(config)["stratified" if config.select.balanced else "random"]
    if not is_random:
        return found
    changes = found.changes
    kept = {"fraction": settings.epoch_fraction}
    changes = {"select": changes["select"] | kept, "train": changes["train"] | {"epoch_fraction": None}}
    return replace(found, name=FIXED, label=f"{found.label}, the same in every epoch", changes=changes)


_PLAIN = {"reselect_every": 0, "first_losses": "none"}
_RANDOM = _PLAIN | {"draw": "uniform"}
#: What needs no model starts from random weights.
_FRESH = _RANDOM | {"start": "fresh"}


def _chosen_by(algorithm: str) -> dict[str, Any]:
    """The settings that change with the algorithm."""
    return {"algorithm": algorithm, "options": {}, "race": None}


def _drawn_at_random(config: Config) -> str:
    """How a random row with the configured budgets draws."""
    if config.select.fraction < 1:
        return CLASS_BALANCED
    return "Full data" if config.train.epoch_fraction in (None, 1) else "RS2"


def variants(config: Config) -> dict[str, Variant]:
    """The variants of a comparison, by name.

    RS2 and full data keep all candidates. In each epoch RS2 draws as many samples as the others train on. All others
    start as the configuration does (`train.start`), so that they differ only in their subsets. One starts from random
    weights and is trained for more steps, which together take as many FLOPs as all that the configuration does before
    its main training. One starts from the model that scored, or from theta_p if the jigsaws score. Those that
    `left_out` names are missing.
    """
    without = left_out(config)
    return {
        name: Variant(name=name, label=label, changes=changes, names_algorithm="select" not in changes)
        for name, (label, changes) in _rows(config).items()
        if name not in without
    }


def _rows(config: Config) -> dict[str, tuple[str, dict[str, Any]]]:
    """Label and changes of every variant, by name."""
    same, fresh = (", continued", ", from random weights") if config.train.start == "continue" else ("", "")
    per_epoch = config.train.epoch_fraction or config.select.fraction
    everything = _chosen_by("random") | {"fraction": 1.0}
    classic = {
        "select": _chosen_by("grand"),
        "score": {"model": "classic", "runs": 10, "epochs": 1, "disjoint": False},
        "train": _PLAIN,
    }
    ours = origin_of(config)
    paper = " (the paper's)" if ours == _ORIGIN["merged"] else ""
    return {
        "full": (f"Full data{fresh}", {"select": everything, "train": _FRESH | {"epoch_fraction": None}}),
        "random": (f"Random subset{same}", {"select": _chosen_by("random"), "train": _RANDOM}),
        "stratified": (
            f"{CLASS_BALANCED}{same}",
            {"select": _chosen_by("stratified"), "train": _RANDOM},
        ),
        LONGER: (
            f"{_drawn_at_random(config)}, more steps{fresh}",
            {"select": _chosen_by("stratified"), "train": _FRESH},
        ),
        CONTINUED: (
            f"{CLASS_BALANCED}, continued from {start_name(config)}",
            {"select": _chosen_by("stratified"), "train": _RANDOM | {"start": "continue"}},
        ),
        "rs2": (
            f"RS2: fresh random draw every epoch{fresh}",
            {"select": everything, "train": _FRESH | {"epoch_fraction": per_epoch}},
        ),
        "classic-grand": ("Classic GraNd, 10 runs of 1 epoch", classic),
        "lipt-grand": (f"{ours}, GraNd{paper}", {"select": _chosen_by("grand")}),
        "theta-star": ("theta_* alone", {"merge": {"method": _MERGES["theta-star"]}}),
        "swarm-dual": (
            "LiPT, DUAL over the swarm",
            {"select": _chosen_by("dual"), "score": {"model": "jigsaws", "disjoint": False}, "train": _PLAIN},
        ),
        "best-single": ("Best single jigsaw", {"merge": {"method": _MERGES["best-single"]}}),
        "lipt": (ours if needs_models(config) else "LiPT", {}),
    }


def left_out(config: Config) -> dict[str, str]:
    """Why variants would repeat another row of this configuration, by name."""
    found = dict[str, str]()
    if not (trains_models(config) or config.select.race):
        found[LONGER] = "the choice costs nothing beside the training"
    if config.score.proxy:
        found[CONTINUED] = "the proxy that scores is another network"
    elif config.train.start == "continue":
        found[CONTINUED] = "train.start is continue already, so the row would be the same as that of stratified"
    elif not needs_models(config):
        found[CONTINUED] = "the choice needs no model from which a training could start"
    merges = trains_models(config) and not config.score.has_own_models
    for name, method in _MERGES.items():
        if not merges:
            found[name] = "the configuration merges no jigsaws, so the row would be the same as that of lipt"
        elif config.merge.method == method:
            found[name] = f"merge.method is {method} already, so the row would be the same as that of lipt"
        elif method == "best_single" and config.score.model == "jigsaws" and config.train.start == "fresh":
            found[name] = "all jigsaws score, so the row would be the same as that of lipt"
    return found | _equal(config)


def _equal(config: Config) -> dict[str, str]:
    """Why variants with a choice of their own would repeat another one: their settings are equal."""
    rows, kept, found = _rows(config), {"lipt": config}, dict[str, str]()
    for name in ("lipt-grand", "classic-grand", "swarm-dual"):
        try:
            changed = override(config, rows[name][1])
        except UsageError:  # the check of the variants reports it
            continue
        if other := next((other for other, each in kept.items() if each == changed), None):
            found[name] = f"its settings are those of {other}"
        kept[name] = changed
    return found
