"""The differences that docs/results/start.md names beside its tables follow from the stored records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.tables import difference, paired
from lipt.selection.measured import CONTINUED_GAINS
from tests.docs.pages import ROOT

PAGE = " ".join((ROOT / "docs/results/start.md").read_text(encoding="utf-8").split())
LINES = [json.loads(line) for line in (ROOT / "benchmarks/results/start-scorer.jsonl").read_text().splitlines()]


def accuracy(**wanted: Any) -> Mapping[int, float]:
    found = {run["seed"]: 100 * run["accuracy"] for run in LINES if all(run.get(key) == wanted[key] for key in wanted)}
    assert sorted(found) == [0, 1, 2, 3, 4]
    return found


def apart(ours: Mapping[int, float], others: Mapping[int, float]) -> str:
    measured = paired(ours, others)
    assert measured is not None
    return difference(*measured[:2], bold=False)


@pytest.mark.parametrize(
    ("fraction", "said"),
    [
        (0.1, "It is {} points above random images at 10 % from the scorer's weights"),
        (0.2, "and {} above those at 20 %"),
    ],
)
def test_a_training_on_all_images(fraction: float, said: str) -> None:
    there = apart(accuracy(steps=9031), accuracy(fraction=fraction, rule="random", start="scorer"))
    assert said.format(there.lstrip("+")) in PAGE


@pytest.mark.parametrize("share", CONTINUED_GAINS)
def test_the_gains_that_auto_names(share: float) -> None:
    chosen, random = (accuracy(fraction=share, rule=rule, start="scorer") for rule in ("dyn_unc", "random"))
    assert CONTINUED_GAINS[share] == apart(chosen, random)
    assert CONTINUED_GAINS[share] in PAGE
