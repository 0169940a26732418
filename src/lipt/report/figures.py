"""The figures of the report, each a function from a part of the document to an inline SVG."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lipt.report.compare import group_by_budgets, mean_accuracy
from lipt.report.document import Curve, Histogram, MergeTable, Row
from lipt.report.humanize import format_budget
from lipt.report.svg import ACCENT, BAD, INK, MUTED, PAPER, PLAIN, SERIES, draw

_PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.4g} %")
_PENS = [(color, line) for line in ("-", "-.") for color in SERIES]
_MAX_LABEL = 34
_MAX_CURVES_WITH_TRAINING = 4
"""With more curves, two lines for each would hide the one that matters."""


def shorten(text: str, limit: int = _MAX_LABEL) -> str:
    """One line of printable characters, at most `limit` long, so that no name breaks the layout of a figure."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def accuracy_figure(rows: Sequence[Row]) -> str:
    """Accuracy of every row: a dot per seed, a bar at the mean, grouped by budgets."""
    groups = group_by_budgets(rows)

    def plot(axes: Axes) -> None:
        ticks, labels, position = [], [], 0.0
        for group in groups:
            first = group[0]
            budget = f"{format_budget(first.kept_fraction)} kept, {format_budget(first.epoch_fraction)} per epoch"
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
        axes.grid(axis="y", visible=False)
        axes.spines.left.set_visible(False)
        axes.xaxis.set_major_formatter(_PERCENT)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("test accuracy, last epoch")

    height_in = 0.7 + 0.25 * len(rows) + 0.3 * len(groups)
    return draw("accuracy", "Test accuracy by method and seed", plot, height_in=height_in, width_in=6.6)


def _accuracy_line(axes: Axes, row: Row, position: float) -> None:
    color = {"selected": ACCENT, "random": INK}.get(row.role, PLAIN)
    axes.plot(row.accuracy, [position] * len(row.accuracy), "o", color=color, markersize=4.5, alpha=0.55, mew=0)
    axes.plot([mean_accuracy(row)], [position], "|", color=color, markersize=13, mew=2.2)


def soup_figure(merge: MergeTable) -> str | None:
    """Validation accuracy along the merge of the workers, or of the groups; None when no worker was measured."""
    what = "group" if merge.groups else "worker"
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
            (merge.theta_star_accuracy, "--", "θ* (before the swarm)"),
            (merge.uniform_accuracy, ":", "uniform average"),
        ):
            if value is not None:
                axes.axhline(value, color=MUTED, linestyle=style, linewidth=1.2, label=label)
        axes.yaxis.set_major_formatter(_PERCENT)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(f"order of merging (best {what} first)")
        axes.set_ylabel("validation accuracy")

    return draw("soup", "Validation accuracy along the merge", plot, height_in=3.6)


def score_figure(histogram: Histogram, score_name: str) -> str:
    """Distributions of the scores of kept and of dropped candidates, each summing to 1.

    Shares and not counts: at a budget of 1 % the kept would be an invisible sliver of a stack.
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
    """Kept share of every class, sorted: the shape that a thousand bars would hide."""

    def plot(axes: Axes) -> None:
        shares = sorted(kept_shares, reverse=True)
        axes.fill_between(range(1, len(shares) + 1), shares, step="mid", color=ACCENT, alpha=0.25, lw=0)
        axes.step(range(1, len(shares) + 1), shares, where="mid", color=ACCENT)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(_PERCENT)
        axes.set_xlabel("classes, sorted")
        axes.set_ylabel("share kept")

    return draw("classes", "Share kept of every class, sorted", plot)


def training_figures(curves: Sequence[Curve]) -> list[str]:
    """Loss, and accuracy on training (thin) and validation data (thick); those that have points."""
    figures = []
    height_in = 3.2 + 0.1 * len(curves)  # the legend grows
    if any(curve.train_loss for curve in curves):
        figures.append(
            draw("loss", "Training loss by epoch", lambda axes: _plot_loss(axes, curves), height_in=height_in)
        )
    if any(curve.train_accuracy or curve.validation_accuracy for curve in curves):
        label = "Training and validation accuracy by epoch"
        figures.append(draw("curves", label, lambda axes: _plot_accuracy(axes, curves), height_in=height_in))
    return figures


def _plot_loss(axes: Axes, curves: Sequence[Curve]) -> None:
    for curve, (color, line) in zip(curves, cycle(_PENS), strict=False):
        name = shorten(curve.name)
        points = _plot_series(axes, curve.epoch, curve.train_loss, color=color, linestyle=line, label=name)
        if points and curve.train_loss[-1] is None:  # not finite any more: the training diverged
            axes.plot(*points[-1], "x", color=BAD, markersize=8, mew=2)
    axes.set_xlabel("epoch")
    axes.set_ylabel("training loss")


def _plot_accuracy(axes: Axes, curves: Sequence[Curve]) -> None:
    for curve, (color, line) in zip(curves, cycle(_PENS), strict=False):
        thick = f"{shorten(curve.name)}, validation"
        _plot_series(
            axes, curve.epoch, curve.validation_accuracy, color=color, linestyle=line, label=thick, linewidth=2.0
        )
        if len(curves) > _MAX_CURVES_WITH_TRAINING and curve.validation_accuracy:
            continue
        thin = f"{shorten(curve.name)}, training"
        _plot_series(axes, curve.epoch, curve.train_accuracy, color=color, label=thin, linewidth=0.9, linestyle="--")
    axes.yaxis.set_major_formatter(_PERCENT)
    axes.set_xlabel("epoch")
    axes.set_ylabel("accuracy")


def _plot_series(
    axes: Axes, epoch: Sequence[float], values: Sequence[float | None], **style: Any
) -> list[tuple[float, float]]:
    """A line through the measured points, which are returned."""
    points = [(at, value) for at, value in zip(epoch, values, strict=False) if value is not None]
    if points:
        axes.plot(*zip(*points, strict=True), marker="o" if len(points) == 1 else None, markersize=4, **style)
    return points
