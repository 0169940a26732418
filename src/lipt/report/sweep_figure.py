"""The figure of a sweep: accuracy over the first axis of each grid, with intervals, and the paper's numbers."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, Literal

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lipt.report.document import Row
from lipt.report.significance import accuracy_interval, mean_accuracy
from lipt.report.sweep import Result, text_of

_STYLE: dict[Any, Any] = {"svg.hashsalt": "lipt", "text.parse_math": False, "font.size": 9.5, "axes.grid": True}


def figure(
    results: Sequence[Result],
    paper: Callable[[Mapping[str, Any]], float | str | None],
    *,
    over: Literal["", "data_bytes"],
) -> str:
    """An SVG with a panel per grid, the same bytes every time; the paper's numbers have a panel of their own.

    Args:
        paper: the paper's number at a point, as of `sweep.table`.
        over: the quantity on the horizontal axis, in place of the first axis of the grid.
    """
    panels: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        panels.setdefault(tuple(result.point), []).append(result)
    printed = [result for result in results if isinstance(paper(result.point), float | int)]
    with style.context(("default", _STYLE)):
        drawn = Figure(figsize=(4.6 * (len(panels) + bool(printed)), 3.8), layout="constrained")
        axes = drawn.subplots(1, len(panels) + bool(printed), squeeze=False)[0]
        if printed:
            _paper_panel(axes[0], printed, paper)
        for panel, found in zip(axes[bool(printed) :], panels.values(), strict=True):
            _panel(panel, found, over)
        buffer = io.StringIO()
        drawn.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator")))
    return buffer.getvalue()


def _paper_panel(
    panel: Axes, results: Sequence[Result], paper: Callable[[Mapping[str, Any]], float | str | None]
) -> None:
    positions = _places(results)
    for name, line in _lines(results).items():
        numbers = [float(paper(each.point) or 0) for each in line]
        panel.plot([positions[_first(each)] for each in line], numbers, "o-", label=name)
    _finish(panel, results, "paper")


def _panel(panel: Axes, results: Sequence[Result], over: str) -> None:
    positions = _places(results)

    def place(result: Result, row: Row) -> float:
        return (getattr(row, over) or 0) / 1e6 if over else positions[_first(result)]

    def show(line: Sequence[Result], rows: Sequence[Row], **pen: Any) -> None:
        means = [100 * mean_accuracy(row) for row in rows]
        ends = [accuracy_interval(row) for row in rows]
        errors = [
            [mean - 100 * low for mean, (low, _) in zip(means, ends, strict=True)],
            [100 * high - mean for mean, (_, high) in zip(means, ends, strict=True)],
        ]
        across = [place(each, row) for each, row in zip(line, rows, strict=True)]
        panel.errorbar(across, means, yerr=errors, capsize=2, **pen)

    for name, line in _lines(results).items():
        show(line, [each.ours for each in line], marker="o", label=name)
    one_each = list({_first(each): each for each in results}.values())
    grays = cycle(("0.55", "0.75"))
    for name, label in (("stratified", "random"), ("rs2", "RS2")):
        found = [(each, row) for each in one_each if (row := each.row(name))]
        if found:
            pen = {"color": next(grays), "linestyle": "--", "marker": ".", "label": label}
            show([each for each, _ in found], [row for _, row in found], **pen)
    _finish(panel, results, "ours", "MB of training data read and written" if over else "")


def _finish(panel: Axes, results: Sequence[Result], title: str, label: str = "") -> None:
    positions = _places(results)
    panel.set_title(title)
    panel.set_ylabel("test accuracy in %")
    panel.set_xlabel(label or next(iter(results[0].point)))
    if not label:
        panel.set_xticks(list(positions.values()), list(positions))
    panel.legend(fontsize=8)


def _first(result: Result) -> str:
    return text_of(next(iter(result.point.values())))


def _places(results: Sequence[Result]) -> dict[str, float]:
    """The places of the values of the first axis: equally far apart, because they are often names."""
    return {name: float(place) for place, name in enumerate(dict.fromkeys(map(_first, results)))}


def _lines(results: Sequence[Result]) -> dict[str, list[Result]]:
    """A line per combination of the other axes."""
    lines: dict[str, list[Result]] = {}
    for result in results:
        name = ", ".join(text_of(value) for value in list(result.point.values())[1:]) or "ours"
        lines.setdefault(name, []).append(result)
    return lines
