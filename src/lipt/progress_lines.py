"""What a line of progress says: how far a running stage is, and the facts of a finished one."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Width of the column of labels: `select stratified` fits.
LABEL = 18
#: The label of a part, such as `pretrain[3]`.
PART = re.compile(r"(.+)\[(\d+)\]")
#: Facts of a summary, in the order in which a line shows them; all others follow. A stored summary has another order.
_FACTS = (
    "train", "test", "jigsaws", "accuracy", "theta_star_accuracy", "density", "models", "epochs", "steps", "images",
    "kept", "count", "candidates", "share", "classes",
)  # fmt: skip
#: Names of facts in a line, where the key is not one for readers.
_NAMES = {"theta_star_accuracy": "theta_*"}
#: Facts that only -v shows.
_MORE = frozenset({"best_single", "best_single_accuracy", "uniform_accuracy"})


@dataclass(kw_only=True)
class Standing:
    """Progress of a running stage."""

    done: int = 0
    total: int = 0
    """0 if unknown."""
    text: str = ""
    """The unit; after a comma, further information."""
    since: float = field(default_factory=time.monotonic)
    first: tuple[float, int] | None = None
    """Time of the first message and the work done by then: a stage may continue from a checkpoint."""

    def advance(self, done: int, total: int, text: str) -> None:
        self.done, self.total, self.text = done, total, text
        if self.first is None or done < self.first[1]:
            self.first = (time.monotonic(), done)

    def counts(self) -> str:
        """`1,280 of 51,600 images`; `1,280 images` without a total."""
        if self.total:
            return f"{self.done:,} of {self.total:,} {self.text}"
        return f"{self.done:,} {self.text}" if self.done else ""

    def line(self) -> str:
        """`90 s  1,280 of 51,600 images  142 images/s  6 min left`."""
        now = time.monotonic()
        parts = [_duration(now - self.since), self.counts()]
        if self.first and now > self.first[0] and self.done > self.first[1]:
            rate = (self.done - self.first[1]) / (now - self.first[0])
            unit = self.text.partition(",")[0]
            parts.append(f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s")
            if self.total:
                parts.append(f"{_duration((self.total - self.done) / rate)} left")
        return "  ".join(filter(None, parts))


@dataclass
class Alike:
    """Parts of a stage with the same state, in a row: `pretrain[0]`, `pretrain[1]` … become one line."""

    name: str
    state: str
    indices: list[int]
    facts: str
    """Of the first part; shown only if it is the only one."""

    def line(self) -> str:
        """`pretrain[0-9]       up to date`; indices that do not follow each other are `0-3,5`."""
        alone = len(self.indices) == 1
        return line_of(f"{self.name}[{_ranges(self.indices)}]", self.state + (f"  {self.facts}" if alone else ""))


def brief(summary: Mapping[str, Any], *, verbose: bool) -> str:
    """The main figures of a summary: only scalars, shares in per cent."""
    keys = [key for key in (*_FACTS, *sorted({*summary} - {*_FACTS})) if key in summary]
    shown = [key for key in keys if verbose or key not in _MORE]
    return "  ".join(filter(None, (_fact(key, summary[key]) for key in shown)))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def line_of(label: str, text: str) -> str:
    """A line about a stage, aligned with those of the others."""
    return f"{label:<{LABEL}}  {text}"


def _ranges(indices: Sequence[int]) -> str:
    """`0-3,5`."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _fact(key: str, value: Any) -> str:
    """`density 94.51 %`; empty if the value is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    name = _NAMES.get(key, key)
    if key.endswith(("accuracy", "density", "saved", "share")):
        return f"{name} {100 * value:.2f} %"
    return f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4g}"
