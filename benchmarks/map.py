"""What is a selection worth? The gain over class-balanced random, by kept share and optimiser steps.

    python -m benchmarks.map CONFIG RESULTS.jsonl [--set KEY=VALUE ...]

Scores come from a training on all candidates, of the configured network or of `score.proxy`, for as many epochs as
`--epochs` says. Its learning rate is constant, so a prefix of its epochs is a shorter scorer. The rules are applied to
each prefix. The rules with `theta_p` in their name read the merged model of the configured swarm instead. On each
subset the configured network is trained for each number of steps. All rules share the seed, the split, the initial
weights and the number of steps; `RS2` draws from all candidates. With `--scorers 3` three networks give a trajectory
each, and scores are their means, as with `score.runs`. With `--start scorer` or `--start theta_p` the trainings go on
from the weights of that model in place of random ones, and its own accuracy is the rule `start` after 0 steps.
With `--trained KEY=VALUE ...` another network is trained on the subsets, as `model.name=vit_small train.lr=0.03`.

Each finished training is one line of RESULTS.jsonl. A repeated call does what is missing. The scorers lie beside the
results, in RESULTS.scorers/.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.journal import Journal, common, contexts, parser
from benchmarks.scorers import RULES, WEIGHTS, Problem, candidates_of, problem_of, scored_for, with_outputs
from lipt.config import load_config, override
from lipt.rng import derive
from lipt.runtime.context import Context
from lipt.runtime.network import new_model, standard_augment
from lipt.selection import requirements, select
from lipt.training.batches import batch_sizes
from lipt.training.draws import LossDraws
from lipt.training.forward import accuracies
from lipt.training.loop import Trainer, train
from lipt.training.networks import on_device
from lipt.training.recipe import Recipe
from lipt.training.tensor_files import State


def accuracies_after(
    problem: Problem,
    rows_K: Tensor | None,
    *,
    steps: int,
    kept: int,
    weights_K: Tensor | None = None,
    draws: LossDraws | None = None,
    drawn: int | None = None,
    start: State | None = None,
) -> dict[str, float]:
    """Test and validation accuracy after training on the rows; None: on `kept` fresh ones in each epoch.

    Args:
        weights_K: of the rows in the loss.
        drawn: the images among which `draws` chooses; None: `kept`.
        start: the weights before the first step; None: random ones.
    """
    ctx, settings = problem.ctx, problem.ctx.config.train
    images = problem.images if rows_K is None else problem.images.subset(rows_K)
    recipe = Recipe(
        epochs=-(-steps // len(batch_sizes(kept, settings.batch_size))),
        steps=steps,
        batch_size=settings.batch_size,
        lr=settings.lr,
        schedule="cosine",
        augment=standard_augment(ctx),
        epoch_size=(drawn or kept) if rows_K is None else None,
        precision=ctx.precision,
    )
    seed = ctx.seed("map", "train")
    trainer = Trainer(new_model(ctx, problem.classes, seed, start), recipe, seed=seed, device=ctx.device)
    train(trainer, lambda _: (images, weights_K), draws=draws)
    return evaluated(trainer.model, problem)


def evaluated(model: nn.Module, problem: Problem) -> dict[str, float]:
    """Test and validation accuracy."""
    on, device = on_device(model, problem.ctx.device), problem.ctx.device
    return {
        "accuracy": accuracies([on], problem.test, device=device)[0],
        "validation": accuracies([on], problem.validation, device=device)[0],
    }


def cells(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All trainings of one seed, in the order in which they run."""
    if arguments.start != "fresh":
        epochs = max(arguments.epochs) if arguments.start == "scorer" else 0
        yield {"steps": 0, "fraction": 1.0, "rule": "start", "epochs": epochs}
    for steps, fraction, rule in itertools.product(arguments.steps, arguments.fractions, arguments.rules):
        for epochs in [0] if RULES[rule][2] in ("nothing", "theta_p") else arguments.epochs:
            if rule in ("dual", "dual, c_d 5.5", "dyn_unc") and epochs < 2:
                continue
            yield {"steps": steps, "fraction": fraction, "rule": rule, "epochs": epochs}


#: The entries of a line that tell one training from another.
_SCORED_BY = ("proxy", "start", "scorers", "scorer", "lr")
KEYS = ("seed", "steps", "fraction", "rule", "epochs", "batch_size", "model", "size", *_SCORED_BY)


def arguments_of(description: str | None) -> argparse.ArgumentParser:
    found = parser(description)
    found.add_argument("--fractions", type=float, nargs="+", default=[0.01, 0.05, 0.1, 0.2, 0.3])
    found.add_argument("--epochs", type=int, nargs="+", default=[10], help="epochs of the scorer")
    found.add_argument("--scorers", type=int, default=1, help="networks that give a trajectory")
    found.add_argument("--rules", nargs="+", default=[each for each in RULES if ", beta " not in each], choices=RULES)
    found.add_argument(
        "--trained", action="extend", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the trained network"
    )
    found.add_argument("--start", default="fresh", choices=["fresh", *WEIGHTS], help="the weights before training")
    return found


def main() -> None:
    given = arguments_of(__doc__).parse_args()
    if given.trained and (given.start != "fresh" or any(each.startswith("data.") for each in given.trained)):
        raise SystemExit("--trained is another network on the same images, from random weights")
    journal = Journal(path=given.results, keys=KEYS)
    for ctx in contexts(given):
        trained = of_training(ctx, given)
        shared = common(trained.config) | ({"start": given.start} if given.start != "fresh" else {})
        shared |= {"scorer": common(ctx.config)["model"], "lr": trained.config.train.lr} if given.trained else {}
        shared |= {"scorers": given.scorers} if given.scorers > 1 else {}
        missing = journal.missing(shared | cell for cell in cells(given))
        if not missing:
            continue
        problem = problem_of(ctx)
        scored = scored_for(problem, given, journal, missing)
        for cell in missing:
            journal.measure(cell, partial(measured, replace(problem, ctx=trained), scored, cell))


def of_training(ctx: Context, given: argparse.Namespace) -> Context:
    """The configuration of the network that is trained on the subsets."""
    if not given.trained:
        return ctx
    return Context.of(override(load_config(given.config, [*given.set, *given.trained]), {"seed": ctx.config.seed}))


def measured(problem: Problem, scored: dict[str, Tensor], cell: Mapping[str, Any]) -> dict[str, Any]:
    """The training of a cell."""
    start = None
    if prefix := WEIGHTS.get(cell.get("start", "fresh")):
        start = {name.removeprefix(prefix): each for name, each in scored.items() if name.startswith(prefix)}
    if cell["rule"] == "start":
        return {"kept": len(problem.images)} | evaluated(new_model(problem.ctx, problem.classes, 0, start), problem)
    algorithm, options, reads = RULES[cell["rule"]]
    kept, rows_K, weights_K = round(cell["fraction"] * len(problem.images)), None, None
    if cell["rule"] != "RS2":
        candidates, judges = candidates_of(problem, scored, reads, cell["epochs"]), None
        if requirements(algorithm, cell["fraction"], options).validation:
            judges = with_outputs(problem, problem.validation.labels_N, scored, "theta_p-validation")
        seed = derive(cell["seed"], "map", "select")
        chosen = select(algorithm, candidates, k=kept, seed=seed, validation=judges, **options)
        rows_K, weights_K = chosen.indices_K, chosen.weights_K
    recipe = {"steps": cell["steps"], "kept": kept, "weights_K": weights_K, "start": start}
    return {"kept": kept} | accuracies_after(problem, rows_K, **recipe)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
