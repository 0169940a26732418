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


def accuracy(records: str = "start-scorer", **wanted: Any) -> Mapping[int, float]:
    lines = (ROOT / f"benchmarks/results/{records}.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [run for run in map(json.loads, lines) if all(run.get(key) == wanted[key] for key in wanted)]
    found = {run["seed"]: 100 * run["accuracy"] for run in runs}
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


@pytest.mark.parametrize(
    ("records", "start", "rule", "gains"),
    [
        ("start-theta-p", "theta_p", "ccs el2n, theta_p", CONTINUED_GAINS["ccs from theta_p"]),
        ("start-scorer", "scorer", "dyn_unc", CONTINUED_GAINS["dyn_unc from the network of the trajectory"]),
    ],
)
def test_the_gains_that_auto_names(records: str, start: str, rule: str, gains: Mapping[float, str]) -> None:
    for share, gain in gains.items():
        chosen, random = (accuracy(records, fraction=share, rule=each, start=start) for each in (rule, "random"))
        assert gain == apart(chosen, random)
        assert gain in PAGE
