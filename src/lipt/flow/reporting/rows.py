"""The rows of a comparison, from the outcomes of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from lipt.flow.dag import needs_models
from lipt.flow.outcome import Outcome
from lipt.flow.reporting.race import reason_of_race
from lipt.flow.variants import Variant, one_or_more, origin_of, possible_start, start_name
from lipt.ledger import Cost, elapsed_s
from lipt.pipeline import PRETRAINING
from lipt.report import document as doc
from lipt.report.classes import recalls, worst
from lipt.report.names import CONTINUED, FIXED, LONGER
from lipt.runtime import Context
from lipt.runtime.algorithm import algorithm_label, label_with_options, reason_of_auto
from lipt.runtime.artifact import Artifact
from lipt.selection.auto import AUTO

_ROLES: dict[str, doc.Role] = {
    "lipt": "selected",
    "random": "random",
    "stratified": "random",
    FIXED: "random",
    LONGER: "longer",
    CONTINUED: "continued",
    "full": "full",
    "classic-grand": "classic",
}


def role_of(variant: Variant) -> doc.Role:
    """The role of a variant in the verdict."""
    return _ROLES.get(variant.name, "other")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of the comparison: a variant over its seeds."""

    name: str
    label: str
    role: doc.Role
    outcomes: tuple[Outcome, ...]

    @classmethod
    def of(cls, variant: Variant, outcomes: Sequence[Outcome]) -> Entry:
        """The row of a variant."""
        label = variant.label_with(_algorithm(each) for each in outcomes)
        return cls(name=variant.name, label=label, role=role_of(variant), outcomes=tuple(outcomes))

    @property
    def class_accuracy(self) -> list[float | None]:
        """The test accuracy of each class, mean over seeds."""
        return recalls([outcome.trained.evaluation.summary for outcome in self.outcomes])


def _algorithm(outcome: Outcome) -> str:
    """The algorithm of a run. The winner of a race has its options, by which contestants may differ."""
    if outcome.race:
        return label_with_options(outcome.config)
    return algorithm_label(outcome.config, outcome.algorithm)


def label_of(outcome: Outcome) -> str:
    """The name of a plain run in the report, such as `LiPT, auto (ccs)`."""
    config, label = outcome.config, _algorithm(outcome)
    if needs_models(config):
        label = f"{origin_of(config)}, {label}"
    if config.train.draw != "uniform":  # as those of the random row are
        label += f", {config.train.draw} draws"
    return label if config.train.start == "fresh" else f"{label}, continued from {start_name(config)}"


def all_artifacts(entries: Sequence[Entry]) -> list[Artifact]:
    """Every artifact once, in the order in which they were made."""
    unique: dict[str, Artifact] = {}
    for entry in entries:
        for outcome in entry.outcomes:
            unique |= {
                artifact.ref: artifact
                for artifact in [outcome.prepared.dataset, *outcome.artifacts()]
                if artifact.ref not in unique
            }
    return list(unique.values())


def costs_of(ctx: Context, entries: Sequence[Entry]) -> dict[str, Cost]:
    """The cost of each artifact, by reference."""
    return {artifact.ref: ctx.workspace.cost(artifact) for artifact in all_artifacts(entries)}


def rows_of(entries: Sequence[Entry], costs: dict[str, Cost]) -> list[doc.Row]:
    """The rows of the comparison.

    Args:
        costs: as `costs_of` gives them.
    """
    epoch_flops = _epoch_flops(entries, costs)
    return [_row(entry, costs, epoch_flops) for entry in entries]


def _epoch_flops(entries: Sequence[Entry], costs: dict[str, Cost]) -> float | None:
    """FLOPs of one epoch of training on all candidates; None if every training also reselected.

    All rows train the same network, so one training without reselection is enough. FLOPs rather than seconds, because
    the first stage of a process includes warm-up, and because a number of epochs must not depend on the machine.
    """
    for outcome in (outcome for entry in entries for outcome in entry.outcomes):
        model, settings = outcome.trained.model, outcome.config.train
        if not settings.reselect_every:
            whole = costs[model.ref].flops / (1 - float(model.summary.get("raptr_saved", 0.0)))  # no block skipped
            return whole / int(model.summary["images"]) * int(outcome.subset.summary["candidates"])
    return None


def _row(entry: Entry, costs: dict[str, Cost], epoch_flops: float | None) -> doc.Row:
    rows = [_row_of_seed(entry, outcome, costs, epoch_flops) for outcome in entry.outcomes]
    return join_seeds(rows, name=entry.name, label=entry.label, role=entry.role)


def _row_of_seed(entry: Entry, outcome: Outcome, costs: dict[str, Cost], epoch_flops: float | None) -> doc.Row:
    config, evaluation = outcome.config, outcome.trained.evaluation.summary
    model = outcome.trained.model.summary
    stages = [(artifact.stage, costs[artifact.ref]) for artifact in outcome.artifacts()]
    pretraining = sum(cost.flops for stage, cost in stages if stage in PRETRAINING)
    total = sum((cost for _, cost in stages), Cost())
    reselection = int(model.get("reselection_flops", 0))
    choice = sum(costs[each.ref].flops for each in outcome.choice()) + reselection
    return doc.Row(
        name=entry.name,
        label=entry.label,
        role=entry.role,
        scorer=possible_start(config),
        continued=config.train.start == "continue",
        scorer_accuracy=_scorer_accuracy(outcome),
        num_validation_images=outcome.num_validation_images,
        algorithm=outcome.algorithm or "",
        reason=_reason(outcome),
        kept_fraction=1.0 if config.train.reselect_every else config.select.fraction,  # it selects from all, again
        epoch_fraction=config.train.epoch_fraction or config.select.fraction,
        draw=config.train.draw,
        epochs=len(model["losses"]),
        steps=model["steps"],
        images=model["images"],
        seeds=[config.seed],
        accuracy=[evaluation["accuracy"]],
        worst_class=worst(recalls([evaluation])),
        num_test_images=int(evaluation["images"]),
        chance=max(evaluation["images_per_class"]) / int(evaluation["images"]),
        stage_wall_s={stage: elapsed_s(cost for of, cost in stages if of == stage) for stage in dict(stages)},
        machine=costs[outcome.trained.model.ref].machine,
        pretrain_cost=pretraining / epoch_flops if epoch_flops else (0.0 if not pretraining else None),
        data_bytes=total.bytes("data"),
        model_bytes=total.bytes("model"),
        flops=total.flops,
        train_flops=costs[outcome.trained.model.ref].flops - reselection,
        choice_flops=choice,
        race_flops=choice - reselection if outcome.race else None,
    )


def _scorer_accuracy(outcome: Outcome) -> float | None:
    """Validation accuracy of the model that scored, or of theta_p; None if no stage measured it."""
    for artifact in (outcome.merged, *outcome.scores):
        if artifact is not None and "accuracy" in artifact.summary:
            return float(artifact.summary["accuracy"])
    return None


def _reason(outcome: Outcome) -> str:
    """Why a race or `auto` chose this algorithm; empty if they did not."""
    if outcome.race:
        return reason_of_race({outcome.config.seed: outcome.algorithm or ""})
    candidates = int(outcome.subset.summary["candidates"])
    return reason_of_auto(outcome.config, candidates) if outcome.config.select.algorithm == AUTO else ""


#: The fields of a row that are means over seeds.
_MEANS = (
    "steps", "images", "scorer_accuracy", "worst_class", "pretrain_cost", "data_bytes", "model_bytes", "flops",
    "train_flops", "choice_flops", "race_flops",
)  # fmt: skip


def join_seeds(rows: Sequence[doc.Row], *, name: str, label: str, role: doc.Role) -> doc.Row:
    """The row of a comparison, from those of its runs, one per seed."""

    def mean(name: str) -> float | None:
        values = [getattr(row, name) for row in rows]
        return None if None in values else fmean(values)

    stages = dict.fromkeys(stage for row in rows for stage in row.stage_wall_s)
    raced = rows[0].race_flops is not None
    return rows[0].model_copy(
        update={name: mean(name) for name in _MEANS}
        | {
            "name": name,
            "label": label,
            "role": role,
            "algorithm": one_or_more(row.algorithm for row in rows),
            "reason": reason_of_race({row.seeds[0]: row.algorithm for row in rows}) if raced else rows[0].reason,
            "seeds": [seed for row in rows for seed in row.seeds],
            "accuracy": [accuracy for row in rows for accuracy in row.accuracy],
            "stage_wall_s": {stage: fmean(row.stage_wall_s.get(stage, 0) for row in rows) for stage in stages},
            "machine": " and ".join(dict.fromkeys(row.machine for row in rows if row.machine)),
        }
    )
