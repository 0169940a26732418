"""The comparison as lines of cells. The page and the terminal share it, so they cannot disagree."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lipt.report.document import Row
from lipt.report.numbers import (
    DASH,
    format_budget,
    format_bytes,
    format_count,
    format_flops,
    format_interval,
    format_multiple,
    format_percent,
    format_points,
    format_seconds,
    format_trained,
    format_whole,
)
from lipt.report.significance import deviation, difference, group_by_budgets, mean_accuracy, strongest_random


@dataclass(frozen=True)
class Cell:
    """A rounded text, and a tone: "wins", "loses", "tie" or ""."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Column:
    """A heading and its explanation, and what is added to that with one seed, with several, and with many intervals."""

    heading: str
    meaning: str
    one_seed: str = ""
    several_seeds: str = ""
    many_intervals: str = ""


@dataclass(frozen=True)
class Line:
    """One row of the comparison: its label, its role, and the cells of `RESULT_COLUMNS` and of `COST_COLUMNS`."""

    label: str
    role: str
    results: list[Cell]
    costs: list[Cell]


RESULT_COLUMNS = (
    Column(
        "accuracy",
        "share of the test images that the network gets right after the last epoch",
        several_seeds="; mean over seeds",
    ),
    Column("sd", "standard deviation of the accuracy over seeds, in points"),
    Column(
        "vs random",
        "points above the best random subset with the same budgets",
        one_seed=". With one seed the difference proves nothing",
        several_seeds="; ± is half of the 95 % interval over seeds, paired by seed, on these test images. With one "
        "or two seeds there is no interval, and the difference proves nothing",
        many_intervals=" Of twenty rows without a difference, one stands out by chance.",
    ),
    Column(
        "worst class",
        "accuracy of the class that a network gets right least often, whichever it is",
        several_seeds="; mean over seeds",
    ),
    Column("data kept", "share of the candidates that must be stored: the first budget"),
    Column("per epoch", "share of the candidates that one epoch trains on: the second budget"),
    Column("epochs", "epochs that the training began; the last one may be short"),
)
COST_COLUMNS = (
    Column("steps", "updates of the weights (optimiser steps) in the main training"),
    Column("images", "images that the main training saw, each counted as often as it was seen"),
    Column("wall-clock", "time of all stages; parallel workers count once"),
    Column("pre-training", "FLOPs before scoring, in units of one training epoch on all candidates"),
    Column("data", "bytes of training data read and written"),
    Column("models", "bytes of weights read and written"),
    Column("FLOPs", "floating-point operations of all stages"),
)
COLUMNS = RESULT_COLUMNS + COST_COLUMNS
#: Of five independent intervals of 95 %, one or more miss the truth with a probability of 23 %.
_MANY = 5


def comparison_groups(rows: Sequence[Row]) -> list[list[Line]]:
    """Lines grouped by equal budgets: only lines of one group may be ranked."""
    return [[_line(row, rows) for row in group] for group in group_by_budgets(rows)]


def has_many_intervals(groups: Sequence[Sequence[Line]]) -> bool:
    """Whether one of them may well exclude zero by chance: of `_MANY` and more."""
    return sum("±" in cell.text for group in groups for line in group for cell in line.results) >= _MANY


def filled(lines: Iterable[Sequence[Cell]]) -> list[int]:
    """The indexes of the columns that have a value in some line."""
    columns = enumerate(zip(*lines, strict=True))
    return [index for index, cells in columns if any(cell.text not in ("", DASH) for cell in cells)]


def without_empty(groups: Sequence[Sequence[Line]]) -> tuple[list[Column], list[Column], list[list[Line]]]:
    """The columns of results and those of costs that have a value in some line, and the lines with only these."""
    lines = [line for group in groups for line in group]
    results, costs = filled(line.results for line in lines), filled(line.costs for line in lines)
    shown = [
        [
            replace(line, results=[line.results[at] for at in results], costs=[line.costs[at] for at in costs])
            for line in group
        ]
        for group in groups
    ]
    return [RESULT_COLUMNS[at] for at in results], [COST_COLUMNS[at] for at in costs], shown


def _line(row: Row, rows: Sequence[Row]) -> Line:
    wall_s, spread = sum(row.stage_wall_s.values()) if row.stage_wall_s else None, deviation(row)
    results = [
        Cell(format_percent(mean_accuracy(row))),
        Cell(DASH if spread is None else f"{100 * spread:.2f}"),
        _delta_cell(row, rows),
        Cell(format_percent(row.worst_class)),
        Cell(format_budget(row.kept_fraction)),
        Cell(format_trained(row.epoch_fraction, row.draw)),
        Cell(str(row.epochs)),
    ]
    costs = [
        Cell(format_whole(row.steps)),
        Cell(format_whole(row.images)),
        Cell(format_seconds(wall_s)),
        Cell(format_multiple(row.pretrain_cost)),
        Cell(format_bytes(row.data_bytes)),
        Cell(format_bytes(row.model_bytes)),
        Cell(format_flops(row.flops)),
    ]
    return Line(row.label, row.role, results, costs)


def _delta_cell(row: Row, rows: Sequence[Row]) -> Cell:
    reference = strongest_random(row, rows)
    if reference is row or any(strongest_random(each, rows) is row for each in rows if each.role == "selected"):
        return Cell("reference")
    if reference is None:
        return Cell(DASH)
    delta = difference(row, reference)
    tone = delta.level if delta.level != "unknown" else ""
    if delta.half_width is None:
        return Cell(f"{format_points(delta.mean)} ({format_count(delta.num_seeds, 'seed')})", tone)
    return Cell(format_interval(delta.mean, delta.half_width), tone)


def seed_accuracies(rows: Sequence[Row]) -> tuple[list[int], list[list[str]]]:
    """All seeds, and for each row its accuracy with each of them."""
    seeds = sorted({seed for row in rows for seed in row.seeds})
    by_seed = [dict(zip(row.seeds, row.accuracy, strict=True)) for row in rows]
    return seeds, [[format_percent(accuracy.get(seed)) for seed in seeds] for accuracy in by_seed]


def stage_names(rows: Sequence[Row]) -> list[str]:
    """All stages of all rows, in the order of the row with the most stages."""
    longest_first = sorted(rows, key=lambda row: len(row.stage_wall_s), reverse=True)
    return list(dict.fromkeys(stage for row in longest_first for stage in row.stage_wall_s))


def stage_cells(row: Row, stages: Sequence[str]) -> list[Cell]:
    """Wall-clock of one row, a cell per stage."""
    return [Cell(format_seconds(row.stage_wall_s.get(stage))) for stage in stages]
