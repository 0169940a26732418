"""What docs/results/trajectories.md says of another learning rate has the numbers of the stored records."""

from __future__ import annotations

import json
from statistics import fmean, stdev

from tests.docs.pages import ROOT
from tests.docs.test_cost_tables import difference

PAGE = (ROOT / "docs/results/trajectories.md").read_text(encoding="utf-8")


def runs(rule: str) -> dict[int, float]:
    lines = (ROOT / "benchmarks/results/map-lr-0.1.jsonl").read_text().splitlines()
    found = {run["seed"]: 100 * run["accuracy"] for run in map(json.loads, lines) if run["rule"] == rule}
    assert sorted(found) == [0, 1, 2, 3, 4]
    return found


def test_the_table() -> None:
    random, chosen = runs("random"), runs("dyn_unc")
    for label, found, gain in (
        ("class-balanced random", random, ""),
        ("Dyn-Unc", chosen, f"{difference(chosen, random)} "),
    ):
        seeds = " | ".join(f"{found[seed]:.1f}" for seed in range(5))
        assert f"| {label} | {seeds} | {fmean(found.values()):.1f} ± {stdev(found.values()):.1f} | {gain}|" in PAGE
