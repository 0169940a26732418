"""The table of docs/results/training.md about the steps of InfoBatch has the numbers of the stored records."""

from __future__ import annotations

import json
from statistics import fmean, stdev

from tests.docs.pages import ROOT
from tests.docs.test_cost_tables import difference

PAGE = (ROOT / "docs/results/training.md").read_text(encoding="utf-8")


def runs(row: str, variant: str) -> dict[int, float]:
    lines = (ROOT / "benchmarks/results/draws-step-length.jsonl").read_text().splitlines()
    found = [run for run in map(json.loads, lines) if (run["row"], run["variant"]) == (row, variant)]
    assert sorted(run["seed"] for run in found) == [0, 1, 2, 3, 4]
    return {run["seed"]: 100 * run["accuracy"] for run in found}


def test_the_table_and_the_differences() -> None:
    usual = runs("uniform", "lr 0.05")
    infobatch, equal, faster = (
        runs(*which)
        for which in (("infobatch", "lr 0.05"), ("infobatch", "steps of equal length"), ("uniform", "lr 0.075"))
    )
    for label, lr, found in (
        ("uniform (RS2)", ".05", usual),
        ("infobatch", ".05", infobatch),
        ("infobatch, steps of equal length", ".05", equal),
        ("uniform (RS2)", ".075", faster),
    ):
        mean = f"{fmean(found.values()):.1f} ± {stdev(found.values()):.1f}"
        gain = "" if found is usual else f"{difference(found, usual)} "
        assert f"| {label} | {lr} | {mean} | {gain}|" in PAGE
    longer = difference(infobatch, equal).replace("+", "")
    assert f"InfoBatch is {longer} points above its variant" in " ".join(PAGE.split())
    assert f"by {difference(faster, infobatch).strip('*+')} points" in " ".join(PAGE.split())
