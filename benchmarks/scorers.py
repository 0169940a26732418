"""The models that score for `benchmarks.map` and its kin, and what the rules read of them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.journal import Journal
from lipt.data.chunks import Dataset
from lipt.data.images import ResidentImages, image_shape
from lipt.flow.dag import merge_jigsaws, prepare, train_jigsaws
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import images_of, open_dataset, open_test_images, split_positions, training_images
from lipt.runtime.network import new_model, read_weights, standard_augment
from lipt.selection import Candidates, Outputs, Trajectory
from lipt.stages.ingest import ingest
from lipt.training.dynamics import Dynamics
from lipt.training.flops import flops_per_image
from lipt.training.forward import outputs_of
from lipt.training.loop import Trainer, train
from lipt.training.networks import on_device
from lipt.training.recipe import Recipe
from lipt.training.tensor_files import State, pack, state_of, unpack

#: name -> (algorithm, options, what it reads)
RULES: dict[str, tuple[str, dict[str, Any], str]] = {
    "random": ("stratified", {}, "nothing"),
    "RS2": ("random", {}, "nothing"),
    "ccs el2n": ("ccs", {"score": "el2n"}, "trajectory"),
    "ccs aum": ("ccs", {"score": "aum"}, "trajectory"),
    "dual": ("dual", {}, "trajectory"),
    "dual, c_d 5.5": ("dual", {"c_d": 5.5}, "trajectory"),
    "dyn_unc": ("dyn_unc", {}, "trajectory"),
    "el2n": ("el2n", {}, "trajectory"),
    "aum": ("aum", {}, "trajectory"),
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
for _beta in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
    RULES[f"ccs el2n, beta {_beta:g}"] = ("ccs", {"score": "el2n", "beta": _beta}, "trajectory")
    RULES[f"ccs el2n, beta {_beta:g}, theta_p"] = ("ccs", {"score": "el2n", "beta": _beta}, "theta_p")


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
WEIGHTS = {"scorer": "weights-", "theta_p": "theta_p-weights-"}


def score(problem: Problem, epochs: int, kept_outputs: Sequence[int], path: Path, member: int = 0) -> dict[str, Tensor]:
    """The trajectory of a training, the outputs after the epochs `kept_outputs` and the weights after the last one;
    read from `path` if it exists. The seed differs between the members of an ensemble."""
    if path.exists():
        known = unpack(path.read_bytes(), origin=str(path))
        if all(f"logits-{epoch}" in known for epoch in kept_outputs):
            return known
    ctx = problem.ctx.of_scorer()
    seed = ctx.seed("map", "scorer", *([member] if member else []))
    trainer = Trainer(new_model(ctx, problem.classes, seed), recipe_of(ctx, epochs), seed=seed, device=ctx.device)
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


def recipe_of(ctx: Context, epochs: int) -> Recipe:
    """How the network that scores is trained."""
    settings = ctx.config.initialise
    return Recipe(
        epochs=epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        schedule="constant",
        augment=standard_augment(ctx),
        precision=ctx.precision,
    )


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
    """The outputs of theta_p for the candidates and the validation images; read from `path` if it exists.

    Only of the trained network: the validation images of a proxy are others.
    """
    assert problem.ctx.config.score.proxy is None, "theta_p of a proxy is not measured here"
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
    return {WEIGHTS[origin] + name: tensor for name, tensor in state.items()}


def candidates_of(problem: Problem, scored: dict[str, Tensor], reads: str, epochs: int) -> Candidates:
    labels_N = problem.images.labels_N
    if reads == "nothing":
        return Candidates(labels_N=labels_N, num_classes=problem.classes)
    if reads == "trajectory":
        members = sum(name.partition("-")[0] == "p" for name in scored)
        recorded = [
            Trajectory.of({name: scored[of_member(name, member)][:, :epochs] for name in ("p", "error", "margin")})
            for member in range(members)
        ]
        return Candidates(labels_N=labels_N, num_classes=problem.classes, trajectories=recorded)
    return with_outputs(problem, labels_N, scored, str(epochs) if reads == "outputs" else reads)


def with_outputs(problem: Problem, labels_N: Tensor, scored: dict[str, Tensor], name: str) -> Candidates:
    outputs = Outputs(logits_NC=scored[f"logits-{name}"], features_ND=scored[f"features-{name}"])
    return Candidates(labels_N=labels_N, num_classes=problem.classes, outputs=[outputs])


def of_member(name: str, member: int) -> str:
    """The name of a tensor of a trajectory among what several scorers leave."""
    return f"{name}-member{member}" if member else name


def scored_for(
    problem: Problem, given: argparse.Namespace, journal: Journal, missing: Sequence[Mapping[str, Any]]
) -> dict[str, Tensor]:
    """What the models that score leave, as far as the missing trainings read it."""
    config, found = problem.ctx.config, {}
    if given.start == "scorer" or any(cell["epochs"] for cell in missing):
        name = f"{max(given.epochs)}-seed{config.seed}"
        of_outputs = [rule for rule, (_, _, reads) in RULES.items() if reads == "outputs"]
        read = sorted({cell["epochs"] for cell in missing if cell["rule"] in of_outputs})
        found = score(problem, max(given.epochs), read, journal.scorer(config, name))
        for member in range(1, given.scorers):
            path = journal.scorer(config, of_member(name, member))
            more = score(problem, max(given.epochs), [], path, member)
            found |= {of_member(each, member): more[each] for each in ("p", "error", "margin")}
    if given.start == "theta_p" or any("theta_p" in cell["rule"] for cell in missing):
        found |= score_by_swarm(problem, journal.scorer(config, f"swarm-seed{config.seed}"))
    return found
