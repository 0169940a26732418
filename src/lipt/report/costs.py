"""The ledger as lines of cells: a line per stage, a line per worker, and totals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lipt.ledger import Cost, elapsed_s
from lipt.report.comparison import Cell
from lipt.report.document import LedgerRow
from lipt.report.numbers import DASH, exact, format_bytes, format_flops, format_seconds

LEDGER_COLUMNS = ("wall-clock", "FLOPs", "peak memory", "data read", "data written", "models read", "models written",
                  "other read", "other written", "requests")  # fmt: skip


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
        _cost_line(_together(rows), stage, _stage_note(rows), "faded" if earlier else "")
        for (stage, earlier), rows in _by_stage(ledger).items()
    ]
    this, before = spent(ledger)
    if before == Cost():
        return [*lines, _cost_line(this, "total", "", "total")]
    return [
        *lines,
        _cost_line(this, "this run", "", "total"),
        _cost_line(before, "earlier runs", "found finished", "total"),
        _cost_line(this + before, "total", "", "total"),
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
        _cost_line(row.cost, f"{row.stage} {row.worker}", *(("earlier", "faded") if row.earlier else ("", "")))
        for row in ledger
        if row.worker is not None
    ]


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


def _cost_line(cost: Cost, label: str, note: str, style: Literal["", "faded", "total"]) -> CostLine:
    amounts = [cost.peak_bytes]
    for kind in ("data", "model", "other"):
        amounts += [cost.read.get(kind, 0), cost.written.get(kind, 0)]
    cells = [
        Cell(format_seconds(cost.wall_s), exact(cost.wall_s, "s")),
        Cell(format_flops(cost.flops), exact(cost.flops, "operations")),
        *(Cell(format_bytes(amount), exact(amount, "bytes")) for amount in amounts),
        Cell(f"{cost.requests:,}"),
    ]
    shown = [cell if cell.text not in ("0 B", "0 FLOP", "0", "0 s") else Cell(DASH, "0") for cell in cells]
    return CostLine(label, note, shown, style)
