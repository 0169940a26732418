"""Lines, tables and their Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

OURS, CORDS, APRICOT, SUBMODLIB = "lipt", "cords", "apricot", "submodlib"
DEEPCORE, RANDOM = "DeepCore, re-implemented", "random"
_ORDER = (OURS, CORDS, APRICOT, SUBMODLIB, DEEPCORE, RANDOM)


def _place(column: str) -> tuple[int, str]:
    """Position of a column; "cords, CPU solver" belongs to cords."""
    whole_name = _ORDER.index(column) if column in _ORDER else _ORDER.index(column.split(",")[0])
    return whole_name, column


@dataclass
class Line:
    """One property: the values that each side returned, and the test that they must pass."""

    name: str
    holds: Callable[[float], bool] | None
    values: Mapping[str, float | str]
    """By column; a text is shown unchanged."""
    reading: str
    show: Callable[[float], str] = lambda value: f"{value:.3g}"

    def cell(self, column: str) -> str:
        """The figure, marked if it violates the property. Random is shown for comparison and never marked."""
        if column not in self.values:
            return ""
        value = self.values[column]
        text = value if isinstance(value, str) else self.show(value)
        broken = not isinstance(value, str) and self.holds and column != RANDOM and not self.holds(value)
        return f"**{text}** ✗" if broken else text


@dataclass
class Section:
    """A heading, a description of the computation and its input, and the lines."""

    title: str
    intro: str
    lines: Sequence[Line]
    notes: Sequence[str] = field(default_factory=list)

    def markdown(self) -> str:
        used = {column for line in self.lines for column in line.values}
        columns = sorted(used, key=_place)
        rows = [["property", *columns, "comment"], ["---"] * (len(columns) + 2)]
        rows += [[line.name, *(line.cell(column) for column in columns), line.reading] for line in self.lines]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"## {self.title}\n\n{textwrap.fill(self.intro, 120, break_on_hyphens=False)}\n\n{table}\n" + (
            f"{notes}\n" if notes else ""
        )


def percent(value: float) -> str:
    """Whole per cents, with a decimal if rounding would turn slightly less than 100 into 100."""
    return f"{value:.1%}" if 0.99 < value < 0.9995 else f"{value:.0%}"


def whole(value: float) -> str:
    return f"{value:.0f}"


def cost(seconds: float, megabytes: float) -> str:
    """CPU seconds and memory of a run; memory below a megabyte is omitted."""
    return f"{seconds:.2g} s" + (f", {megabytes:.0f} MB" if megabytes >= 1 else "")
