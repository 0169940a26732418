"""The cost of a stage: wall-clock, FLOPs, peak memory, and bytes counted at the store client."""

from __future__ import annotations

import re
import resource
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(kw_only=True)
class Cost:
    """The cost of one stage (or one worker of it), with interrupted attempts as far as their checkpoints tell: what an
    attempt did after its last one is not counted."""

    wall_s: float = 0.0
    flops: int = 0
    peak_bytes: int = 0
    """Highest resident memory of the process, or of the GPU's allocator if a GPU was used."""
    read: dict[str, int] = field(default_factory=dict)
    """Bytes by kind: data, model, other."""
    written: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    ended: float = 0.0
    """Time of the end, in seconds since 1970; 0 if unknown."""
    machine: str = ""
    """What did it, such as `NVIDIA H100, 8 CPU threads`, or `4 × (NVIDIA H100, 8 CPU threads)` for four processes; of
    the last attempt. Empty if unknown. See `machines`."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            wall_s=self.wall_s + other.wall_s,
            flops=self.flops + other.flops,
            peak_bytes=max(self.peak_bytes, other.peak_bytes),
            read=_sum(self.read, other.read),
            written=_sum(self.written, other.written),
            requests=self.requests + other.requests,
            ended=max(self.ended, other.ended),
            machine=other.machine or self.machine,
        )

    @property
    def processes(self) -> int:
        """How many processes shared the work; 1 if unknown."""
        return sum(map(int, re.findall(r"(\d+) × \(", self.machine))) or 1

    def bytes(self, kind: str) -> int:
        """Bytes of that kind, read and written."""
        return self.read.get(kind, 0) + self.written.get(kind, 0)


def machines(names: Iterable[str]) -> str:
    """`Cost.machine` of work that several processes share: equal ones once, with their number."""
    counts = Counter(names)
    if counts.total() == 1:
        return next(iter(counts))
    return ", ".join(f"{count} × ({name})" for name, count in counts.items())


def elapsed_s(costs: Iterable[Cost]) -> float:
    """Seconds in which at least one of them worked: parallel ones count once.

    For an interrupted one, assumes that every attempt ended when the next began.
    """
    total = reached = 0.0
    for cost in sorted(costs, key=lambda cost: cost.ended - cost.wall_s):
        if not cost.ended:
            total += cost.wall_s
            continue
        total += max(0.0, cost.ended - max(reached, cost.ended - cost.wall_s))
        reached = max(reached, cost.ended)
    return total


def reset_peak_memory() -> None:
    """Start a new measurement of peak memory. Only Linux can; elsewhere the peak since the process started counts."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_memory_bytes() -> int:
    """Peak resident memory since `reset_peak_memory`."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}
