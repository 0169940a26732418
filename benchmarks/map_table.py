"""The tables and the heat map of `benchmarks.map`, as docs/results shows them.

    python -m benchmarks.map_table RESULTS.jsonl ... [--figure FIGURE.svg]

Prints a table for each number of steps.

- `--against EARLIER.jsonl` subtracts the earlier accuracies of the same seeds.
- `--random-steps N` compares with random that was trained for N steps.
- `--over RULE EPOCHS` compares with RULE at equal steps; EPOCHS is the length of its scorer's training.
- `--by-passes` prints one table, sorted by how often the training saw each kept image.
- `--rules` takes a part of the rows. Rules are named as in the records, with their proxy: `ccs el2n, proxy of width 8
  at 16 px`. `--steps` takes a part of the tables, `--processor` of the records.

Gains are test accuracy minus that of class-balanced random with the same seed, in points, with the 95 % interval of
Student's t over the seeds. A gain whose interval excludes 0 is bold. In brackets: the seeds of a cell, if they
are fewer than those of the others. Cells with fewer seeds than `--least` (3) are empty.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.heat_map import heat_map
from benchmarks.tables import difference, markdown, paired, read_records, signed
from lipt.report.numbers import format_count

#: (steps, kept share, rule, epochs of the scorer)
Cell = tuple[int, float, str, int]
#: (seed, type of processor). Differences are taken between trainings on one type: another rounds differently, which
#: moved accuracies at 1 % by up to 2.4 points.
Pair = tuple[int, str]
#: Text of a cell, and its seeds
Entry = tuple[str, int]
#: Rules as the pages name them, in the order of rows.
_LABELS = {
    "random": "class-balanced random",
    "RS2": "RS2 (fresh draws)",
    "dual": "`dual`",
    "ccs el2n": "`ccs`, EL2N",
    "ccs aum": "`ccs`, AUM",
    "dyn_unc": "Dyn-Unc",
    "el2n": "EL2N, the hardest",
    "aum": "AUM, the hardest",
    "herding": "herding",
    "moderate": "Moderate",
    "k_center": "k-center",
    "prototypes": "prototypes, the hard ones",
    "gradmatch": "GradMatch",
    "grand": "GraNd",
    "glister": "Glister",
}


def accuracies(lines: Iterable[Mapping[str, Any]]) -> dict[Cell, dict[Pair, float]]:
    """Test accuracy in % by cell, seed and processor."""
    found: dict[Cell, dict[Pair, float]] = {}
    for line in lines:
        found.setdefault(_cell(line), {})[line["seed"], line.get("processor", "")] = 100 * line["accuracy"]
    return found


def _cell(line: Mapping[str, Any]) -> Cell:
    return line["steps"], line["fraction"], with_scorer(line["rule"], line), line["epochs"]


def with_scorer(name: str, line: Mapping[str, Any]) -> str:
    """The name of a row, with the proxies that scored for it, and the start if it is not random weights."""
    proxy = line.get("proxy")
    scored = f", proxy{_kind(proxy)} of width {proxy['width']} at {proxy['image_size']} px" if proxy else ""
    scored += f", {line['scorers']} scorers" if line.get("scorers") else ""
    return name + scored + (f", from {line['start']}" if line.get("start") else "")


def _kind(proxy: Mapping[str, Any]) -> str:
    return f" {proxy['name']}" if proxy.get("name") else ""


def gain(
    found: dict[Cell, dict[Pair, float]], cell: Cell, random_steps: int | None = None
) -> tuple[float, float, int] | None:
    """Mean gain over random, half its 95 % interval, seeds; None with fewer than two seeds.

    Args:
        random_steps: of the random row; None: as many as the cell.
    """
    steps, fraction, *_ = cell
    return paired(found[cell], found.get((random_steps or steps, fraction, "random", 0), {}))


def label(rule: str) -> str:
    """A rule as docs/results names it."""
    name, comma, scorer = rule.partition(", ")
    return _LABELS.get(name, name) + comma + scorer


def tables(found: Collection[Cell], entry: Callable[[Cell], Entry | None], least: int = 3) -> str:
    """In Markdown: a table for each number of steps, with a row per rule and scorer, and a column per kept share."""
    several = len({epochs for *_, epochs in found if epochs}) > 1
    printed = []
    for steps in sorted({cell[0] for cell in found}):
        entries = {cell: made for cell in found if cell[0] == steps and (made := entry(cell)) and made[1] >= least}
        if not entries:
            continue
        usual = usual_seeds(entries)
        fractions = sorted({cell[1] for cell in entries})
        head = [f"{steps:,} steps", *(f"{percent(fraction)} kept" for fraction in fractions)]
        rows = []
        for rule, epochs in sorted({cell[2:] for cell in entries}, key=row_place):
            texts = [cell_text(entries.get((steps, fraction, rule, epochs)), usual) for fraction in fractions]
            scorer = f", {format_count(epochs, 'epoch')}" if several and epochs else ""
            rows.append([f"{label(rule)}{scorer}", *texts])
        printed.append(f"{markdown(head, rows)}\n\n{_caption(entries)}")
    return "\n\n".join(printed)


def gains(found: dict[Cell, dict[Pair, float]], random_steps: int | None = None) -> Callable[[Cell], Entry | None]:
    """The accuracies of random and the gains of the others over them; `random_steps` as in `gain`."""

    def entry(cell: Cell) -> Entry | None:
        if cell[2] == "random":
            usual = statistics.mode(processor for _, processor in found[cell])
            measured = [value for (_, processor), value in found[cell].items() if processor == usual]
            return f"{statistics.mean(measured):.1f}", len(measured)
        return _difference(found[cell], found.get((random_steps or cell[0], cell[1], "random", 0), {}))

    return entry


def changes(
    found: dict[Cell, dict[Pair, float]], earlier: dict[Cell, dict[Pair, float]]
) -> Callable[[Cell], Entry | None]:
    """How much each accuracy is above an earlier measurement of the same cell and seeds."""
    return lambda cell: _difference(found[cell], earlier.get(cell, {}))


def over(found: dict[Cell, dict[Pair, float]], rule: str, epochs: int) -> Callable[[Cell], Entry | None]:
    """How much each accuracy is above that of a rule with the same steps, share and seeds."""
    return lambda cell: _difference(found[cell], found.get((cell[0], cell[1], rule, epochs), {}))


def by_passes(
    found: Collection[Cell], entry: Callable[[Cell], Entry | None], passes: Mapping[Cell, float], least: int = 3
) -> str:
    """In Markdown: a row per steps and share, sorted by the passes over the kept images; a column per rule."""
    entries = {cell: made for cell in found if (made := entry(cell)) and made[1] >= least}
    rules = sorted({cell[2:] for cell in entries}, key=row_place)
    usual = usual_seeds(entries)
    rows = []
    for seen, steps, fraction in sorted({(passes[cell], *cell[:2]) for cell in entries}):
        texts = [cell_text(entries.get((steps, fraction, *rule)), usual) for rule in rules]
        count = f"{seen:.1f}" if seen < 10 else f"{seen:,.0f}"
        rows.append([count, percent(fraction), f"{steps:,}", *texts])
    head = ["passes", "kept", "steps", *(label(rule) for rule, _ in rules)]
    return f"{markdown(head, rows)}\n\n{_caption(entries)}"


def passes_by_cell(lines: Iterable[Mapping[str, Any]]) -> dict[Cell, float]:
    """How often the trainings of each cell saw each kept image."""
    return {_cell(line): line["steps"] / -(-line["kept"] // line["batch_size"]) for line in lines}


def _difference(ours: Mapping[Pair, float], others: Mapping[Pair, float]) -> Entry | None:
    measured = paired(ours, others)
    if measured is None:
        alone = [value - others[seed] for seed, value in ours.items() if seed in others]
        return (signed(f"{alone[0]:+.1f}"), 1) if alone else None
    mean, half, seeds = measured
    return difference(mean, half), seeds


def usual_seeds(entries: Mapping[Cell, Entry]) -> int:
    """The seeds of a cell without brackets."""
    return max(seeds for _, seeds in entries.values())


def _caption(entries: Mapping[Cell, Entry]) -> str:
    usual, counts = usual_seeds(entries), {seeds for _, seeds in entries.values()}
    return format_count(usual, "seed") + ("; in brackets: fewer" if len(counts) > 1 else "")


def cell_text(entry: Entry | None, usual: int) -> str:
    text, seeds = entry or ("", usual)
    return text if seeds == usual else f"{text} ({seeds})"


def percent(fraction: float) -> str:
    return f"{100 * fraction:g} %"


def row_place(row: tuple[str, int]) -> tuple[bool, int, str, int]:
    """By which rows are sorted: rules that score with theta_p last."""
    rule, epochs = row
    name = rule.partition(", ")[0]
    return rule.endswith(", theta_p"), [*_LABELS, name].index(name), rule, epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--random-steps", type=int)
    parser.add_argument("--over", nargs=2, metavar=("RULE", "EPOCHS"))
    parser.add_argument("--by-passes", action="store_true", help="with --over: one table, sorted by passes")
    parser.add_argument("--rules", nargs="+", help="the rows; default: all")
    parser.add_argument("--steps", type=int, nargs="+", help="the tables; default: all")
    parser.add_argument("--processor", help="the type that trained; default: all")
    parser.add_argument("--least", type=int, default=3, help="seeds of a cell that is shown")
    parser.add_argument("--against", type=Path, help="an earlier measurement, to be subtracted seed by seed")
    arguments = parser.parse_args()
    lines = read_records(*arguments.results)
    if arguments.processor:
        lines = [line for line in lines if line.get("processor") == arguments.processor]
    if len({line["model"][0] for line in lines}) > 1:
        parser.error("the results are of several trained networks: use benchmarks.network_table")
    found = accuracies(lines)
    if arguments.against:
        entry = changes(found, accuracies(read_records(arguments.against)))
    elif arguments.over:
        entry = over(found, arguments.over[0], int(arguments.over[1]))
    else:
        entry = gains(found, arguments.random_steps)
    steps, rules = arguments.steps, arguments.rules
    shown = [cell for cell in found if (not steps or cell[0] in steps) and (not rules or cell[2] in rules)]
    if arguments.by_passes:
        print(by_passes(shown, entry, passes_by_cell(lines), arguments.least))
    else:
        print(tables(shown, entry, arguments.least))
    if arguments.figure:
        gains_of = {
            cell: each for cell in found if cell[2] != "random" and (each := gain(found, cell)) and each[2] >= 3
        }
        heat_map(gains_of, arguments.figure)


if __name__ == "__main__":
    main()
