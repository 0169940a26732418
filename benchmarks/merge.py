"""What the search of the merge costs, and whether it costs accuracy: the same jigsaws, merged by default and on a grid.

    python -m benchmarks.merge CONFIG RESULTS.jsonl SEEDS [SETTING=VALUE ...]

The grid is that of the paper, on all validation images and without an early stop; everything else is as configured.
Each line of RESULTS is one merge. A repeated call merges what is missing. Then it prints the paired differences of
theta_p's test accuracy with their 95 % interval, and the costs in epochs of training on all candidates.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.journal import Journal
from benchmarks.tables import paired
from lipt.config import load_config
from lipt.flow.dag import merge_jigsaws, prepare, train_jigsaws, with_config
from lipt.runtime import Context
from lipt.stages.evaluate import evaluate

#: Name of a merge -> its settings.
_MERGES = {"default": {}, "grid": {"search": "grid", "search_images": None}}


def main(config_file: str, results: Path, seeds: range, overrides: list[str]) -> None:
    journal = Journal(path=results, keys=("seed", "name"))
    ctx = Context.of(load_config(config_file, overrides))
    for cell in journal.missing({"seed": seed, "name": name} for seed in seeds for name in _MERGES):
        journal.write({**cell, **measured(with_config(ctx, {"seed": cell["seed"], "merge": _MERGES[cell["name"]]}))})
    rows = {(row["seed"], row["name"]): row for row in journal.lines()}
    default, grid = ({seed: 100 * rows[seed, name]["test"] for seed in seeds} for name in _MERGES)
    if ahead := paired(default, grid):
        print(f"theta_p on test images: default - grid {ahead[0]:+.2f} +- {ahead[1]:.2f} points")
    for name in _MERGES:
        costs = [rows[seed, name]["merge_epochs"] for seed in seeds]
        test = fmean(100 * rows[seed, name]["test"] for seed in seeds)
        print(f"{name:8} {test:.2f} %, merge {min(costs):.3f} to {max(costs):.3f} epochs, mean {fmean(costs):.3f}")
    print(f"jigsaws {fmean(row['swarm_epochs'] for row in rows.values()):.3f} epochs")


def measured(ctx: Context) -> dict[str, Any]:
    """Test accuracy of theta_p, and the costs of jigsaws and merge by their FLOPs in the ledger."""
    prepared = prepare(ctx)
    jigsaws, _ = train_jigsaws(ctx, prepared, range(ctx.config.dispatch.jigsaws))
    merged = merge_jigsaws(ctx, prepared, list(jigsaws.values()))
    cost = ctx.workspace.cost
    epoch = cost(prepared.initial[0]).flops / ctx.config.initialise.epochs
    return {
        "test": evaluate(ctx, prepared.dataset, merged).make().summary["accuracy"],
        "chosen": merged.summary["chosen"],
        "merge_epochs": cost(merged).flops / epoch,
        "swarm_epochs": sum(cost(jigsaw).flops for jigsaw in jigsaws.values()) / epoch,
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), range(int(sys.argv[3])), sys.argv[4:])
