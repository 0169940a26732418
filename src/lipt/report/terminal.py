"""The comparison and the verdict on a terminal. Figures are never cut; columns are omitted if there is no room."""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from lipt.report.certainty import all_statements
from lipt.report.comparison import COLUMNS, comparison_groups, stage_names
from lipt.report.costs import spent_sentence
from lipt.report.document import Document, Row
from lipt.report.next_step import Origin
from lipt.report.numbers import DASH, format_percent, format_seconds
from lipt.report.race import race_error, race_result, round_headings
from lipt.report.side_by_side import NOT_COMPARABLE
from lipt.report.significance import in_groups
from lipt.report.sweep import LEGEND, OURS, TableTexts
from lipt.report.verdict import Verdict

#: Wider than any table.
_ENDLESS = 10_000

_STYLES = {"wins": "green", "loses": "red", "tie": "yellow", "mixed": "yellow"}
#: The most important headings of the comparison; others are less important.
_FIRST = ("accuracy", "vs random", "data kept", "steps", "wall-clock", "per epoch", "sd", "worst class", "images",
          "FLOPs", "data")  # fmt: skip

#: Labels are broken behind this many characters if the width is limited: figures tell more than long labels.
_LABEL_WIDTH = 36

#: Makes a table with some of its columns.
Build = Callable[[Collection[str]], Table]


def print_report(
    document: Document,
    verdict: Verdict,
    *,
    whole: bool,
    origins: Mapping[str, Origin] | None = None,
) -> None:
    """Print the comparison, the wall-clock of each stage, the race, whether runs side by side have other data, the
    verdict, what was lost and the next step on stdout.

    Args:
        whole: as for `print_table`.
        origins: as for `NextStep.commands`.
    """
    rows = document.rows
    print_table(lambda shown: comparison_table(rows, shown), column_importance(rows), whole=whole)
    print()
    print_table(lambda shown: stage_table(rows, shown), stage_importance(rows), whole=whole)
    print()
    if document.race:
        print_table(lambda shown: race_table(document, shown), race_importance(document), whole=whole)
        if error := race_error(document):
            print_text(error)
        print()
    if sentence := spent_sentence(document.ledger):
        print_text(Text(f"{sentence}\n"))
    if (said := document.done.get("Comparable", "")).startswith(NOT_COMPARABLE):
        print_text(Text(f"Comparable: {said}\n", style="yellow"))
    print_text(verdict_text(verdict))
    for note in document.provenance.notes:
        print_text(Text(note, style="yellow"))
    for sentence in all_statements(document.score_checks):
        print_text(Text(sentence, style="yellow" if sentence.startswith("Warning") else ""))
    if verdict.next_step:
        known = origins or {}
        print_text(f"\n{verdict.next_step.introduction(known)}\n")
        for command in verdict.next_step.commands(known):
            print(command)  # a terminal may break it, but no line of it changes


def print_table(build: Build, importance: Sequence[str], *, whole: bool, hidden: Sequence[str] = ()) -> None:
    """Print a table on stdout. A narrow terminal omits the least important columns and names them.

    Args:
        importance: all headings, the most important first.
        whole: every column, however wide the terminal is. A pipe always gets all.
        hidden: what else only -v shows.
    """
    width = None if whole or not sys.stdout.isatty() else Console().width
    table, left_out = fitted(build, importance, width)
    # If not even the first column fits, the terminal breaks the line: nothing is cut off.
    console = Console(width=max(width or _ENDLESS, _widths(table).minimum), soft_wrap=True)
    console.print(table)
    if more := [*left_out, *hidden]:
        print_text(Text(f"-v shows {', '.join(more)} too", style="dim"))


def print_text(text: Text | str, *, hanging: bool = False) -> None:
    """Print text on stdout. A terminal breaks lines between words; a pipe gets whole lines.

    Args:
        hanging: where a line goes on, indent it, so that it is told from the next one.
    """
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else _ENDLESS)
    plain = Text(text) if isinstance(text, str) else text  # rich reads markup in a str
    console.print(_broken(plain, console, hanging=hanging) if terminal else plain, soft_wrap=True)


def _broken(text: Text, console: Console, *, hanging: bool) -> Text:
    """The text with lines that fit. Where an indented line goes on, it is indented further; with `hanging`, any."""
    lines = list[Text]()
    for line in text.split("\n", allow_blank=True):
        indent = len(line) - len(line.plain.lstrip())
        further = indent + 2 if indent or hanging else 0
        first, *rest = line[indent:].wrap(console, max(1, console.width - further))
        lines.append(Text(" " * indent).append_text(first))
        lines += [Text(" " * further).append_text(part) for part in rest]
    return Text("\n").join(lines)


def fitted(build: Build, importance: Sequence[str], width: int | None) -> tuple[Table, list[str]]:
    """The table with as many columns as fit, at least one, and the headings of the omitted ones.

    Args:
        width: in characters; None for any.
    """
    shown, left_out = list(importance), list[str]()
    table = build(shown)
    if width is None or _widths(table).maximum <= width:
        return table, left_out
    while True:
        table.columns[0].max_width = _LABEL_WIDTH
        if len(shown) == 1 or _widths(table).maximum <= width:
            return table, left_out
        left_out.insert(0, shown.pop())
        table = build(shown)


def _widths(table: Table) -> Measurement:
    console = Console(width=_ENDLESS)
    return Measurement.get(console, console.options, table)


def column_importance(rows: Sequence[Row]) -> list[str]:
    """The headings of the comparison, the most important first.

    A budget that differs comes before the difference from random, which holds only at its own budget. A column that
    has one value in all rows tells nothing about them, and comes last.
    """
    lines = [[*line.results, *line.costs] for group in comparison_groups(rows) for line in group]
    values = {column.heading: [line[index].text for line in lines] for index, column in enumerate(COLUMNS)}
    differ = {heading for heading, texts in values.items() if len(set(texts)) > 1}
    order = list(_FIRST)
    if values["per epoch"] != values["data kept"]:  # else they are one budget
        order.insert(1, "per epoch")
    order.insert(1, "data kept")
    fixed = ("accuracy", "vs random")

    def rank(heading: str) -> tuple[bool, int]:
        place = order.index(heading) if heading in order else len(order)
        return len(rows) > 1 and heading not in (*differ, *fixed), place

    return sorted(values, key=rank)


def _empty_table(labels: Sequence[str], numbers: Sequence[str]) -> Table:
    """The headings of columns of labels, then of columns of numbers."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in labels:
        table.add_column(Text(heading))
    for heading in numbers:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    return table


def comparison_table(rows: Sequence[Row], shown: Collection[str]) -> Table:
    """One section per pair of budgets. Labels are shown literally, never as markup.

    Args:
        shown: headings of columns.
    """
    kept = [index for index, column in enumerate(COLUMNS) if column.heading in shown]
    table = _empty_table(["method"], [COLUMNS[index].heading for index in kept])
    for group in comparison_groups(rows):
        for line in group:
            label = Text(line.label, style="bold" if line.role == "selected" else "")
            cells = [Text(cell.text, style=_STYLES.get(cell.tone, "")) for cell in (*line.results, *line.costs)]
            table.add_row(label, *(cells[index] for index in kept))
        table.add_section()
    return table


def stage_importance(rows: Sequence[Row]) -> list[str]:
    """The stages, the longest first."""
    return sorted(stage_names(rows), key=lambda stage: -max(row.stage_wall_s.get(stage) or 0.0 for row in rows))


def stage_table(rows: Sequence[Row], shown: Collection[str]) -> Table:
    """Wall-clock of each stage, mean over seeds.

    Args:
        shown: stages.
    """
    stages = [stage for stage in stage_names(rows) if stage in shown]
    table = _empty_table(["wall-clock"], stages)
    for row in in_groups(rows):
        table.add_row(Text(row.label), *(format_seconds(row.stage_wall_s.get(stage)) for stage in stages))
    return table


def race_importance(document: Document) -> list[str]:
    """The result of the race and its rounds, the last round first."""
    return ["result", *reversed(round_headings(document))]


def race_table(document: Document, shown: Collection[str]) -> Table:
    """Validation accuracy of each contestant after each round, and who won.

    Args:
        shown: rounds and `result`.
    """
    rounds = round_headings(document)
    kept = [heading for heading in (*rounds, "result") if heading in shown]
    seeds = document.rows[0].seeds
    table = _empty_table([f"race{f' of seed {seeds[0]}' if len(seeds) > 1 else ''}, validation accuracy"], kept)
    for row in document.race:
        reached = zip_longest(rounds, map(format_percent, row.accuracies), fillvalue=DASH)
        cells = dict(reached) | {"result": race_result(row)}
        table.add_row(Text(row.label, style="bold" if row.won else ""), *(cells[heading] for heading in kept))
    return table


def print_sweep(found: TableTexts, claims: Sequence[Sequence[str]] = (), *, whole: bool) -> None:
    """Print the points of a sweep, how to read them, and the claims that were tested on them (`claim_rows`).

    Args:
        whole: as for `print_table`.
    """
    print_table(lambda shown: sweep_table(found, shown), sweep_importance(found), whole=whole)
    print_text(Text(LEGEND, style="dim"))
    if claims:
        print()
    for claim, gain, _, seeds, holds in claims:
        print_text(f"{claim}: {holds} ({gain.strip('*')}, n {seeds})")


def sweep_importance(found: TableTexts) -> list[str]:
    """The headings of a sweep's table, the most important first: ours, the gains, seeds, the other rows, the costs."""
    first = [OURS, *found.gains, "n"]
    return [*first, *(heading for heading in found.headings if heading not in first)]


def sweep_table(found: TableTexts, shown: Collection[str]) -> Table:
    """A line per point, its axes first.

    Args:
        shown: other headings.
    """
    kept = [index for index, heading in enumerate(found.headings) if heading in shown]
    table = _empty_table(found.axes, [found.headings[index] for index in kept])
    for row in found.rows:
        cells = row[len(found.axes) :]
        shown_cells = [Text(cells[index].strip("*"), style="bold" if cells[index][:1] == "*" else "") for index in kept]
        table.add_row(*map(Text, row[: len(found.axes)]), *shown_cells)
    return table


def verdict_text(verdict: Verdict) -> Text:
    """The headline, coloured by its level, and a line per sentence, below the name of its run."""
    text = Text(verdict.headline, style=f"bold {_STYLES.get(verdict.level, '')}".strip())
    for run, sentences in verdict.runs.items():
        text.append(f"\n  {run}", style="default")
        text.append("".join(f"\n    {sentence}" for sentence in sentences), style="not bold default")
    text.append("".join(f"\n  {sentence}" for sentence in verdict.common), style="not bold default")
    return text
