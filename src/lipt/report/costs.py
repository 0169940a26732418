"""The ledger as lines of cells: a line per stage, a line per worker, and totals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lipt.ledger import Cost, elapsed_s
from lipt.report.comparison import Cell, filled
from lipt.report.ledger import KINDS, LedgerRow
from lipt.report.numbers import DASH, format_bytes, format_flops, format_seconds, format_whole

LEDGER_COLUMNS = ("wall-clock", "steps", "images", "FLOPs", "peak memory", "data read", "data written", "models read",
                  "models written", "other read", "other written", "requests")  # fmt: skip


@dataclass(frozen=True)
class CostLine:
    """One line of the ledger: a stage, one worker of it, or a total; a cell per entry of `LEDGER_COLUMNS`."""

    label: str
    note: str
    cells: list[Cell]
    style: Literal["", "faded", "total"] = ""


def stage_ledger(ledger: Sequence[LedgerRow]) -> list[CostLine]:
    """A line per stage in the order run, separately for this run and for earlier runs; then both totals."""
    lines = [
        _cost_line(_together(rows), rows, stage, _stage_note(rows), "faded" if earlier else "")
        for (stage, earlier), rows in _by_stage(ledger).items()
    ]
    this, before = spent(ledger)
    total = _cost_line(this + before, ledger, "total", "", "total")
    if before == Cost():
        return [*lines, total]
    now, earlier = ([row for row in ledger if row.earlier == of] for of in (False, True))
    return [
        *lines,
        _cost_line(this, now, "this run", "", "total"),
        _cost_line(before, earlier, "earlier runs", "found finished", "total"),
        total,
    ]


def spent(ledger: Sequence[LedgerRow]) -> tuple[Cost, Cost]:
    """The costs of this run, and of the earlier runs whose results it reused. Parallel workers count once."""
    sums = {key: _together(rows) for key, rows in _by_stage(ledger).items()}
    this, before = (sum((cost for (_, of), cost in sums.items() if of == earlier), Cost()) for earlier in (False, True))
    return this, before


def spent_sentence(ledger: Sequence[LedgerRow]) -> str | None:
    """The wall-clock of earlier runs and of this one; None if this run did everything."""
    this, before = spent(ledger)
    if before == Cost():
        return None
    whole, earlier, now = map(format_seconds, (this.wall_s + before.wall_s, before.wall_s, this.wall_s))
    return f"This report is based on {whole} of work: {earlier} by earlier runs, {now} by this one."


def worker_ledger(ledger: Sequence[LedgerRow]) -> list[CostLine]:
    """A line per worker of the stages that fan out."""
    return [
        _cost_line(row.cost, [row], _worker_name(row), *(("earlier", "faded") if row.earlier else ("", "")))
        for row in ledger
        if row.worker is not None
    ]


def without_empty(lines: Sequence[CostLine]) -> tuple[list[str], list[CostLine]]:
    """The headings of the columns that have a value in some line, and the lines with only these columns."""
    shown = filled(line.cells for line in lines)
    kept = [replace(line, cells=[line.cells[at] for at in shown]) for line in lines]
    return [LEDGER_COLUMNS[at] for at in shown], kept


def _worker_name(row: LedgerRow) -> str:
    return f"{row.stage} {row.worker}" + ("" if row.seed is None else f", seed {row.seed}")


def _by_stage(ledger: Sequence[LedgerRow]) -> dict[tuple[str, bool], list[LedgerRow]]:
    """(stage, whether an earlier run did it) -> its rows."""
    stages: dict[tuple[str, bool], list[LedgerRow]] = {}
    for row in ledger:
        stages.setdefault((row.stage, row.earlier), []).append(row)
    return stages


def _together(rows: Sequence[LedgerRow]) -> Cost:
    """The cost of a stage; the wall-clock of parallel workers counts once."""
    costs = [row.cost for row in rows]
    return replace(sum(costs, Cost()), wall_s=elapsed_s(costs))


def _stage_note(rows: Sequence[LedgerRow]) -> str:
    num_workers = sum(row.worker is not None for row in rows)
    notes = [f"{num_workers} workers"] if num_workers > 1 else []
    return ", ".join([*notes, *(["earlier"] if rows[0].earlier else [])])


def _cost_line(
    cost: Cost, rows: Sequence[LedgerRow], label: str, note: str, style: Literal["", "faded", "total"]
) -> CostLine:
    amounts = [cost.peak_bytes]
    for kind in KINDS:
        amounts += [cost.read.get(kind, 0), cost.written.get(kind, 0)]
    texts = [
        format_seconds(cost.wall_s),
        format_whole(sum(row.steps for row in rows)),
        format_whole(sum(row.images for row in rows)),
        format_flops(cost.flops),
        *map(format_bytes, amounts),
        format_whole(cost.requests),
    ]
    shown = [Cell(DASH if text in ("0 B", "0 FLOP", "0", "0 s") else text) for text in texts]
    return CostLine(label, note, shown, style)
