"""The table and the heat map of `benchmarks.map`.

    python -m benchmarks.map_table RESULTS.jsonl ... [--figure FIGURE.svg]

With `--against EARLIER.jsonl` the table has the accuracies minus the earlier ones of the same seeds. With
`--random-steps N` the gains are over random that was trained for N steps. With `--over RULE EPOCHS` they are over that
rule with a scorer of so many epochs, at equal steps; RULE is written as in the table.

Gains are test accuracy minus that of class-balanced random with the same seed, in points, with the 95 % interval of
Student's t over the seeds. A gain whose interval excludes 0 is bold.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from scipy.stats import t

K = TypeVar("K")
#: (steps, kept share, rule, epochs of the scorer)
Cell = tuple[int, float, str, int]
#: (seed, type of processor). Differences are taken between trainings on one type: another rounds differently, which
#: moved accuracies at 1 % by up to 2.4 points.
Pair = tuple[int, str]


def accuracies(lines: Iterable[str]) -> dict[Cell, dict[Pair, float]]:
    """Test accuracy in % by cell, seed and processor."""
    found: dict[Cell, dict[Pair, float]] = {}
    for line in map(json.loads, lines):
        cell = line["steps"], line["fraction"], with_scorer(line["rule"], line), line["epochs"]
        found.setdefault(cell, {})[line["seed"], line.get("processor", "")] = 100 * line["accuracy"]
    return found


def with_scorer(name: str, line: Mapping[str, Any]) -> str:
    """The name of a row, with the proxy that scored for it."""
    proxy = line.get("proxy")
    return name + (f", proxy of width {proxy['width']} at {proxy['image_size']} px" if proxy else "")


def gain(
    found: dict[Cell, dict[Pair, float]], cell: Cell, random_steps: int | None = None
) -> tuple[float, float, int] | None:
    """Mean gain over random, half its 95 % interval, seeds; None with fewer than two seeds.

    Args:
        random_steps: of the random row; None: as many as the cell.
    """
    steps, fraction, *_ = cell
    return paired(found[cell], found.get((random_steps or steps, fraction, "random", 0), {}))


def paired(ours: Mapping[K, float], others: Mapping[K, float]) -> tuple[float, float, int] | None:
    """Mean difference over the common seeds, half its 95 % interval, seeds; None with fewer than two seeds."""
    pairs = [value - others[seed] for seed, value in ours.items() if seed in others]
    if len(pairs) < 2:
        return None
    half = t.ppf(0.975, len(pairs) - 1) * statistics.stdev(pairs) / len(pairs) ** 0.5
    return statistics.mean(pairs), float(half), len(pairs)


def table(found: dict[Cell, dict[Pair, float]], entry: Callable[[Cell], str]) -> str:
    """In Markdown: a row per steps, rule and epochs of the scorer; a column per kept share."""
    fractions = sorted({cell[1] for cell in found})
    head = ["steps", "rule", "epochs of the scorer", *(f"{fraction:.0%} kept" for fraction in fractions)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for steps, rule, epochs in sorted({(cell[0], cell[2], cell[3]) for cell in found}):
        cells = [(steps, fraction, rule, epochs) for fraction in fractions]
        entries = [entry(cell) if cell in found else "" for cell in cells]
        lines.append(f"| {steps:,} | {rule} | {epochs or ''} | {' | '.join(entries)} |")
    return "\n".join(lines)


def gains(found: dict[Cell, dict[Pair, float]], random_steps: int | None = None) -> str:
    """The accuracies of random and the gains of the others over them; `random_steps` as in `gain`."""

    def entry(cell: Cell) -> str:
        if cell[2] == "random":
            usual = statistics.mode(processor for _, processor in found[cell])
            measured = [value for (_, processor), value in found[cell].items() if processor == usual]
            return f"{statistics.mean(measured):.1f} ({len(measured)})"
        return _difference(gain(found, cell, random_steps))

    return table(found, entry)


def changes(found: dict[Cell, dict[Pair, float]], earlier: dict[Cell, dict[Pair, float]]) -> str:
    """How much each accuracy is above an earlier measurement of the same cell and seeds."""
    return table(found, lambda cell: _difference(paired(found[cell], earlier.get(cell, {}))))


def over(found: dict[Cell, dict[Pair, float]], rule: str, epochs: int) -> str:
    """How much each accuracy is above that of a rule with the same steps, share and seeds."""
    return table(found, lambda cell: _difference(paired(found[cell], found.get((cell[0], cell[1], rule, epochs), {}))))


def _difference(measured: tuple[float, float, int] | None) -> str:
    if measured is None:
        return "at most one seed"
    mean, half, seeds = measured
    text = f"{mean:+.1f} ± {half:.1f} ({seeds})"
    return f"**{text}**" if abs(mean) > half else text


def heat_map(found: dict[Cell, dict[Pair, float]], path: Path) -> None:
    """Rules against kept shares, coloured by the gain; a panel per number of steps. Cells have three seeds or more."""
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "lipt"  # ids would be random otherwise
    gains = {cell: each for cell in found if cell[2] != "random" and (each := gain(found, cell)) and each[2] >= 3}
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


def _lines(*results: Path) -> list[str]:
    return [line for path in results for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--random-steps", type=int)
    parser.add_argument("--over", nargs=2, metavar=("RULE", "EPOCHS"))
    parser.add_argument("--against", type=Path, help="an earlier measurement, to be subtracted seed by seed")
    arguments = parser.parse_args()
    found = accuracies(_lines(*arguments.results))
    if arguments.against:
        print(changes(found, accuracies(_lines(arguments.against))))
    elif arguments.over:
        print(over(found, arguments.over[0], int(arguments.over[1])))
    else:
        print(gains(found, arguments.random_steps))
    if arguments.figure:
        heat_map(found, arguments.figure)


if __name__ == "__main__":
    main()
