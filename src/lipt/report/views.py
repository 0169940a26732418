"""Parts of the document arranged as the page shows them: totals, shares, cells. No markup here."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lipt.ledger import Cost, elapsed_s
from lipt.report.document import Accounting, Example, JigsawRow, LedgerRow, PaperAccounting, Row, Subset
from lipt.report.numbers import DASH, exact, format_bytes, format_flops, format_percent, format_seconds
from lipt.report.table import Cell

MAX_CLASS_BARS = 40
_EXTREME_CLASSES = 10
_MAX_MONTAGE_BASE64 = 500_000
"""Characters per montage: two of them leave room for everything else in a page of 2 MB."""
_TINY_PX = 64

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
    """A line per stage in the order run, apart what this run made and what it found made; then the totals of both."""
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
    """What this run made, and what it found made by earlier ones; a stage's wall-clock counts workers once."""
    sums = {key: _together(rows) for key, rows in _by_stage(ledger).items()}
    this, before = (sum((cost for (_, of), cost in sums.items() if of == earlier), Cost()) for earlier in (False, True))
    return this, before


def spent_sentence(ledger: Sequence[LedgerRow]) -> str | None:
    """How much of the wall-clock earlier runs spent; None where this run made everything."""
    this, before = spent(ledger)
    if before == Cost():
        return None
    whole, earlier, now = map(format_seconds, (this.wall_s + before.wall_s, before.wall_s, this.wall_s))
    return f"This report rests on {whole} of work: {earlier} by earlier runs, {now} by this one."


def worker_ledger(ledger: Sequence[LedgerRow]) -> list[CostLine]:
    """A line per worker of the stages that fan out."""
    return [
        _cost_line(row.cost, f"{row.stage} {row.worker}", *(("earlier", "faded") if row.earlier else ("", "")))
        for row in ledger
        if row.worker is not None
    ]


def _by_stage(ledger: Sequence[LedgerRow]) -> dict[tuple[str, bool], list[LedgerRow]]:
    """(stage, made earlier) -> its rows."""
    stages: dict[tuple[str, bool], list[LedgerRow]] = {}
    for row in ledger:
        stages.setdefault((row.stage, row.earlier), []).append(row)
    return stages


def _together(rows: Sequence[LedgerRow]) -> Cost:
    """The cost of a stage: what ran side by side took its time once."""
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


def stage_names(rows: Sequence[Row]) -> list[str]:
    """Every stage that any row went through, in the order of the row that went through most."""
    longest_first = sorted(rows, key=lambda row: len(row.stage_wall_s), reverse=True)
    return list(dict.fromkeys(stage for row in longest_first for stage in row.stage_wall_s))


def stage_cells(row: Row, stages: Sequence[str]) -> list[Cell]:
    """Wall-clock of one row, a cell per stage."""
    seconds = [row.stage_wall_s.get(stage) for stage in stages]
    return [Cell(format_seconds(value), exact(value, "s")) for value in seconds]


@dataclass(frozen=True)
class ClassBar:
    """One class: how many were kept of how many, and both as per cent of the largest class for drawing."""

    name: str
    kept: int
    candidates: int
    kept_width: float
    candidates_width: float


def class_bars(subset: Subset) -> list[ClassBar]:
    """A bar per class, or with many classes the ends of the ranking by share kept."""
    largest = max(subset.candidates_per_class, default=0) or 1
    counts = zip(subset.class_names, subset.kept_per_class, subset.candidates_per_class, strict=True)
    bars = [ClassBar(name, kept, of, 100 * kept / largest, 100 * of / largest) for name, kept, of in counts]
    if len(bars) <= MAX_CLASS_BARS:
        return bars
    ranked = sorted(bars, key=lambda bar: bar.kept / max(bar.candidates, 1), reverse=True)
    return ranked[:_EXTREME_CLASSES] + ranked[-_EXTREME_CLASSES:]


def kept_shares(subset: Subset) -> list[float]:
    """Share kept of every class that has candidates."""
    pairs = zip(subset.kept_per_class, subset.candidates_per_class, strict=True)
    return [kept / candidates for kept, candidates in pairs if candidates]


def montage(examples: Sequence[Example]) -> list[tuple[Example, bool]]:
    """The examples that fit the page, each with whether it is tiny and should be enlarged without smoothing."""
    shown, used = [], 0
    for example in examples:
        used += len(example.png_base64)
        if used > _MAX_MONTAGE_BASE64:
            break
        shown.append((example, _png_width(example.png_base64) <= _TINY_PX))
    return shown


def _png_width(png_base64: str) -> int:
    """Width in pixels from the header: 8 bytes of signature, then the length and name of the first chunk."""
    return int.from_bytes(base64.b64decode(png_base64[:32])[16:20], "big")


def jigsaw_state(step: JigsawRow) -> str:
    """What the merge did with one worker."""
    if step.missing:
        return "missing"
    return "kept" if step.kept else "not kept"


def accounting_lines(accounting: PaperAccounting) -> list[tuple[str, Cell, Cell]]:
    """A line per quantity: its name, the paper's number, ours."""
    names = {
        "pre-training": "pretrain_epochs",
        "selection passes": "selection_epochs",
        "main training": "main_epochs",
        "classic pipeline": "classic_epochs",
        "full training": "full_epochs",
    }
    lines = [
        (label, _epochs(accounting.paper, name), _epochs(accounting.measured, name)) for label, name in names.items()
    ]
    saved = [format_percent(side.saved_vs_classic, 1) for side in (accounting.paper, accounting.measured)]
    return [*lines, ("saved against classic", Cell(saved[0]), Cell(saved[1]))]


def _epochs(side: Accounting, name: str) -> Cell:
    value = getattr(side, name)
    return Cell(DASH if value is None else f"{value:.4g}", exact(value, "epochs over all candidates"))
