"""The picture of what each rule gains over random, as docs/results shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.map_table import Cell


def heat_map(gains: Mapping[Cell, tuple[float, float, int]], path: Path) -> None:
    """Rules against kept shares; a panel per number of steps.

    Args:
        gains: the mean gain of each cell, half its interval, and its seeds.
    """
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "lipt"  # ids would be random otherwise
    measured = Counter((rule, epochs) for _, _, rule, epochs in gains)
    rules = sorted(measured, key=lambda rule: (-measured[rule], rule))
    shares = {steps: sorted({cell[1] for cell in gains if cell[0] == steps}) for steps in sorted({c[0] for c in gains})}
    columns = [len(each) for each in shares.values()]
    figure, axes = pyplot.subplots(
        1, len(shares), figsize=(3.4 + 0.62 * sum(columns), 1.3 + 0.34 * len(rules)), width_ratios=columns, sharey=True,
        squeeze=False, layout="constrained",
    )  # fmt: skip
    drawn: Any = None
    for axis, (steps, fractions) in zip(axes.flat, shares.items(), strict=True):
        cells = [[gains.get((steps, fraction, *rule)) for fraction in fractions] for rule in rules]
        values = [[each[0] if each else float("nan") for each in row] for row in cells]
        drawn = axis.imshow(values, cmap="RdBu", vmin=-8, vmax=8, aspect="auto")
        axis.set_title(f"{steps:,} steps", fontsize="medium")
        axis.set_xticks(range(len(fractions)), [f"{fraction:.0%}" for fraction in fractions])
        axis.set_yticks(range(len(rules)), [f"{rule}, {epochs} epochs" if epochs else rule for rule, epochs in rules])
        axis.tick_params(length=0)
        for y, row in enumerate(cells):
            for x, each in enumerate(row):
                if each:
                    weight = "bold" if abs(each[0]) > each[1] else "normal"
                    colour = "white" if abs(each[0]) > 5 else "black"
                    axis.text(x, y, f"{each[0]:+.1f}", ha="center", va="center", weight=weight, color=colour, size=9)
    figure.supxlabel("share of the images that is kept", fontsize="medium")
    figure.colorbar(drawn, ax=list(axes.flat), label="points above class-balanced random")
    figure.savefig(path, metadata={"Date": None})
