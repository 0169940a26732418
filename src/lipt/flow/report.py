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
from lipt.flow.address import CHOSEN, CONFIG, PAGE, REPORT, read_report, report_folder, run_id
from lipt.flow.certainty_view import score_check
from lipt.flow.done_view import done_view
from lipt.flow.graph import needs_models
from lipt.flow.ledger_view import ledger_view
from lipt.flow.merge_view import merge_view
from lipt.flow.outcome import Outcome
from lipt.flow.provenance_view import links_view, provenance_view
from lipt.flow.race_view import race_rows, reason_of_race
from lipt.flow.subset_view import chosen_names, subset_view
from lipt.flow.variants import Variant, one_or_more, origin_of, scorer_of
from lipt.ledger import Cost, elapsed_s
from lipt.pipeline import PRETRAINING, Engine
from lipt.report import document as doc
from lipt.report.classes import ClassAccuracy, recalls, worst
from lipt.report.rivals import FIXED, LONGER
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
        return recalls([outcome.trained.evaluation.summary["confusion"] for outcome in self.outcomes])


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
        files[CHOSEN] = names
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
    # REPORT last: it is what makes this folder a finished report.
    files |= {PAGE: render(document).encode(), REPORT: document.model_dump_json(indent=1).encode()}
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
    if not all(row.earlier for row in ledger) or not store.size(f"{folder}/{PAGE}"):
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
    rows = [_row_of_seed(entry, outcome, costs, epoch_flops) for outcome in entry.outcomes]
    return join_seeds(rows, name=entry.name, label=entry.label, role=entry.role)


def _row_of_seed(entry: Entry, outcome: Outcome, costs: dict[str, Cost], epoch_flops: float | None) -> doc.Row:
    config, evaluation = outcome.config, outcome.trained.evaluation.summary
    model, confusion = outcome.trained.model.summary, evaluation["confusion"]
    stages = [(artifact.stage, costs[artifact.ref]) for artifact in outcome.artifacts()]
    pretraining = sum(cost.flops for stage, cost in stages if stage in PRETRAINING)
    total = sum((cost for _, cost in stages), Cost())
    return doc.Row(
        name=entry.name,
        label=entry.label,
        role=entry.role,
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
        worst_class=worst(recalls([confusion])),
        num_test_images=int(evaluation["images"]),
        chance=max(map(sum, confusion)) / int(evaluation["images"]),
        stage_wall_s={stage: elapsed_s(cost for of, cost in stages if of == stage) for stage in dict(stages)},
        pretrain_cost=pretraining / epoch_flops if epoch_flops else (0.0 if not pretraining else None),
        data_bytes=total.bytes("data"),
        model_bytes=total.bytes("model"),
        flops=total.flops,
        train_flops=costs[outcome.trained.model.ref].flops - int(model.get("reselection_flops", 0)),
        race_flops=sum(costs[each.ref].flops for each in outcome.choice()) if outcome.race else None,
    )


def _reason(outcome: Outcome) -> str:
    """Why a race or `auto` chose this algorithm; empty if they did not."""
    if outcome.race:
        return reason_of_race({outcome.config.seed: outcome.algorithm or ""})
    candidates = int(outcome.subset.summary["candidates"])
    return reason_of_auto(outcome.config, candidates) if outcome.config.select.algorithm == AUTO else ""


#: The fields of a row that are means over seeds.
_MEANS = (
    "steps", "images", "worst_class", "pretrain_cost", "data_bytes", "model_bytes", "flops", "train_flops",
    "race_flops",
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
        }
    )


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
