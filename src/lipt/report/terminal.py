"""Tables on a terminal: every figure is whole, columns go where there is no room for them all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

#: Wider than any table.
_ENDLESS = 10_000

#: A table of some of its columns.
Build = Callable[[Collection[str]], Table]


def print_table(build: Build, importance: Sequence[str], *, whole: bool) -> None:
    """Print a table on stdout; on a terminal that is too narrow without its least important columns, which are named.

    Args:
        importance: all headings, the most important first.
        whole: every column, however wide the terminal is. A pipe always gets all.
    """
    width = None if whole or not sys.stdout.isatty() else Console().width
    table, left_out = fitted(build, importance, width)
    # Where not even the first column has room, the terminal breaks the line: nothing is cut off.
    console = Console(width=max(width or _ENDLESS, _widths(table).minimum), soft_wrap=True)
    console.print(table)
    if left_out:
        console.print(Text(f"-v shows {', '.join(left_out)} too", style="dim"))


def print_text(text: Text) -> None:
    """Print text on stdout: on a terminal lines break between words, a pipe gets them whole."""
    terminal = sys.stdout.isatty()
    Console(width=None if terminal else _ENDLESS).print(text, soft_wrap=not terminal)


def fitted(build: Build, importance: Sequence[str], width: int | None) -> tuple[Table, list[str]]:
    """The table with as many columns as fit, at least one, and the headings of those that do not.

    Args:
        width: in characters; None for any.
    """
    shown, left_out = list(importance), list[str]()
    table = build(shown)
    while width is not None and len(shown) > 1 and _widths(table).maximum > width:
        left_out.insert(0, shown.pop())
        table = build(shown)
    return table, left_out


def _widths(table: Table) -> Measurement:
    console = Console(width=_ENDLESS)
    return Measurement.get(console, console.options, table)
