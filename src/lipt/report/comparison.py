"""The comparison as lines of cells. The page and the terminal share it, so they cannot disagree."""

from collections.abc import Sequence
from dataclasses import dataclass

from lipt.report.document import Row
from lipt.report.numbers import (
    DASH,
    exact,
    format_budget,
    format_bytes,
    format_flops,
    format_multiple,
    format_percent,
    format_points,
    format_seconds,
    format_trained,
)
from lipt.report.significance import deviation, difference, group_by_budgets, mean_accuracy, strongest_random


@dataclass(frozen=True)
class Cell:
    """A rounded text, the exact number for a tooltip, and a tone: "wins", "loses", "tie" or ""."""

    text: str
    title: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Column:
    """A heading and its explanation."""

    heading: str
    title: str


@dataclass(frozen=True)
class Line:
    """One row of the comparison: its label, its role, and a cell per column of `COLUMNS`."""

    label: str
    role: str
    cells: list[Cell]


COLUMNS = (
    Column("accuracy", "test accuracy of the last epoch, mean ± standard deviation over seeds"),
    Column(
        "vs random",
        "points above the best random subset of the same budgets, ± half the 95 % interval (three seeds or more)",
    ),
    Column("data kept", "kept budget: share of distinct candidates that is kept"),
    Column("per epoch", "trained budget: share of all candidates that one epoch trains on"),
    Column("epochs", "epochs of main training"),
    Column("wall-clock", "all stages, mean over seeds; parallel workers count once"),
    Column("pre-training", "FLOPs before scoring, divided by the FLOPs of one training epoch on all candidates"),
    Column("data", "bytes of training data read and written"),
    Column("models", "bytes of weights read and written"),
    Column("FLOPs", "floating-point operations of all stages"),
)


def comparison_groups(rows: Sequence[Row]) -> list[list[Line]]:
    """Lines grouped by equal budgets: only lines of one group may be ranked."""
    return [[_line(row, rows) for row in group] for group in group_by_budgets(rows)]


def _line(row: Row, rows: Sequence[Row]) -> Line:
    wall_s = sum(row.stage_wall_s.values()) if row.stage_wall_s else None
    stages = ", ".join(f"{stage} {format_seconds(seconds)}" for stage, seconds in row.stage_wall_s.items())
    cells = [
        _accuracy_cell(row),
        _delta_cell(row, rows),
        Cell(format_budget(row.kept_fraction), exact(row.kept_fraction, "of the candidates")),
        Cell(format_trained(row.epoch_fraction, row.draw), exact(row.epoch_fraction, "of the candidates per epoch")),
        Cell(str(row.epochs)),
        Cell(format_seconds(wall_s), stages or "not measured"),
        Cell(format_multiple(row.pretrain_cost), exact(row.pretrain_cost, "epochs over all candidates")),
        Cell(format_bytes(row.data_bytes), exact(row.data_bytes, "bytes")),
        Cell(format_bytes(row.model_bytes), exact(row.model_bytes, "bytes")),
        Cell(format_flops(row.flops), exact(row.flops, "operations")),
    ]
    return Line(row.label, row.role, cells)


def _accuracy_cell(row: Row) -> Cell:
    spread = deviation(row)
    text = format_percent(mean_accuracy(row)) if spread is None else _mean_and_spread(row, spread)
    by_seed = ", ".join(f"seed {seed}: {value:.6g}" for seed, value in zip(row.seeds, row.accuracy, strict=True))
    return Cell(text, f"{by_seed}; {row.num_test_images:,} test images")


def _mean_and_spread(row: Row, spread: float) -> str:
    return f"{100 * mean_accuracy(row):.2f} ± {100 * spread:.2f} %"


def _delta_cell(row: Row, rows: Sequence[Row]) -> Cell:
    reference = strongest_random(row, rows)
    if reference is None:
        return Cell(DASH, "no random row has the same budgets")
    if reference is row:
        return Cell("reference", "the best random row of these budgets")
    delta, against = difference(row, reference), f"against {reference.label}"
    tone = delta.level if delta.level != "unknown" else ""
    if delta.half_width is None:
        return Cell(f"{format_points(delta.mean)} (n={delta.num_seeds})", f"{against}; too few seeds to tell", tone)
    basis = "both at chance" if delta.at_chance else f"95 % interval, {delta.num_seeds} seeds, paired"
    return Cell(f"{format_points(delta.mean)} ± {100 * delta.half_width:.2f}", f"{against}, {basis}", tone)


def stage_names(rows: Sequence[Row]) -> list[str]:
    """All stages of all rows, in the order of the row with the most stages."""
    longest_first = sorted(rows, key=lambda row: len(row.stage_wall_s), reverse=True)
    return list(dict.fromkeys(stage for row in longest_first for stage in row.stage_wall_s))


def stage_cells(row: Row, stages: Sequence[str]) -> list[Cell]:
    """Wall-clock of one row, a cell per stage."""
    seconds = [row.stage_wall_s.get(stage) for stage in stages]
    return [Cell(format_seconds(value), exact(value, "s")) for value in seconds]
