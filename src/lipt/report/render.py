"""The report: one self-contained HTML file without scripts, fetches or clocks."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lipt.report import figures, views
from lipt.report.compare import MIN_SEEDS
from lipt.report.document import Document, MergeTable, Provenance, Subset
from lipt.report.numbers import exact, format_percent
from lipt.report.table import COLUMNS, comparison_groups
from lipt.report.verdict import judge


def render(document: Document) -> str:
    """The page as text; the same document gives the same bytes."""
    context = {
        "document": document,
        "verdict": judge(document.rows),
        "columns": COLUMNS,
        "groups": comparison_groups(document.rows),
        "accuracy_figure": Markup(figures.accuracy_figure(document.rows)) if len(document.rows) > 1 else None,
        "interval_of": _interval_of(document),
        "stages": views.stage_names(document.rows),
        "merge": _merge_view(document.merge),
        "subset": _subset_view(document.subset),
        "training_figures": [Markup(svg) for svg in figures.training_figures(document.curves)],
        "ledger_columns": views.LEDGER_COLUMNS,
        "stage_ledger": views.stage_ledger(document.ledger) if document.ledger else [],
        "spent": views.spent_sentence(document.ledger),
        "worker_ledger": views.worker_ledger(document.ledger),
        "accounting": views.accounting_lines(document.paper_accounting) if document.paper_accounting else [],
        "has_provenance": document.provenance != Provenance(),
    }
    return _environment().get_template("report.html").render(context)


@cache
def _environment() -> Environment:
    """Every value is escaped; a name the template mistypes is an error, not a blank."""
    environment = Environment(
        loader=PackageLoader("lipt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"percent": format_percent, "exact": exact}
    environment.globals |= {"stage_cells": views.stage_cells, "jigsaw_state": views.jigsaw_state}
    return environment


def _interval_of(document: Document) -> str:
    """Where the intervals of the first figure come from."""
    enough = [len(row.seeds) >= MIN_SEEDS for row in document.rows]
    if all(enough):
        return "over seeds"
    few = f"of the test images alone{' where' if any(enough) else ', since'} there are fewer than {MIN_SEEDS} seeds"
    return f"over seeds, {few}" if any(enough) else few


def _merge_view(merge: MergeTable | None) -> dict[str, Any] | None:
    if merge is None:
        return None
    figure = figures.soup_figure(merge)
    return {
        "table": merge,
        "figure": Markup(figure) if figure else None,
        "references": [
            ("θ* (before the swarm)", merge.theta_star_accuracy),
            ("best group" if merge.groups else "best single worker", merge.best_single_accuracy),
            ("uniform average of the groups" if merge.groups else "uniform average", merge.uniform_accuracy),
            ("soup", merge.soup_accuracy),
        ],
    }


def _subset_view(subset: Subset | None) -> dict[str, Any] | None:
    if subset is None:
        return None
    many = len(subset.class_names) > views.MAX_CLASS_BARS
    histogram = subset.score_histogram
    return {
        "table": subset,
        "num_candidates": sum(subset.candidates_per_class),
        "bars": views.class_bars(subset),
        "class_figure": Markup(figures.class_figure(views.kept_shares(subset))) if many else None,
        "score_figure": Markup(figures.score_figure(histogram, subset.score_name)) if histogram else None,
        "montages": [
            (title, examples, views.montage(examples))
            for title, examples in (("Kept", subset.kept_examples), ("Dropped", subset.dropped_examples))
            if examples
        ],
    }
