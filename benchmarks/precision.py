"""Does bf16 cost accuracy? Whole runs in both precisions, with the same seeds.

    python -m benchmarks.precision CONFIG RESULTS.jsonl [SETTING=VALUE ...]

Each line of RESULTS is one run: theta_* and theta_p on the validation images, and the test accuracy after training on
the selected and on a class-balanced random subset. A repeated call runs what is missing, then prints the paired
differences bf16 - fp32 with their 95 % interval.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.journal import Journal
from benchmarks.tables import paired
from lipt.config import load_config
from lipt.flow.dag import run, with_config
from lipt.runtime import Context

_SEEDS = range(8)
_PRECISIONS = ("fp32", "bf16")
_MEASURES = ("theta_star", "theta_p", "selected", "random")


def main(config_file: str, results: Path, overrides: list[str]) -> None:
    journal = Journal(path=results, keys=("seed", "precision"))
    ctx = Context.of(load_config(config_file, overrides))
    for cell in journal.missing({"seed": seed, "precision": name} for seed in _SEEDS for name in _PRECISIONS):
        journal.write({**cell, **measured(with_config(ctx, dict(cell)))})
    rows = journal.lines()
    for measure in _MEASURES:
        fp32, bf16 = (
            {row["seed"]: 100 * row[measure] for row in rows if row["precision"] == name} for name in _PRECISIONS
        )
        if ahead := paired(bf16, fp32):
            mean = fmean(fp32.values())
            print(f"{measure:10}  fp32 {mean:.2f}   bf16 - fp32 {ahead[0]:+.2f} +- {ahead[1]:.2f} points")


def measured(ctx: Context) -> dict[str, Any]:
    """The accuracies of one run and of its random row."""
    selected = run(ctx)
    random = run(with_config(ctx, {"select": {"algorithm": "stratified"}}))
    assert selected.merged is not None
    return {
        "theta_star": selected.merged.summary["theta_star_accuracy"],
        "theta_p": selected.merged.summary["accuracy"],
        "selected": selected.trained.evaluation.summary["accuracy"],
        "random": random.trained.evaluation.summary["accuracy"],
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
