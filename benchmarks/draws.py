"""Which fresh draw is best at equal steps, and are scores worth their cost as its first losses?

    python -m benchmarks.draws CONFIG RESULTS.jsonl [--set KEY=VALUE ...]

Each training draws afresh from all candidates: uniformly (RS2), by InfoBatch, or the highest losses of a larger uniform
draw (OrderDP). The last two start cold, or from the last epoch of a scorer: the configured network or `score.proxy`,
trained on all candidates for `--epochs` epochs. `uniform + cost` trains for as many more steps as the FLOPs of the
scorer. Seed, split and initial weights are equal in all rows.

Each finished training is one line of RESULTS.jsonl. A repeated call does what is missing. The scorers lie beside the
results, in RESULTS.scorers/.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.map import Problem, accuracy_after, problem_of, score
from lipt.config import load_config, override
from lipt.data.images import image_shape
from lipt.runtime.context import Context
from lipt.runtime.network import new_model
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("results", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.1, 0.3], help="trained on per epoch")
    parser.add_argument("--epochs", type=int, default=1, help="epochs of the scorer")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    arguments = parser.parse_args()
    config = load_config(arguments.config, arguments.set)
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    keys = ("seed", "batch_size", "model", "size", "options", "epochs", "steps", "fraction", "row")
    done = {json.dumps([json.loads(line)[key] for key in keys]) for line in lines}
    for seed in arguments.seeds:
        ctx = Context.of(override(config, {"seed": seed}))
        whole = ctx.config
        shared: dict[str, Any] = {
            "seed": seed,
            "batch_size": whole.train.batch_size,
            "model": [whole.model.name, whole.model.width],
            "size": whole.data.image_size,
            "options": [whole.train.prune_probability, whole.train.top_share],
        }
        problem = None
        for steps, fraction, row in itertools.product(arguments.steps, arguments.fractions, arguments.rows):
            draw, scored = ROWS[row]
            cell = shared | {"epochs": arguments.epochs * scored, "steps": steps, "fraction": fraction, "row": row}
            if json.dumps([cell[key] for key in keys]) in done:
                continue
            started, cpu = time.time(), time.process_time()
            problem = problem or problem_of(ctx)
            kept, first_N, more = round(fraction * len(problem.images)), None, 0
            if scored and draw == "uniform":
                more = scorer_steps(problem, arguments.epochs)
            elif scored:
                path = arguments.results.with_suffix(".scorers") / f"{arguments.epochs}-seed{seed}.safetensors"
                first_N = losses(score(problem, arguments.epochs, [], path)["p"][:, -1])
            draws, drawn = draws_of(problem, draw, kept, first_N)
            accuracy = accuracy_after(problem, None, steps=steps + more, kept=kept, draws=draws, drawn=drawn)
            found = cell | {"more_steps": more, "accuracy": accuracy, "cpu_s": round(time.process_time() - cpu, 1)}
            with arguments.results.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{found} {time.time() - started:.0f} s", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
