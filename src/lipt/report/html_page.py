"""The report: one self-contained HTML file without scripts, fetches or clocks."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lipt.report import comparison, costs, figures
from lipt.report.accounting import Accounting, PaperAccounting
from lipt.report.certainty import all_statements
from lipt.report.classes import EXTREME_CLASSES, MOST_CLASSES, class_lines, worst_sentence
from lipt.report.comparison import comparison_groups, seed_accuracies, stage_cells, stage_names
from lipt.report.costs import spent_sentence, stage_ledger, worker_ledger
from lipt.report.document import Document, Provenance
from lipt.report.merge_table import merge_section
from lipt.report.next_step import Origin
from lipt.report.numbers import DASH, format_moment, format_percent
from lipt.report.race import race_error, race_result, round_headings
from lipt.report.significance import MIN_SEEDS, in_groups, mean_accuracy, same_budgets, sampling_error
from lipt.report.subset import Example, Subset
from lipt.report.verdict import judge

_MAX_MONTAGE_BASE64 = 500_000
"""Characters per montage: two of them leave room for everything else in a page of 2 MB."""
_TINY_PX = 64


def render(
    document: Document,
    *,
    framed: bool = False,
    pages: Mapping[str, str] | None = None,
    origins: Mapping[str, Origin] | None = None,
) -> str:
    """The page as text; the same document gives the same bytes.

    Args:
        framed: for an iframe with `srcdoc`, as Kubeflow shows it. There links to sections need a base, because they
            would lead to the page around it.
        pages: run -> path or address of its own report, on a page of several runs.
        origins: as for `NextStep.commands`; None: the configuration beside the report.
    """
    verdict = judge(document.rows)
    known = {document.run_id: Origin.stored(document, document.workspace)} if origins is None else origins
    rows = in_groups(document.rows)
    seeds, by_seed = seed_accuracies(rows)
    result_columns, cost_columns, groups = comparison.without_empty(comparison_groups(document.rows))
    context = {
        "document": document,
        "rows": rows,
        "framed": framed,
        "pages": {run: (page, _link(page)) for run, page in (pages or {}).items()},
        "contents": dict(_contents(document)),
        "date": format_moment(document.created),
        "summary": _summary(document.done),
        "local": document.workspace.startswith("file://") and not framed,
        "verdict": verdict,
        "introduction": verdict.next_step.introduction(known) if verdict.next_step else "",
        "commands": verdict.next_step.commands(known) if verdict.next_step else [],
        "result_columns": result_columns,
        "cost_columns": cost_columns,
        "seed_names": [f"seed {seed}" for seed in seeds],
        "by_seed": by_seed,
        "groups": groups,
        "accuracy_figure": Markup(figures.accuracy_figure(document.rows)) if len(document.rows) > 1 else None,
        "several_seeds": any(len(row.seeds) > 1 for row in document.rows),
        "many_intervals": comparison.has_many_intervals(groups),
        "interval_of": _interval_of(document),
        "first_seed": _first_seed(document),
        "stages": stage_names(document.rows),
        "classes": _classes_section(document),
        "merge": merge_section(document.merge),
        "score_statements": all_statements(document.score_checks),
        "race_error": race_error(document),
        "race_result": race_result,
        "race_rounds": round_headings(document),
        "subset": _subset_section(document.subset),
        "training_figures": [Markup(svg) for svg in figures.training_figures(document.curves, document.rows)],
        "num_coloured": len(figures.coloured_curves(document.curves, document.rows)),
        "stage_ledger": costs.without_empty(stage_ledger(document.ledger)) if document.ledger else None,
        "spent": spent_sentence(document.ledger),
        "worker_ledger": costs.without_empty(worker_ledger(document.ledger)),
        "accounting": accounting_lines(document.paper_accounting) if document.paper_accounting else [],
    }
    return _environment().get_template("report.html").render(context)


@cache
def _environment() -> Environment:
    """Every value is escaped. A wrong name in the template is an error, not a blank."""
    environment = Environment(
        loader=PackageLoader("lipt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"percent": format_percent, "prose": _prose}
    environment.globals |= {"stage_cells": stage_cells}
    return environment


def _prose(text: Any) -> Markup:
    """`text` between backticks as code; a number and its % stay on one line."""
    bound = str(escape(text)).replace(" %", "\u00a0%")
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", bound))


def _contents(document: Document) -> list[tuple[str, str]]:
    """(id, heading) of each section of the page, in their order."""
    parts = (
        ("done", "What was done", document.done),
        ("verdict", "Verdict", True),
        ("cost", "What it cost", True),
        ("comparison", "Comparison of the methods", True),
        ("classes", "Accuracy of each class", _classes_section(document)),
        ("subset", "The subset", document.subset),
        ("certainty", "How sure the scores are", document.score_checks),
        ("race", "The race", document.race),
        ("merge", "The swarm and its soup", document.merge),
        ("training", "Training", any(curve.train_loss or curve.train_accuracy for curve in document.curves)),
        ("ledger", "Cost of each stage", document.ledger),
        ("accounting", "The paper's accounting and ours", document.paper_accounting),
        ("files", "Files of this run", document.links),
        ("provenance", "Provenance", document.provenance != Provenance()),
    )
    return [(name, heading) for name, heading, there in parts if there]


def _link(page: str) -> str | None:
    """The link to a report in a folder; a browser cannot open one in an object store."""
    return None if "://" in page else Path(page).absolute().as_uri()


def _summary(done: Mapping[str, str]) -> str:
    """One line below the title: the images, the network and the choice, each in its first clause."""
    texts = [done[topic] for topic in ("Data", "Network", "Choice") if topic in done]
    return "; ".join(re.split(r"; |\. |\.$", text)[0] for text in texts) + ("." if texts else "")


def _interval_of(document: Document) -> str:
    """The source of the intervals in the first figure."""
    enough = [len(row.seeds) >= MIN_SEEDS for row in document.rows]
    if all(enough):
        return "over seeds"
    few = f"of the test images only{' where' if any(enough) else ', because'} there are fewer than {MIN_SEEDS} seeds"
    return f"over seeds, {few}" if any(enough) else few


def _first_seed(document: Document) -> str:
    """Which of several runs the sections about one run show; empty if there is only one."""
    row = document.rows[0]
    return f" This section shows the run with seed {row.seeds[0]}." if len(row.seeds) > 1 else ""


def _classes_section(document: Document) -> dict[str, Any] | None:
    """The row that the report describes beside the best random subset with the same budgets; None without one."""
    ours, *others = document.rows
    randoms = [row for row in others if row.role == "random" and same_budgets(ours, row)]
    if document.classes is None or ours.role != "selected" or not randoms:
        return None
    other = max(randoms, key=mean_accuracy)
    fewest = min((images for images in document.classes.images if images), default=1)
    error = max(sampling_error(mean_accuracy(row), fewest) for row in (ours, other))
    return {
        "heads": ["test images", ours.label, other.label, "difference in points"],
        "lines": class_lines(document.classes, ours.name, other.name),
        "number": len(document.classes.names),
        "error": f"{fewest:,} images allow an error of about ±{100 * error:.0f} points (95 %).",
        "worst": worst_sentence(document.classes, {row.name: row.label for row in (ours, other)}),
    }


#: What a score that is named by an abbreviation says.
_MEANINGS = {
    "EL2N": "the length of the error (predicted probabilities minus the label). A large value means a hard image",
    "GraNd": "the length of the gradient. A large value means a hard image",
    "DUAL": "large if the label is improbable on average and its probability varies",
}


def _subset_section(subset: Subset | None) -> dict[str, Any] | None:
    if subset is None:
        return None
    many = len(subset.class_names) > MOST_CLASSES
    histogram = subset.score_histogram
    return {
        "table": subset,
        "meaning": _MEANINGS.get(subset.score_name),
        "num_candidates": sum(subset.candidates_per_class),
        "bars": class_bars(subset),
        "class_figure": Markup(figures.class_figure(kept_shares(subset))) if many else None,
        "score_figure": Markup(figures.score_figure(histogram, subset.score_name)) if histogram else None,
        "montages": [
            (title, examples, _by_class(montage(examples), subset.class_names))
            for title, examples in (("Kept", subset.kept_examples), ("Dropped", subset.dropped_examples))
            if examples
        ],
    }


@dataclass(frozen=True)
class ClassBar:
    """One class: kept samples and candidates, and both in per cent of the largest class, for drawing."""

    name: str
    kept: int
    candidates: int
    kept_width: float
    candidates_width: float


def class_bars(subset: Subset) -> list[ClassBar]:
    """A bar per class. With many classes, only those with the largest and the smallest kept share."""
    largest = max(subset.candidates_per_class, default=0) or 1
    counts = zip(subset.class_names, subset.kept_per_class, subset.candidates_per_class, strict=True)
    bars = [ClassBar(name, kept, of, 100 * kept / largest, 100 * of / largest) for name, kept, of in counts]
    if len(bars) <= MOST_CLASSES:
        return bars
    ranked = sorted(bars, key=lambda bar: bar.kept / max(bar.candidates, 1), reverse=True)
    return ranked[:EXTREME_CLASSES] + ranked[-EXTREME_CLASSES:]


def kept_shares(subset: Subset) -> list[float]:
    """Share kept of every class that has candidates."""
    pairs = zip(subset.kept_per_class, subset.candidates_per_class, strict=True)
    return [kept / candidates for kept, candidates in pairs if candidates]


def _by_class(shown: Sequence[tuple[Example, bool]], names: Sequence[str]) -> list[tuple[Example, bool]]:
    """Examples of `montage` by class, then by score."""
    place = {name: at for at, name in enumerate(names)}
    return sorted(shown, key=lambda each: (place.get(each[0].label, len(place)), each[0].score or 0.0))


def montage(examples: Sequence[Example]) -> list[tuple[Example, bool]]:
    """The examples that fit on the page; True if an example is tiny and must be enlarged without smoothing."""
    shown, used = [], 0
    for example in examples:
        used += len(example.png_base64)
        if used > _MAX_MONTAGE_BASE64:
            break
        shown.append((example, _png_width(example.png_base64) <= _TINY_PX))
    return shown


def _png_width(png_base64: str) -> int:
    """Width in pixels from the header: 8 bytes of signature, then the length and name of the first chunk."""
    return int.from_bytes(base64.b64decode(png_base64[:32])[16:20], "big")


def accounting_lines(accounting: PaperAccounting) -> list[tuple[str, str, str]]:
    """A line per quantity: its name, the paper's number, ours."""
    names = {
        "pre-training": "pretrain_epochs",
        "selection passes": "selection_epochs",
        "race": "race_epochs",
        "main training": "main_epochs",
        "classic pipeline": "classic_epochs",
        "full training": "full_epochs",
    }
    lines = [
        (label, _epochs(accounting.paper, name), _epochs(accounting.measured, name)) for label, name in names.items()
    ]
    saved = [format_percent(side.saved_vs_classic, 1) for side in (accounting.paper, accounting.measured)]
    there = [line for line in lines if line[0] != "race" or line[1:] != (DASH, DASH)]
    return [*there, ("saved against classic", saved[0], saved[1])]


def _epochs(side: Accounting, name: str) -> str:
    value = getattr(side, name)
    return DASH if value is None else f"{value:.4g}"
