"""Which fresh draw is best at equal steps, and are scores worth their cost as its first losses?

    python -m benchmarks.draws CONFIG RESULTS.jsonl [--set KEY=VALUE ...]

Each training draws afresh from all candidates: uniformly (RS2), by InfoBatch, or the highest losses of a larger uniform
draw (OrderDP). The last two start cold, or from the last epoch of a scorer: the configured network or `score.proxy`,
trained on all candidates for `--epochs` epochs. `uniform + cost` trains for as many more steps as the FLOPs of the
scorer. With `--pools` below 1 the draws come from a class-balanced random part of the candidates. Seed, split and
initial weights are equal in all rows.

Each finished training is one line of RESULTS.jsonl. A repeated call does what is missing. The scorers lie beside the
results, in RESULTS.scorers/.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.journal import Journal, common, contexts, parser
from benchmarks.map import Problem, accuracies_after, problem_of, score
from lipt.data.images import image_shape
from lipt.rng import derive
from lipt.runtime.network import new_model
from lipt.selection import Candidates, select
from lipt.training.draws import InfoBatch, LossDraws, Ordered, losses
from lipt.training.networks import train_flops_per_image

#: name -> (`train.draw`, whether it needs the scorer)
ROWS: dict[str, tuple[str, bool]] = {
    "uniform": ("uniform", False),
    "infobatch": ("infobatch", False),
    "ordered": ("ordered", False),
    "uniform + cost": ("uniform", True),
    "infobatch from scores": ("infobatch", True),
    "ordered from scores": ("ordered", True),
}


def scorer_steps(problem: Problem, epochs: int) -> int:
    """The FLOPs of the scorer, in steps of the trained network."""
    scorer, own = (
        train_flops_per_image(new_model(ctx, problem.classes, 0), image_shape(images))[1]
        for ctx, images in ((problem.ctx.of_scorer(), problem.scored), (problem.ctx, problem.images))
    )
    return round(epochs * len(problem.scored) * scorer / own / problem.ctx.config.train.batch_size)


def draws_of(problem: Problem, draw: str, kept: int, first_N: Tensor | None) -> tuple[LossDraws | None, int]:
    """The draws, and how many images they choose among."""
    settings = problem.ctx.config.train
    loss_N = torch.full((len(problem.images),), torch.nan) if first_N is None else first_N.clone()
    if draw == "infobatch":
        return InfoBatch(loss_N, probability=settings.prune_probability), kept
    if draw == "ordered":
        return Ordered(loss_N, count=kept), round(kept / settings.top_share)
    return None, kept


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--fractions", type=float, nargs="+", default=[0.1, 0.3], help="trained on per epoch")
    arguments.add_argument("--pools", type=float, nargs="+", default=[1.0], help="kept to draw from")
    arguments.add_argument("--epochs", type=int, default=1, help="epochs of the scorer")
    arguments.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    given = arguments.parse_args()
    keys = ("seed", "batch_size", "model", "size", "options", "epochs", "steps", "fraction", "pool", "row")
    journal = Journal(path=given.results, keys=keys)
    for ctx in contexts(given):
        train = ctx.config.train
        shared = common(ctx.config) | {"options": [train.prune_probability, train.top_share]}
        missing = journal.missing(
            shared
            | {"epochs": given.epochs * ROWS[row][1], "steps": steps, "fraction": fraction, "pool": pool, "row": row}
            for steps, fraction, pool, row in itertools.product(given.steps, given.fractions, given.pools, given.rows)
        )
        if not missing:
            continue
        problem = problem_of(ctx)
        for cell in missing:
            path = journal.scorer(f"{given.epochs}-seed{ctx.config.seed}")
            journal.measure(cell, partial(measured, problem, path, cell))


def measured(problem: Problem, scorer: Path, cell: Mapping[str, Any]) -> dict[str, Any]:
    """The training of a cell; `scorer` is the file of the scorer."""
    draw, _ = ROWS[cell["row"]]
    kept, first_N, more = round(cell["fraction"] * len(problem.images)), None, 0
    if cell["epochs"] and draw == "uniform":
        more = scorer_steps(problem, cell["epochs"])
    elif cell["epochs"]:
        first_N = losses(score(problem, cell["epochs"], [], scorer)["p"][:, -1])
    if cell["pool"] < 1:
        candidates = Candidates(labels_N=problem.images.labels_N, num_classes=problem.classes)
        seed = derive(cell["seed"], "draws", "pool")
        rows_K = select("stratified", candidates, k=round(cell["pool"] * len(problem.images)), seed=seed).indices_K
        problem = replace(problem, images=problem.images.subset(rows_K))
        first_N = None if first_N is None else first_N[rows_K]
    draws, drawn = draws_of(problem, draw, kept, first_N)
    found = accuracies_after(problem, None, steps=cell["steps"] + more, kept=kept, draws=draws, drawn=drawn)
    return {"more_steps": more} | found


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
