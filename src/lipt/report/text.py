"""The same comparison and verdict on a terminal."""

from collections.abc import Collection, Sequence

from rich.table import Table
from rich.text import Text

from lipt.report.document import Row
from lipt.report.numbers import format_seconds
from lipt.report.table import COLUMNS, comparison_groups
from lipt.report.verdict import Verdict
from lipt.report.views import stage_names

_STYLES = {"wins": "green", "loses": "red", "tie": "yellow", "mixed": "yellow"}


#: Headings of the comparison that matter most; those that are not named matter less.
_FIRST = ("accuracy", "vs random", "data kept", "per epoch", "wall-clock", "FLOPs", "data", "pre-training")


def column_importance() -> list[str]:
    """The headings of the comparison, the most important first."""
    headings = [column.heading for column in COLUMNS]
    return sorted(headings, key=lambda heading: _FIRST.index(heading) if heading in _FIRST else len(_FIRST))


def comparison_table(rows: Sequence[Row], shown: Collection[str] | None = None) -> Table:
    """One section per pair of budgets; labels are taken literally, never as markup.

    Args:
        shown: headings; None for all.
    """
    kept = [index for index, column in enumerate(COLUMNS) if shown is None or column.heading in shown]
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("method")
    for index in kept:
        table.add_column(COLUMNS[index].heading, justify="right", no_wrap=True)
    for group in comparison_groups(rows):
        for line in group:
            label = Text(line.label, style="bold" if line.role == "selected" else "")
            cells = [Text(cell.text, style=_STYLES.get(cell.tone, "")) for cell in line.cells]
            table.add_row(label, *(cells[index] for index in kept))
        table.add_section()
    return table


def stage_importance(rows: Sequence[Row]) -> list[str]:
    """The stages, the longest first."""
    return sorted(stage_names(rows), key=lambda stage: -max(row.stage_wall_s.get(stage) or 0.0 for row in rows))


def stage_table(rows: Sequence[Row], shown: Collection[str] | None = None) -> Table:
    """Wall-clock of each stage, mean over seeds.

    Args:
        shown: stages; None for all.
    """
    stages = [stage for stage in stage_names(rows) if shown is None or stage in shown]
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("wall-clock")
    for stage in stages:
        table.add_column(stage, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(Text(row.label), *(format_seconds(row.stage_wall_s.get(stage)) for stage in stages))
    return table


def verdict_text(verdict: Verdict) -> Text:
    """The headline, coloured by its level, and a line per sentence."""
    text = Text(verdict.headline, style=f"bold {_STYLES.get(verdict.level, '')}".strip())
    for sentence in verdict.sentences:
        text.append(f"\n  {sentence}", style="not bold default")
    return text
