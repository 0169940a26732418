"""The table of algorithms in its page, from `lipt.selection.describe`."""

from __future__ import annotations

from pathlib import Path

from lipt.selection import ALGORITHMS, describe

PAGE = Path(__file__).parents[1] / "reference/algorithms.md"
START, END = "<!-- `make reference` writes this table. -->\n", "<!-- End of the table. -->\n"
_HEAD = "| name | picks | needs | options (default first) | source | time | use it |\n|---|---|---|---|---|---|---|\n"


def text() -> str:
    """The page with a new table between the two comments."""
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    return f"{before}{START}\n{_HEAD}{''.join(map(_row, ALGORITHMS))}\n{END}{rest.split(END)[1]}"


def _row(name: str) -> str:
    found = describe(name)
    options = ", ".join(f"`{option.name}` ({option.values})" for option in found.options)
    cells = f"`{name}`", found.picks, found.needs, options, found.source, found.time, found.use
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
