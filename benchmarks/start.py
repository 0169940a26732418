"""Is it worth starting the main training from theta_p?

    python -m benchmarks.start CONFIG RESULTS.jsonl [--set KEY=VALUE ...]

theta_p is the merged model of the configured swarm. `continue` trains on from it. `fresh` starts from random weights,
and `fresh + cost` trains for as many more steps as the FLOPs of theta_p, merge included. The images are drawn afresh
from all candidates in each epoch (RS2), or are a fixed class-balanced random subset. Seed, split, subset and recipe are
equal in all rows.

Each finished training is one line of RESULTS.jsonl. A repeated call does what is missing, then prints the means and the
paired differences from `continue`.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.journal import Journal, common, contexts, parser
from benchmarks.map import accuracies_after
from benchmarks.scorers import Problem, problem_of, theta_p
from benchmarks.tables import markdown, paired, read_records
from lipt.rng import derive
from lipt.selection import Candidates, select
from lipt.training.tensor_files import State

ROWS = ("continue", "fresh + cost", "fresh")
IMAGES = ("drawn", "fixed")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--fractions", type=float, nargs="+", default=[0.1, 0.3], help="trained on per epoch")
    arguments.add_argument("--images", nargs="+", default=list(IMAGES), choices=IMAGES)
    arguments.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    given = arguments.parse_args()
    keys = ("seed", "batch_size", "lr", "model", "size", "steps", "fraction", "images", "row")
    journal = Journal(path=given.results, keys=keys)
    for ctx in contexts(given):
        shared = common(ctx.config) | {"lr": ctx.config.train.lr}
        missing = journal.missing(
            shared | {"steps": steps, "fraction": fraction, "images": images, "row": row}
            for steps, images, fraction, row in itertools.product(
                given.steps, given.images, given.fractions, given.rows
            )
        )
        if missing:
            problem = problem_of(ctx)
            started = theta_p(problem)
            for cell in missing:
                journal.measure(cell, partial(measured, problem, started, cell))
    print(table(given.results))


def measured(problem: Problem, started: tuple[State, int], cell: Mapping[str, Any]) -> dict[str, Any]:
    """The training of a cell; `started` is what `theta_p` returned."""
    state, cost = started
    kept, rows_K = round(cell["fraction"] * len(problem.images)), None
    if cell["images"] == "fixed":
        labelled = Candidates(labels_N=problem.images.labels_N, num_classes=problem.classes)
        rows_K = select("stratified", labelled, k=kept, seed=derive(cell["seed"], "start", "select")).indices_K
    more = cost if cell["row"] == "fresh + cost" else 0
    start = state if cell["row"] == "continue" else None
    found = accuracies_after(problem, rows_K, steps=cell["steps"] + more, kept=kept, start=start)
    return {"kept": kept, "more_steps": more} | found


def table(results: Path) -> str:
    """For each number of steps, kind of images, share and row: mean accuracy, and `continue` minus it."""
    found: dict[tuple[int, str, float, str], dict[int, float]] = {}
    for line in read_records(results):
        cell = line["steps"], line["images"], line["fraction"], line["row"]
        found.setdefault(cell, {})[line["seed"]] = 100 * line["accuracy"]
    rows = []
    for cell, accuracy in sorted(found.items()):
        ahead = paired(found.get((*cell[:3], "continue"), {}), accuracy) if cell[3] != "continue" else None
        shown = f"{ahead[0]:+.1f} ± {ahead[1]:.1f} ({ahead[2]} seeds)" if ahead else ""
        steps, images, share, row = cell
        rows.append([f"{steps:,}", images, f"{share:.0%}", row, f"{statistics.mean(accuracy.values()):.1f}", shown])
    return markdown(["steps", "images", "share", "row", "accuracy", "`continue` minus this"], rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
