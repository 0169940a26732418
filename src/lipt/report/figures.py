"""The figures of the report, each a function from a part of the document to an inline SVG."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lipt.report.document import Curve, Row
from lipt.report.merging import MergeTable
from lipt.report.numbers import format_budget
from lipt.report.significance import accuracy_interval, group_by_budgets, mean_accuracy
from lipt.report.subset import Histogram
from lipt.report.svg import ACCENT, BAD, INK, MUTED, PAPER, PLAIN, SERIES, draw
from lipt.report.words import steps_of

_PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.4g} %")
PENS: list[dict[str, Any]] = [
    {"color": color, "linestyle": line, "marker": marker}
    for line, marker in (("-", None), ("--", "o"), ("-.", "s"))
    for color in SERIES
]
_NUM_COLOURED = len(SERIES) - 1
"""Curves with a colour, where there are more than pens. The last colour looks like the grey of the others."""
_GREY: dict[str, Any] = {"color": PLAIN, "linewidth": 0.7}
_MAX_LABEL = 34
MIN_SPAN = 0.1
"""Least span of an accuracy axis: a fraction of a point must not look like a big difference."""


def shorten(text: str) -> str:
    """One line of printable characters, at most `_MAX_LABEL` long, so that names cannot break the layout of a figure.

    `METHOD [RUN]`, of several runs side by side, loses the end of the method and the beginning of the run: the digest
    at the end of a run's name tells two runs apart.
    """
    clean = "".join(char if char.isprintable() else " " for char in text)
    if len(clean) <= _MAX_LABEL:
        return clean
    method, bracket, run = clean.rpartition(" [")
    if not bracket or not run.endswith("]"):
        return clean[: _MAX_LABEL - 1] + "…"
    most = 2 * _MAX_LABEL // 3
    if len(run) + 2 > most:
        run = "…" + run[-(most - 3) :]
    return f"{method[: _MAX_LABEL - len(run) - 3].rstrip()}… [{run}"


def accuracy_figure(rows: Sequence[Row]) -> str:
    """Accuracy of every row, grouped by budgets: a dot per seed, a bar at the mean, a line for its interval."""
    groups = group_by_budgets(rows)

    def plot(axes: Axes) -> None:
        ticks, labels, position = [], [], 0.0
        for group in groups:
            first = group[0]
            shares = f"{format_budget(first.kept_fraction)} kept, {format_budget(first.epoch_fraction)} per epoch"
            budget = f"{shares}, {steps_of(first)}"
            axes.text(0, position, budget, transform=axes.get_yaxis_transform(), color=MUTED, fontsize=8.5, va="center")
            for row in group:
                position += 1
                _accuracy_line(axes, row, position)
                ticks.append(position)
                labels.append(shorten(row.label))
            position += 1.2
        axes.set_yticks(ticks, labels)
        axes.tick_params(axis="y", labelcolor=INK, length=0)
        axes.set_ylim(position - 0.6, -0.6)
        low, high = accuracy_limits(rows)
        axes.set_xlim(low, high)
        chances = {row.chance for row in rows}  # of runs side by side each can have its own test images
        if len(chances) == 1 and low < rows[0].chance < high:
            axes.axvline(rows[0].chance, color=MUTED, linestyle=":", linewidth=1.2)
        axes.grid(axis="y", visible=False)
        axes.spines.left.set_visible(False)
        axes.xaxis.set_major_formatter(_PERCENT)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("test accuracy, last epoch")

    height_in = 0.7 + 0.25 * len(rows) + 0.3 * len(groups)
    return draw("accuracy", "Test accuracy by method and seed", plot, height_in=height_in, width_in=6.6)


def _accuracy_line(axes: Axes, row: Row, position: float) -> None:
    color = {"selected": ACCENT, "random": INK}.get(row.role, PLAIN)
    axes.plot(accuracy_interval(row), [position] * 2, "-", color=color, linewidth=1.2)
    axes.plot(row.accuracy, [position] * len(row.accuracy), "o", color=color, markersize=4.5, alpha=0.55, mew=0)
    axes.plot([mean_accuracy(row)], [position], "|", color=color, markersize=13, mew=2.2)


def accuracy_limits(rows: Sequence[Row]) -> tuple[float, float]:
    """Limits of the axis: all intervals and seeds, and at least `MIN_SPAN`."""
    values = [value for row in rows for value in (*row.accuracy, *accuracy_interval(row))]
    low, high = min(values), max(values)
    margin = max(0.02 * (high - low), (MIN_SPAN - (high - low)) / 2)
    low, high = low - margin, high + margin
    shift = max(0.0, -low) - max(0.0, high - 1)  # into 0..1, without losing span
    return max(0.0, low + shift), min(1.0, high + shift)


def soup_figure(merge: MergeTable) -> str | None:
    """Validation accuracy along the merge of the jigsaws, or of the groups; None if none was measured."""
    what = "group" if merge.groups else "jigsaw"
    steps = [step for step in merge.groups or merge.steps if step.accuracy is not None]
    if not steps:
        return None

    def plot(axes: Axes) -> None:
        for kept, color, label in ((True, ACCENT, f"{what}, kept"), (False, PLAIN, f"{what}, not kept")):
            points = [(at, step.accuracy) for at, step in enumerate(steps, start=1) if step.kept is kept]
            if points:
                face = color if kept else PAPER
                axes.plot(*zip(*points, strict=True), "o", color=color, mfc=face, markersize=5, label=label)
        path = [
            (at, step.validation_after) for at, step in enumerate(steps, start=1) if step.validation_after is not None
        ]
        if path:
            axes.plot(*zip(*path, strict=True), color=INK, drawstyle="steps-post", label="soup so far")
        for value, style, label in (
            (merge.theta_star_accuracy, "--", "theta_* (before the swarm)"),
            (merge.uniform_accuracy, ":", "uniform average"),
        ):
            if value is not None:
                axes.axhline(value, color=MUTED, linestyle=style, linewidth=1.2, label=label)
        axes.yaxis.set_major_formatter(_PERCENT)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(f"order of merging (best {what} first)")
        axes.set_ylabel("validation accuracy")

    return draw("soup", "Validation accuracy along the merge", plot, height_in=2.9)


def score_figure(histogram: Histogram, score_name: str) -> str:
    """Distributions of the scores of kept and of dropped candidates, each summing to 1.

    Shares, not counts: at a budget of 1 % the kept ones would be invisible in a stack of counts.
    """

    def plot(axes: Axes) -> None:
        for counts, color, label in ((histogram.dropped, PLAIN, "dropped"), (histogram.kept, ACCENT, "kept")):
            total = sum(counts)
            if total:
                shares = [count / total for count in counts]
                axes.stairs(shares, histogram.edges, fill=True, color=color, alpha=0.3, linewidth=0)
                axes.stairs(shares, histogram.edges, color=color, linewidth=1.6, label=f"{label} ({total:,})")
        axes.yaxis.set_major_formatter(_PERCENT)
        axes.set_xlabel(shorten(score_name) or "score")
        axes.set_ylabel("share of the group")
        axes.grid(axis="x", visible=False)

    return draw("scores", "Distribution of scores, kept and dropped", plot)


def class_figure(kept_shares: Sequence[float]) -> str:
    """Kept share of every class, sorted, because a thousand bars would hide the shape."""

    def plot(axes: Axes) -> None:
        shares = sorted(kept_shares, reverse=True)
        axes.fill_between(range(1, len(shares) + 1), shares, step="mid", color=ACCENT, alpha=0.25, lw=0)
        axes.step(range(1, len(shares) + 1), shares, where="mid", color=ACCENT)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(_PERCENT)
        axes.set_xlabel("classes, sorted")
        axes.set_ylabel("share kept")

    return draw("classes", "Share kept of every class, sorted", plot)


def training_figures(curves: Sequence[Curve], rows: Sequence[Row]) -> list[str]:
    """Training loss and training accuracy, if they have points."""
    plot = partial(_plot_curves, curves=curves, coloured=coloured_curves(curves, rows))
    return [
        draw(name, f"{label.capitalize()} by epoch", partial(plot, series=series, label=label))
        for name, label, series in (
            ("loss", "training loss", "train_loss"),
            ("curves", "training accuracy", "train_accuracy"),
        )
        if any(getattr(curve, series) for curve in curves)
    ]


def coloured_curves(curves: Sequence[Curve], rows: Sequence[Row]) -> list[str]:
    """Names of the curves with a pen of their own: of all, if there are enough pens. Else of
    `_NUM_COLOURED`: the best selected row, the best random one, then the most accurate others."""
    if len(curves) <= len(PENS):
        return [curve.name for curve in curves]
    best_first = sorted(rows, key=mean_accuracy, reverse=True)
    best = {row.role: row for row in reversed(best_first)}
    leaders = [best[role] for role in ("selected", "random") if role in best]
    return [*dict.fromkeys(row.label for row in (*leaders, *best_first))][:_NUM_COLOURED]


def _plot_curves(axes: Axes, curves: Sequence[Curve], coloured: Sequence[str], series: str, label: str) -> None:
    """A line per curve: each of `coloured` with its own pen, the first on top; the others grey."""
    pens = dict(zip(coloured, PENS, strict=False))
    grey = []
    for order, curve in enumerate(sorted(curves, key=lambda curve: curve.name not in pens)):
        values = getattr(curve, series)
        points = [(at, value) for at, value in zip(curve.epoch, values, strict=False) if value is not None]
        if not points:
            continue
        style = pens.get(curve.name, _GREY) | ({"marker": "o"} if len(points) == 1 else {})
        every = max(1, len(points) // 8)
        style |= {"markersize": 4, "markevery": (order % every, every), "zorder": 3 - 0.01 * order}
        line = axes.plot(*zip(*points, strict=True), **style)
        if curve.name in pens:
            line[0].set_label(shorten(curve.name))
        else:
            grey += line
        if values[-1] is None:  # not finite any more: the training diverged
            axes.plot(*points[-1], "x", color=BAD, markersize=8, mew=2)
    if grey:
        grey[-1].set_label(f"{len(grey)} others")
    if series == "train_accuracy":
        axes.yaxis.set_major_formatter(_PERCENT)
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)
