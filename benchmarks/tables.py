"""Differences with their intervals, and tables in Markdown, as docs/results shows them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from scipy.stats import t

K = TypeVar("K")


def read_records(*files: Path) -> list[dict[str, Any]]:
    """The lines of the files that experiments write."""
    return [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean of two or more values, and half its 95 % interval of Student's t."""
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return statistics.mean(values), float(half)


def paired(ours: Mapping[K, float], others: Mapping[K, float]) -> tuple[float, float, int] | None:
    """Mean difference over the common seeds, half its 95 % interval, seeds; None with fewer than two seeds.

    A seed that was measured on two types of processor counts once.
    """
    by_seed: dict[object, list[float]] = {}
    for key, value in ours.items():
        if key in others:
            by_seed.setdefault(key[0] if isinstance(key, tuple) else key, []).append(value - others[key])
    pairs = [statistics.mean(found) for found in by_seed.values()]
    return (*interval(pairs), len(pairs)) if len(pairs) > 1 else None


def difference(mean: float, half: float, *, bold: bool = True) -> str:
    """`+1.2 ± 0.3`; with `bold`, bold if the interval excludes 0."""
    text = signed(f"{mean:+.1f} ± {half:.1f}")
    return f"**{text}**" if bold and abs(mean) > half else text


def apart(ours: Mapping[K, float], others: Mapping[K, float]) -> str:
    """`paired` as `difference` writes it; empty with fewer than two seeds."""
    found = paired(ours, others)
    return difference(found[0], found[1]) if found else ""


def signed(text: str) -> str:
    """Numbers with a minus sign, as the pages write it."""
    return text.replace("-", "−")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])
