"""Write the report of one or more runs from their artifacts, as JSON and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean

from lipt.adapters.store import MissingObjectError
from lipt.data.sources.base import describe_left_out
from lipt.errors import IntegrityError
from lipt.flow.accounting_view import paper_accounting
from lipt.flow.address import CONFIG, read_report, report_folder, run_id
from lipt.flow.certainty_view import score_check
from lipt.flow.done_view import done_view
from lipt.flow.graph import needs_models
from lipt.flow.ledger_view import ledger_view
from lipt.flow.merge_view import merge_view
from lipt.flow.outcome import Outcome
from lipt.flow.provenance_view import links_view, provenance_view
from lipt.flow.race_view import race_rows, reason_of_race
from lipt.flow.subset_view import chosen_names, subset_view
from lipt.flow.variants import LONGER, Variant, one_or_more, origin_of, scorer_of
from lipt.ledger import Cost, elapsed_s
from lipt.pipeline import PRETRAINING, Engine
from lipt.report import document as doc
from lipt.report.classes import ClassAccuracy, recalls, worst
from lipt.report.rivals import FIXED
from lipt.runtime import Attempt, Context
from lipt.runtime.algorithm import algorithm_label, reason_of_auto
from lipt.runtime.artifact import Artifact
from lipt.selection.auto import AUTO

_START = {"classic": "a classic model", "trajectory": "the model of the trajectory", "theta_star": "theta_*"}
_ROLES: dict[str, doc.Role] = {
    "lipt": "selected",
    "random": "random",
    "stratified": "random",
    FIXED: "random",
    LONGER: "longer",
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
        label = variant.label_with(algorithm_label(each.config, each.algorithm) for each in outcomes)
        return cls(name=variant.name, label=label, role=role_of(variant), outcomes=tuple(outcomes))

    @property
    def class_accuracy(self) -> list[float | None]:
        """The test accuracy of each class, mean over seeds."""
        return recalls(self._confusions)

    @property
    def worst_class(self) -> float:
        """The lowest accuracy of a class, whichever it is; mean over seeds."""
        return fmean(worst(recalls([confusion])) for confusion in self._confusions)

    @property
    def _confusions(self) -> list[list[list[int]]]:
        return [outcome.trained.evaluation.summary["confusion"] for outcome in self.outcomes]


def write_report(
    ctx: Context,
    entries: Sequence[Entry],
    *,
    engine: Engine = "local",
    comparison: bool = False,
    whole: bool = True,
) -> doc.Document:
    """Write the report into `report_folder`. If this run made no artifact, the existing report is kept.

    Args:
        comparison: it is that of `lipt compare`.
        whole: this process did the whole run. If other boxes did a part of it, this process cannot know which of their
            work belongs to this run, and which to earlier ones.
    """
    entries = sorted(entries, key=lambda entry: entry.role != "selected")
    artifacts = all_artifacts(entries)
    costs = {artifact.ref: ctx.workspace.cost(artifact) for artifact in artifacts}
    reused = ctx.workspace.reused if whole else set()
    ledger = ledger_view([each for entry in entries for each in entry.outcomes], artifacts, costs, reused)
    folder = report_folder(ctx.config, comparison=comparison)
    if (stored := _stored(ctx, folder, [entry.name for entry in entries], ledger, engine)) is not None:
        return stored
    from lipt.report.html_page import render  # imports matplotlib: a second

    others = entries[1:]
    outcomes = [outcome for entry in entries for outcome in entry.outcomes]
    first = outcomes[0]
    attempt = Attempt(ctx=ctx, ref="reports", label="report")
    subset = _subset(ctx, attempt, first)
    epoch_flops, provenance = _epoch_flops(entries, costs), provenance_view(ctx, outcomes, _seeds(entries))
    files = {CONFIG: provenance.config_yaml.encode()}
    if names := chosen_names(attempt, first.subset):
        files["chosen.txt"] = names
    document = doc.Document(
        title=ctx.config.name,
        run_id=run_id(ctx.config, comparison=comparison),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        engine=engine,
        profile=ctx.config.profile,
        done=done_view(
            first, [other.label for other in others], _seeds(entries), costs[first.trained.model.ref].machine
        ),
        workspace=ctx.workspace.store.uri,
        links=links_view(first, folder, files, "compare" if comparison else "run"),
        rows=[_row(entry, costs, epoch_flops) for entry in entries],
        merge=merge_view(first),
        race=race_rows(ctx.config, first.race, first.subset),
        race_rounds=ctx.config.select.race.rounds if first.race and ctx.config.select.race else [],
        race_images=first.prepared.dataset.summary["train"] - first.subset.summary["candidates"] if first.race else 0,
        score_checks=[check for each in entries if (check := score_check(attempt, each.label, each.outcomes))],
        classes=_classes(entries, subset.class_names),
        subset=subset,
        left_out=describe_left_out(first.prepared.dataset.summary.get("left_out", {})),
        curves=[_curve(entry) for entry in entries],
        ledger=ledger,
        paper_accounting=paper_accounting(attempt, first, costs),
        provenance=provenance,
    )
    # report.json last: it is what makes this folder a finished report.
    files |= {"report.html": render(document).encode(), "report.json": document.model_dump_json(indent=1).encode()}
    for name, data in files.items():
        ctx.workspace.store.write(f"{folder}/{name}", data, kind="other")
    return document


def _seeds(entries: Sequence[Entry]) -> list[int]:
    return sorted({outcome.config.seed for entry in entries for outcome in entry.outcomes})


def rows_of(ctx: Context, entries: Sequence[Entry]) -> list[doc.Row]:
    """The rows of a comparison, without a report."""
    costs = {artifact.ref: ctx.workspace.cost(artifact) for artifact in all_artifacts(entries)}
    epoch_flops = _epoch_flops(entries, costs)
    return [_row(entry, costs, epoch_flops) for entry in entries]


def _stored(
    ctx: Context, folder: str, names: list[str], ledger: list[doc.LedgerRow], engine: Engine
) -> doc.Document | None:
    """The report that is stored in this folder, if it covers the same artifacts and this run made none."""
    store = ctx.workspace.store
    if not all(row.earlier for row in ledger) or not store.size(f"{folder}/report.html"):
        return None
    try:
        found = read_report(store, folder)
    except (MissingObjectError, IntegrityError):
        return None
    work = [row.model_copy(update={"earlier": True}) for row in found.ledger]
    if (work, [row.name for row in found.rows], found.engine) != (ledger, names, engine):
        return None
    return found.model_copy(update={"ledger": ledger})


def _subset(ctx: Context, attempt: Attempt, outcome: Outcome) -> doc.Subset:
    with ctx.workspace.repairing([outcome.prepared.dataset]):
        return subset_view(attempt, outcome)


def _classes(entries: Sequence[Entry], names: list[str]) -> ClassAccuracy:
    evaluation = entries[0].outcomes[0].trained.evaluation.summary
    return ClassAccuracy(
        names=names,
        images=[sum(row) for row in evaluation["confusion"]],
        accuracy={entry.name: entry.class_accuracy for entry in entries},
    )


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
    config = entry.outcomes[0].config
    per_seed = [
        [(artifact.stage, costs[artifact.ref]) for artifact in outcome.artifacts()] for outcome in entry.outcomes
    ]
    seeds = len(per_seed)
    walls: dict[str, float] = {}
    for stages in per_seed:
        for stage in dict(stages):
            walls[stage] = walls.get(stage, 0.0) + elapsed_s(cost for of, cost in stages if of == stage) / seeds
    pretraining = sum(cost.flops for stages in per_seed for stage, cost in stages if stage in PRETRAINING) / seeds
    total = sum((cost for stages in per_seed for _, cost in stages), Cost())
    evaluation = entry.outcomes[0].trained.evaluation.summary
    models = [outcome.trained.model.summary for outcome in entry.outcomes]
    return doc.Row(
        name=entry.name,
        label=entry.label,
        role=entry.role,
        algorithm=one_or_more(outcome.algorithm or "" for outcome in entry.outcomes),
        reason=_reason(entry.outcomes),
        kept_fraction=1.0 if config.train.reselect_every else config.select.fraction,  # it selects from all, again
        epoch_fraction=config.train.epoch_fraction or config.select.fraction,
        draw=config.train.draw,
        epochs=len(models[0]["losses"]),
        steps=sum(model["steps"] for model in models) / seeds,
        images=sum(model["images"] for model in models) / seeds,
        seeds=[outcome.config.seed for outcome in entry.outcomes],
        accuracy=[outcome.trained.evaluation.summary["accuracy"] for outcome in entry.outcomes],
        worst_class=entry.worst_class,
        num_test_images=int(evaluation["images"]),
        chance=max(map(sum, evaluation["confusion"])) / int(evaluation["images"]),
        stage_wall_s=walls,
        pretrain_cost=pretraining / epoch_flops if epoch_flops else (0.0 if not pretraining else None),
        data_bytes=total.bytes("data") / seeds,
        model_bytes=total.bytes("model") / seeds,
        flops=total.flops / seeds,
        race_flops=_race_flops(entry.outcomes, costs),
    )


def _race_flops(outcomes: Sequence[Outcome], costs: dict[str, Cost]) -> float | None:
    """FLOPs of the race and of all that it read, mean over seeds; None without a race."""
    if not any(outcome.race for outcome in outcomes):
        return None
    return sum(costs[each.ref].flops for outcome in outcomes for each in outcome.choice()) / len(outcomes)


def _reason(outcomes: Sequence[Outcome]) -> str:
    """Why a race or `auto` chose this algorithm; empty if they did not."""
    outcome, config = outcomes[0], outcomes[0].config
    if outcome.race:
        return reason_of_race({each.config.seed: each.algorithm or "" for each in outcomes})
    candidates = int(outcome.subset.summary["candidates"])
    return reason_of_auto(config, candidates) if config.select.algorithm == AUTO else ""


def _curve(entry: Entry) -> doc.Curve:
    summary = entry.outcomes[0].trained.model.summary
    return doc.Curve(
        name=entry.label,
        epoch=list(range(1, len(summary["losses"]) + 1)),
        train_loss=summary["losses"],
        train_accuracy=summary["accuracies"],
    )


def label_of(outcome: Outcome) -> str:
    """The name of a plain run in the report, such as `LiPT, auto (ccs)`."""
    config = outcome.config
    label = algorithm_label(config, outcome.algorithm)
    if needs_models(config):
        label = f"{origin_of(config)}, {label}"
    start = _START.get(scorer_of(config), "theta_p")
    return label if config.train.start == "fresh" else f"{label}, continued from {start}"
