"""Write the report of one or more runs from their artifacts, as JSON and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from lipt.adapters.store import MissingObjectError
from lipt.data.sources.base import describe_left_out
from lipt.errors import IntegrityError
from lipt.flow.address import CHOSEN, CONFIG, PAGE, REPORT, read_report, report_folder, run_id
from lipt.flow.outcome import Outcome
from lipt.flow.reporting.accounting import paper_accounting
from lipt.flow.reporting.certainty import score_check
from lipt.flow.reporting.done import done_section
from lipt.flow.reporting.ledger import ledger_section
from lipt.flow.reporting.merge import merge_section
from lipt.flow.reporting.provenance import links_section, provenance_section
from lipt.flow.reporting.race import race_rows
from lipt.flow.reporting.rows import Entry, all_artifacts, costs_of, rows_of
from lipt.flow.reporting.subset import chosen_names, subset_section
from lipt.pipeline import Engine
from lipt.report import document as doc
from lipt.report.classes import ClassAccuracy
from lipt.report.ledger import LedgerRow
from lipt.report.subset import Subset
from lipt.runtime import Attempt, Context


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
    outcomes = [outcome for entry in entries for outcome in entry.outcomes]
    costs, reused = costs_of(ctx, entries), ctx.workspace.reused if whole else set()
    ledger = ledger_section(outcomes, all_artifacts(entries), costs, reused)
    folder = report_folder(ctx.config, comparison=comparison)
    if (stored := _stored(ctx, folder, [entry.name for entry in entries], ledger, engine)) is not None:
        return stored
    from lipt.report.html_page import render  # imports matplotlib: a second

    first, others = outcomes[0], entries[1:]
    seeds = list(dict.fromkeys(outcome.config.seed for outcome in outcomes))  # first that of the subset
    attempt = Attempt(ctx=ctx, ref="reports", label="report")
    subset = _subset(ctx, attempt, first)
    provenance = provenance_section(ctx, outcomes, seeds)
    files = {CONFIG: provenance.config_yaml.encode()}
    if names := chosen_names(attempt, first.subset):
        files[CHOSEN] = names
    else:  # an earlier report in this folder may have some
        ctx.workspace.store.delete(f"{folder}/{CHOSEN}")
    rows = rows_of(entries, costs)
    document = doc.Document(
        title=ctx.config.name,
        run_id=run_id(ctx.config, comparison=comparison),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        engine=engine,
        profile=ctx.config.profile,
        done=done_section(first, [other.label for other in others], seeds, {row.label: row.machine for row in rows}),
        workspace=ctx.workspace.store.uri,
        links=links_section(first, folder, files, "compare" if comparison else "run"),
        rows=rows,
        merge=merge_section(first),
        race=race_rows(ctx.config, first.race, first.subset),
        race_rounds=ctx.config.select.race.rounds if first.race and ctx.config.select.race else [],
        race_images=first.num_validation_images if first.race else 0,
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


def _stored(
    ctx: Context, folder: str, names: list[str], ledger: list[LedgerRow], engine: Engine
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


def _subset(ctx: Context, attempt: Attempt, outcome: Outcome) -> Subset:
    with ctx.workspace.repairing([outcome.prepared.dataset]):
        return subset_section(attempt, outcome)


def _classes(entries: Sequence[Entry], names: list[str]) -> ClassAccuracy:
    evaluation = entries[0].outcomes[0].trained.evaluation.summary
    return ClassAccuracy(
        names=names,
        images=evaluation["images_per_class"],
        accuracy={entry.name: entry.class_accuracy for entry in entries},
    )


def _curve(entry: Entry) -> doc.Curve:
    summary = entry.outcomes[0].trained.model.summary
    return doc.Curve(
        name=entry.label,
        epoch=list(range(1, len(summary["losses"]) + 1)),
        train_loss=summary["losses"],
        train_accuracy=summary["accuracies"],
    )
