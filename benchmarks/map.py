"""What is a selection worth? The gain over class-balanced random, by kept share and optimiser steps.

    python -m benchmarks.map CONFIG RESULTS.jsonl [--set KEY=VALUE ...]

Scores come from a training on all candidates, of the configured network or of `score.proxy`, for as many epochs as
`--epochs` says. Its learning rate is constant, so a prefix of its epochs is a shorter scorer. The rules are applied to
each prefix. On each subset the configured network is trained for each number of steps. All rules share
the seed, the split, the initial weights and the number of steps; `RS2` draws from all candidates.

Each finished training is one line of RESULTS.jsonl. A repeated call does what is missing. The scorers lie beside the
results, in RESULTS.scorers/.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.journal import Journal, common, contexts, parser
from lipt.data.chunks import Dataset
from lipt.data.images import ResidentImages
from lipt.rng import derive
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import images_of, open_dataset, open_test_images, split_positions, training_images
from lipt.runtime.network import new_model, standard_augment
from lipt.selection import Candidates, Outputs, Trajectory, select
from lipt.stages.ingest import ingest
from lipt.training.draws import LossDraws
from lipt.training.dynamics import Dynamics
from lipt.training.forward import accuracies, outputs_of
from lipt.training.loop import Recipe, Trainer, batch_sizes, train
from lipt.training.tensor_files import State, pack, unpack

#: name -> (algorithm, options, what it reads)
RULES: dict[str, tuple[str, dict[str, Any], str]] = {
    "random": ("stratified", {}, "nothing"),
    "RS2": ("random", {}, "nothing"),
    "ccs el2n": ("ccs", {"score": "el2n"}, "trajectory"),
    "ccs aum": ("ccs", {"score": "aum"}, "trajectory"),
    "dual": ("dual", {}, "trajectory"),
    "dyn_unc": ("dyn_unc", {}, "trajectory"),
    "el2n": ("el2n", {}, "trajectory"),
    "herding": ("herding", {}, "outputs"),
    "moderate": ("moderate", {}, "outputs"),
    "k_center": ("k_center", {}, "outputs"),
    "prototypes": ("prototypes", {}, "outputs"),
    "prototypes, easy": ("prototypes", {"keep": "easy"}, "outputs"),
    "ccs el2n, last epoch": ("ccs", {"score": "el2n"}, "outputs"),
}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Images of one seed: the candidates for the trained network and for the scorer, validation and test images."""

    ctx: Context
    classes: int
    images: ResidentImages
    scored: ResidentImages
    validation: ResidentImages
    test: ResidentImages


def problem_of(ctx: Context) -> Problem:
    dataset = ingest(ctx).make()
    attempt = Attempt(ctx=ctx, ref="map/0", label="map")

    def load(own: Context) -> tuple[Dataset, list[ResidentImages]]:
        data = open_dataset(attempt, dataset)
        validation, candidates = split_positions(own, data)
        found = [training_images(own, data, candidates), images_of(own, data, "train", validation)]
        return data, [resident(each) for each in (*found, open_test_images(own, data))]

    data, (images, validation, test) = load(ctx)
    scored = load(ctx.of_scorer())[1][0] if ctx.config.score.proxy else images
    classes = len(data.manifest.classes)
    return Problem(ctx=ctx, classes=classes, images=images, scored=scored, validation=validation, test=test)


def resident(images: object) -> ResidentImages:
    assert isinstance(images, ResidentImages), "raise data.resident_mb: the experiments hold all images in memory"
    return images


def score(problem: Problem, epochs: int, kept_outputs: list[int], path: Path) -> dict[str, Tensor]:
    """The trajectory of a training, and the outputs after the epochs `kept_outputs`; read from `path` if it exists."""
    if path.exists():
        return unpack(path.read_bytes(), origin=str(path))
    ctx = problem.ctx.of_scorer()
    settings, seed = ctx.config.initialise, ctx.seed("map", "scorer")
    recipe = Recipe(
        epochs=epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        schedule="constant",
        augment=standard_augment(ctx),
        precision=ctx.precision,
    )
    trainer = Trainer(new_model(ctx, problem.classes, seed), recipe, seed=seed, device=ctx.device)
    dynamics, found = Dynamics.empty(len(problem.scored), epochs), {}

    def remember(each: Trainer) -> None:
        if each.progress.epoch in kept_outputs:
            outputs = outputs_of(each.model, problem.scored, device=ctx.device, precision=ctx.precision)
            found.update({f"{name}-{each.progress.epoch}": tensor for name, tensor in outputs.tensors().items()})

    train(trainer, lambda _: (problem.scored, None), dynamics=dynamics, after_epoch=remember)
    found |= dynamics.tensors()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(found))
    return found


def candidates_of(problem: Problem, scored: dict[str, Tensor], reads: str, epochs: int) -> Candidates:
    labels_N = problem.images.labels_N
    if reads == "nothing":
        return Candidates(labels_N=labels_N, num_classes=problem.classes)
    if reads == "outputs":
        outputs = Outputs(logits_NC=scored[f"logits-{epochs}"], features_ND=scored[f"features-{epochs}"])
        return Candidates(labels_N=labels_N, num_classes=problem.classes, outputs=[outputs])
    first = {name: scored[name][:, :epochs] for name in ("p", "error", "margin")}
    return Candidates(labels_N=labels_N, num_classes=problem.classes, trajectories=[Trajectory.of(first)])


def accuracies_after(
    problem: Problem,
    rows_K: Tensor | None,
    *,
    steps: int,
    kept: int,
    draws: LossDraws | None = None,
    drawn: int | None = None,
    start: State | None = None,
) -> dict[str, float]:
    """Test and validation accuracy after training on the rows; None: on `kept` fresh ones in each epoch.

    Args:
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
    train(trainer, lambda _: (images, None), draws=draws)
    return {
        "accuracy": accuracies([trainer.model], problem.test, device=ctx.device)[0],
        "validation": accuracies([trainer.model], problem.validation, device=ctx.device)[0],
    }


def cells(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All trainings of one seed, in the order in which they run."""
    for steps, fraction, rule in itertools.product(arguments.steps, arguments.fractions, arguments.rules):
        for epochs in [0] if RULES[rule][2] == "nothing" else arguments.epochs:
            if rule in ("dual", "dyn_unc") and epochs < 2:
                continue
            yield {"steps": steps, "fraction": fraction, "rule": rule, "epochs": epochs}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--fractions", type=float, nargs="+", default=[0.01, 0.05, 0.1, 0.2, 0.3])
    arguments.add_argument("--epochs", type=int, nargs="+", default=[10], help="epochs of the scorer")
    arguments.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    given = arguments.parse_args()
    journal = Journal(
        path=given.results, keys=("seed", "steps", "fraction", "rule", "epochs", "batch_size", "model", "size", "proxy")
    )
    for ctx in contexts(given):
        proxy = ctx.config.score.proxy
        shared = common(ctx.config) | {"proxy": proxy.model_dump() if proxy else None}
        missing = journal.missing(shared | cell for cell in cells(given))
        if not missing:
            continue
        problem, scored = problem_of(ctx), {}
        if any(cell["epochs"] for cell in missing):
            narrow = f"-{proxy.width}-{proxy.image_size}" if proxy else ""
            network = f"{ctx.config.model.width}-{ctx.config.data.image_size}{narrow}"
            name = f"{network}-{max(given.epochs)}-seed{ctx.config.seed}"
            scored = score(problem, max(given.epochs), sorted(given.epochs), journal.scorer(name))
        for cell in missing:
            journal.measure(cell, partial(measured, problem, scored, cell))


def measured(problem: Problem, scored: dict[str, Tensor], cell: Mapping[str, Any]) -> dict[str, Any]:
    """The training of a cell."""
    algorithm, options, reads = RULES[cell["rule"]]
    kept, rows_K = round(cell["fraction"] * len(problem.images)), None
    if cell["rule"] != "RS2":
        candidates = candidates_of(problem, scored, reads, cell["epochs"])
        seed = derive(cell["seed"], "map", "select")
        rows_K = select(algorithm, candidates, k=kept, seed=seed, **options).indices_K
    return {"kept": kept} | accuracies_after(problem, rows_K, steps=cell["steps"], kept=kept)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
