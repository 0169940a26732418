"""What is a selection worth? The gain over class-balanced random, by kept share and optimiser steps.

    python -m benchmarks.map CONFIG RESULTS.jsonl [--set KEY=VALUE ...]

Scores come from a training on all candidates, of the configured network or of `score.proxy`, for as many epochs as
`--epochs` says. Its learning rate is constant, so a prefix of its epochs is a shorter scorer. The rules are applied to
each prefix. The rules with `theta_p` in their name read the merged model of the configured swarm instead. On each
subset the configured network is trained for each number of steps. All rules share the seed, the split, the initial
weights and the number of steps; `RS2` draws from all candidates. With `--start scorer` or `--start theta_p` the
trainings go on from the weights of that model in place of random ones, and its own accuracy is the rule `start` after 0
steps.

Each finished training is one line of RESULTS.jsonl. A repeated call does what is missing. The scorers lie beside the
results, in RESULTS.scorers/.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.journal import Journal, common, contexts, parser
from lipt.data.chunks import Dataset
from lipt.data.images import ResidentImages, image_shape
from lipt.flow.graph import merge_jigsaws, prepare, train_jigsaws
from lipt.rng import derive
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import images_of, open_dataset, open_test_images, split_positions, training_images
from lipt.runtime.network import new_model, read_weights, standard_augment
from lipt.selection import Candidates, Outputs, Trajectory, requirements, select
from lipt.stages.ingest import ingest
from lipt.training.batches import batch_sizes
from lipt.training.draws import LossDraws
from lipt.training.dynamics import Dynamics
from lipt.training.flops import flops_per_image
from lipt.training.forward import accuracies, outputs_of
from lipt.training.loop import Recipe, Trainer, train
from lipt.training.networks import on_device
from lipt.training.tensor_files import State, pack, state_of, unpack

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
    "ccs el2n, theta_p": ("ccs", {"score": "el2n"}, "theta_p"),
    "grand, theta_p": ("grand", {}, "theta_p"),
    "glister, theta_p": ("glister", {}, "theta_p"),
    "gradmatch, theta_p": ("gradmatch", {}, "theta_p"),
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


#: Begin the names of the weights among the tensors of a scorer.
_WEIGHTS = {"scorer": "weights-", "theta_p": "theta_p-weights-"}


def score(problem: Problem, epochs: int, kept_outputs: list[int], path: Path) -> dict[str, Tensor]:
    """The trajectory of a training, the outputs after the epochs `kept_outputs` and the weights after the last one;
    read from `path` if it exists."""
    if path.exists():
        known = unpack(path.read_bytes(), origin=str(path))
        if all(f"logits-{epoch}" in known for epoch in kept_outputs):
            return known
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
    found |= dynamics.tensors() | named(state_of(trainer.model), "scorer")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(found))
    return found


def theta_p(problem: Problem) -> tuple[State, int]:
    """The merged model of the configured swarm, and its FLOPs in steps of the main training."""
    ctx = problem.ctx
    prepared = prepare(ctx)
    jigsaws, _ = train_jigsaws(ctx, prepared, range(ctx.config.dispatch.jigsaws))
    merged = merge_jigsaws(ctx, prepared, list(jigsaws.values()))
    flops = sum(ctx.workspace.cost(made).flops for made in (*prepared.initial, *jigsaws.values(), merged))
    model = new_model(ctx, problem.classes, 0)
    step = ctx.config.train.batch_size * flops_per_image(model, image_shape(problem.images)).training
    return read_weights(Attempt(ctx=ctx, ref="map/theta_p", label="map"), merged), round(flops / step)


def score_by_swarm(problem: Problem, path: Path) -> dict[str, Tensor]:
    """The outputs of theta_p for the candidates and the validation images; read from `path` if it exists."""
    if path.exists():
        return unpack(path.read_bytes(), origin=str(path))
    ctx = problem.ctx
    state = theta_p(problem)[0]
    model, found = on_device(new_model(ctx, problem.classes, 0, state), ctx.device), named(state, "theta_p")
    for name, images in (("theta_p", problem.images), ("theta_p-validation", problem.validation)):
        outputs = outputs_of(model, images, device=ctx.device, precision=ctx.precision)
        found |= {f"{key}-{name}": tensor for key, tensor in outputs.tensors().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(found))
    return found


def named(state: State, origin: str) -> State:
    """Weights by the names that they have among the tensors of a scorer."""
    return {_WEIGHTS[origin] + name: tensor for name, tensor in state.items()}


def candidates_of(problem: Problem, scored: dict[str, Tensor], reads: str, epochs: int) -> Candidates:
    labels_N = problem.images.labels_N
    if reads == "nothing":
        return Candidates(labels_N=labels_N, num_classes=problem.classes)
    if reads == "trajectory":
        first = {name: scored[name][:, :epochs] for name in ("p", "error", "margin")}
        return Candidates(labels_N=labels_N, num_classes=problem.classes, trajectories=[Trajectory.of(first)])
    return with_outputs(problem, labels_N, scored, str(epochs) if reads == "outputs" else reads)


def with_outputs(problem: Problem, labels_N: Tensor, scored: dict[str, Tensor], name: str) -> Candidates:
    outputs = Outputs(logits_NC=scored[f"logits-{name}"], features_ND=scored[f"features-{name}"])
    return Candidates(labels_N=labels_N, num_classes=problem.classes, outputs=[outputs])


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
            if rule in ("dual", "dyn_unc") and epochs < 2:
                continue
            yield {"steps": steps, "fraction": fraction, "rule": rule, "epochs": epochs}


#: The entries of a line that tell one training from another.
KEYS = ("seed", "steps", "fraction", "rule", "epochs", "batch_size", "model", "size", "proxy", "start")


def arguments_of(description: str | None) -> argparse.ArgumentParser:
    found = parser(description)
    found.add_argument("--fractions", type=float, nargs="+", default=[0.01, 0.05, 0.1, 0.2, 0.3])
    found.add_argument("--epochs", type=int, nargs="+", default=[10], help="epochs of the scorer")
    found.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    found.add_argument("--start", default="fresh", choices=["fresh", *_WEIGHTS], help="the weights before training")
    return found


def scored_for(
    problem: Problem, given: argparse.Namespace, journal: Journal, missing: Sequence[Mapping[str, Any]]
) -> dict[str, Tensor]:
    """What the models that score leave, as far as the missing trainings read it."""
    config, found = problem.ctx.config, {}
    if given.start == "scorer" or any(cell["epochs"] for cell in missing):
        path = journal.scorer(config, f"{max(given.epochs)}-seed{config.seed}")
        found = score(problem, max(given.epochs), sorted(given.epochs), path)
    if given.start == "theta_p" or any("theta_p" in cell["rule"] for cell in missing):
        found |= score_by_swarm(problem, journal.scorer(config, f"swarm-seed{config.seed}"))
    return found


def main() -> None:
    given = arguments_of(__doc__).parse_args()
    journal = Journal(path=given.results, keys=KEYS)
    for ctx in contexts(given):
        shared = common(ctx.config) | ({"start": given.start} if given.start != "fresh" else {})
        missing = journal.missing(shared | cell for cell in cells(given))
        if not missing:
            continue
        problem = problem_of(ctx)
        scored = scored_for(problem, given, journal, missing)
        for cell in missing:
            journal.measure(cell, partial(measured, problem, scored, cell))


def measured(problem: Problem, scored: dict[str, Tensor], cell: Mapping[str, Any]) -> dict[str, Any]:
    """The training of a cell."""
    start = None
    if prefix := _WEIGHTS.get(cell.get("start", "fresh")):
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
