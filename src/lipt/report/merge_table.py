"""The soup as tables: reference accuracies, and a line per ingredient."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from lipt.report import figures
from lipt.report.comparison import Cell, filled
from lipt.report.merging import JigsawRow, MergeTable
from lipt.report.numbers import DASH, format_percent

_COLUMNS = ("group", "own accuracy", "density", "best α", "outcome", "batch norm", "soup after", "note")


def merge_section(merge: MergeTable | None) -> dict[str, Any] | None:
    """What the page shows of the merge; None if nothing was merged."""
    if merge is None:
        return None
    figure = figures.soup_figure(merge)
    return {
        "table": merge,
        "figure": Markup(figure) if figure else None,
        "references": [
            ("theta_* (before the swarm)", merge.theta_star_accuracy),
            ("best group" if merge.groups else "best single jigsaw", merge.best_single_accuracy),
            ("uniform average of the groups" if merge.groups else "uniform average", merge.uniform_accuracy),
            ("theta_p (the result)", merge.soup_accuracy),
        ],
        "groups": ingredients(merge.groups),
        "steps": ingredients(merge.steps),
    }


def ingredients(steps: Sequence[JigsawRow]) -> tuple[list[str], list[tuple[JigsawRow, list[Cell]]]]:
    """The headings of the columns that have a value in some line, and each jigsaw or group with its cells."""
    lines = [_cells(step) for step in steps]
    shown = filled(lines)
    return [_COLUMNS[at] for at in shown], [
        (step, [line[at] for at in shown]) for step, line in zip(steps, lines, strict=True)
    ]


def _cells(step: JigsawRow) -> list[Cell]:
    """A cell per entry of `_COLUMNS`."""
    outcome = "missing" if step.missing else "kept" if step.kept else "not kept"
    return [
        Cell(DASH if step.group is None else str(step.group)),
        Cell(format_percent(step.accuracy)),
        Cell(DASH if step.density is None else f"{step.density:.3f}"),
        Cell(DASH if step.alpha is None else f"{step.alpha:.3g}"),
        Cell(outcome, {"kept": "wins", "missing": "loses"}.get(outcome, "")),
        Cell(step.batchnorm or DASH),
        Cell(format_percent(step.validation_after)),
        Cell(step.note, "note"),
    ]
