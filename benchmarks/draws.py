"""Which fresh draw is best at equal steps, and are scores worth their cost as its first losses?

    python -m benchmarks.draws CONFIG RESULTS.jsonl [--set KEY=VALUE ...]

Each training draws afresh from all candidates: uniformly (RS2), by InfoBatch, or the highest losses of a larger uniform
draw (OrderDP). The last two start cold, or from the last epoch of a scorer: the configured network or `score.proxy`,
trained on all candidates for `--epochs` epochs. `uniform + cost` trains for as many more steps as the FLOPs of the
scorer. With `--pools` below 1 the draws come from a part of the candidates, class-balanced random or chosen by a rule
of `benchmarks.map` along ten epochs of the scorer (`--pools-by`). All rows share the seed, split and initial weights.

Each finished training is one line of RESULTS.jsonl. A repeated call does what is missing. The scorers lie beside the
results, in RESULTS.scorers/.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.journal import Journal, common, contexts, parser
from benchmarks.map import accuracies_after
from benchmarks.scorers import RULES, Problem, candidates_of, problem_of, score
from lipt.data.images import image_shape
from lipt.rng import derive
from lipt.runtime.network import new_model
from lipt.selection import select
from lipt.training.draws import InfoBatch, LossDraws, Ordered, losses
from lipt.training.flops import flops_per_image

#: name -> (`train.draw`, whether it needs the scorer)
ROWS: dict[str, tuple[str, bool]] = {
    "uniform": ("uniform", False),
    "infobatch": ("infobatch", False),
    "ordered": ("ordered", False),
    "uniform + cost": ("uniform", True),
    "infobatch from scores": ("infobatch", True),
    "ordered from scores": ("ordered", True),
}
#: Epochs of the scorer along which a rule chooses a pool.
POOL_EPOCHS = 10


def scorer_steps(problem: Problem, epochs: int) -> int:
    """The FLOPs of the scorer, in steps of the trained network."""
    scorer, own = (
        flops_per_image(new_model(ctx, problem.classes, 0), image_shape(images)).training
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
    arguments.add_argument("--pools-by", nargs="+", default=["random"], choices=RULES, help="the rule of a pool")
    arguments.add_argument("--epochs", type=int, default=1, help="epochs of the scorer whose losses are the first")
    arguments.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    given = arguments.parse_args()
    keys = ("seed", "batch_size", "model", "size", "proxy", "options", "epochs", "steps", "fraction", "pool", "pool_by")
    journal = Journal(path=given.results, keys=(*keys, "row"))
    for ctx in contexts(given):
        train = ctx.config.train
        shared = common(ctx.config) | {"options": [train.prune_probability, train.top_share]}
        pools = [(pool, rule if pool < 1 else "random") for pool in given.pools for rule in given.pools_by]
        missing = journal.missing(
            shared
            | {"epochs": given.epochs * ROWS[row][1], "steps": steps, "fraction": fraction}
            | {"pool": pool, "pool_by": rule, "row": row}
            for steps, fraction, (pool, rule), row in itertools.product(
                given.steps, given.fractions, dict.fromkeys(pools), given.rows
            )
        )
        if not missing:
            continue
        problem = problem_of(ctx)
        for cell in missing:
            journal.measure(cell, partial(measured, problem, journal, cell))


def measured(problem: Problem, journal: Journal, cell: Mapping[str, Any]) -> dict[str, Any]:
    """The training of a cell; the journal knows the files of the scorers."""
    draw, _ = ROWS[cell["row"]]
    kept, first_N, more = round(cell["fraction"] * len(problem.images)), None, 0

    def scores(epochs: int) -> dict[str, Tensor]:
        return score(problem, epochs, [epochs], journal.scorer(problem.ctx.config, f"{epochs}-seed{cell['seed']}"))

    if cell["epochs"] and draw == "uniform":
        more = scorer_steps(problem, cell["epochs"])
    elif cell["epochs"]:
        first_N = losses(scores(cell["epochs"])["p"][:, -1])
    if cell["pool"] < 1:
        algorithm, options, reads = RULES[cell["pool_by"]]
        candidates = candidates_of(problem, {} if reads == "nothing" else scores(POOL_EPOCHS), reads, POOL_EPOCHS)
        seed, count = derive(cell["seed"], "draws", "pool"), round(cell["pool"] * len(problem.images))
        rows_K = select(algorithm, candidates, k=count, seed=seed, **options).indices_K
        problem = replace(problem, images=problem.images.subset(rows_K))
        first_N = None if first_N is None else first_N[rows_K]
    draws, drawn = draws_of(problem, draw, kept, first_N)
    found = accuracies_after(problem, None, steps=cell["steps"] + more, kept=kept, draws=draws, drawn=drawn)
    return {"more_steps": more} | found


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
