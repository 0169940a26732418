"""The same comparison and verdict on a terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from lipt.report.document import Row
from lipt.report.humanize import format_seconds
from lipt.report.table import COLUMNS, comparison_groups
from lipt.report.verdict import Verdict
from lipt.report.views import stage_names

_STYLES = {"wins": "green", "loses": "red", "tie": "yellow", "mixed": "yellow"}


def comparison_table(rows: Sequence[Row]) -> Table:
    """One section per pair of budgets; labels are taken literally, never as markup."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("method", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column.heading, justify="right")
    for group in comparison_groups(rows):
        for line in group:
            label = Text(line.label, style="bold" if line.role == "selected" else "")
            cells = [Text(cell.text, style=_STYLES.get(cell.tone, "")) for cell in line.cells]
            table.add_row(label, *cells)
        table.add_section()
    return table


def stage_table(rows: Sequence[Row]) -> Table:
    """Wall-clock of each stage, mean over seeds."""
    stages = stage_names(rows)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("wall-clock", no_wrap=True)
    for stage in stages:
        table.add_column(stage, justify="right")
    for row in rows:
        table.add_row(Text(row.label), *(format_seconds(row.stage_wall_s.get(stage)) for stage in stages))
    return table


def verdict_text(verdict: Verdict) -> Text:
    """The headline, coloured by its level, and a line per sentence."""
    text = Text(verdict.headline, style=f"bold {_STYLES.get(verdict.level, '')}".strip())
    for sentence in verdict.sentences:
        text.append(f"\n  {sentence}", style="not bold default")
    return text
