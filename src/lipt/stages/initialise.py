"""Initialise: train theta_* on all candidates for a few epochs (Ro et al., ICML 2023)."""

from collections.abc import Sequence

import numpy as np
import torch

from lipt.data.images import image_shape
from lipt.data.shards import Positions
from lipt.rng import derive
from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.runtime.budgets import smallest_initial_batch
from lipt.runtime.checkpoint import resume
from lipt.runtime.dataset import count_candidates, open_dataset, split_positions, training_images
from lipt.runtime.network import WEIGHTS, new_model, raptr_schedule, recalibrate_full, standard_augment
from lipt.runtime.processes.child import Inputs, ProcessGroup, Summary
from lipt.runtime.processes.parent import run_together
from lipt.training.dynamics import Dynamics
from lipt.training.flops import flops_per_image
from lipt.training.loop import Trainer, train
from lipt.training.raptr import saved_flops
from lipt.training.recipe import Recipe
from lipt.training.tensor_files import State, pack, state_of, unpack

DYNAMICS = "dynamics.safetensors"


def initialise(ctx: Context, dataset: Artifact, *, index: int = 0) -> Stage:
    """Train theta_* on all candidates for a few epochs; with models of `score.runs`, model `index`.

    Files: the weights, and the trajectory of the candidates that the model trains on. Several GPUs share each batch.
    """
    ctx, dataset = ctx.of_scorer(), ctx.data_of_scorer(dataset)
    settings = ctx.config.initialise

    def body(attempt: Attempt) -> Summary:
        smallest = smallest_initial_batch(ctx.config, count_candidates(ctx, dataset))
        return run_together(ctx, attempt, fit_theta, {"dataset": dataset}, batch_size=smallest, run=index)

    chosen = ctx.settings(
        "model",
        view=ctx.view(),
        precision=ctx.config.precision,
        epochs=_epochs(ctx),
        lr=settings.lr,
        batch_size=settings.batch_size,
        raptr=settings.raptr and settings.raptr.model_dump(mode="json"),
        run=index,
    )
    if ctx.config.score.disjoint:  # one of several parts of the candidates
        chosen |= {"parts": ctx.config.score.runs}
    label = f"initialise[{index}]" if ctx.config.score.has_own_models else "initialise"
    return Stage(ctx=ctx, name="initialise", settings=chosen, inputs=[dataset], body=body, label=label)


def _epochs(ctx: Context) -> int:
    return ctx.config.score.epochs if ctx.config.score.has_own_models else ctx.config.initialise.epochs


def fit_theta(ctx: Context, attempt: Attempt, inputs: Inputs, processes: ProcessGroup, *, run: int) -> Summary:
    """Train theta_* in one process of `processes`; returns the summary."""
    settings, dataset = ctx.config.initialise, inputs["dataset"]
    assert dataset is not None
    data = open_dataset(attempt, dataset)
    candidates = _own(ctx, split_positions(ctx, data)[1], run)
    images = training_images(ctx, data, candidates, processes)
    first = 0 if ctx.config.score.disjoint else run  # parts are compared: their models start from the same weights
    model = new_model(ctx, len(data.manifest.classes), ctx.seed("initialise", first))
    recipe = Recipe(
        epochs=_epochs(ctx),
        batch_size=settings.batch_size,
        lr=settings.lr,
        lr_name="initialise.lr",
        schedule="constant",
        augment=standard_augment(ctx),
        precision=ctx.precision,
        raptr=raptr_schedule(settings.raptr),
    )
    trainer = Trainer(model, recipe, seed=ctx.seed("initialise", run), device=ctx.device, ranks=processes.ranks)
    dynamics = Dynamics.empty(len(images), recipe.epochs)
    with resume(attempt, trainer, every_s=ctx.config.train.checkpoint_s, dynamics=dynamics) as saves:
        train(
            trainer,
            lambda _trainer: (images, None),
            dynamics=dynamics,
            after_epoch=saves.after_epoch,
            after_part=saves.after_part,
        )
    if processes.ranks.rank == 0:
        shape = image_shape(images)
        forward, both = flops_per_image(model, shape)
        attempt.flops += trainer.progress.images * both - saved_flops(model, trainer.progress.skipped, shape)
        if settings.raptr:
            attempt.flops += forward * recalibrate_full(ctx, model, images, seed=derive(trainer.seed, "recalibrate"))
        attempt.put(WEIGHTS, pack(state_of(model)), kind="model")
        attempt.put(DYNAMICS, pack(dynamics.tensors()), kind="other")
    progress = trainer.progress
    return {
        "epochs": recipe.epochs,
        "steps": progress.steps,
        "images": progress.images,
        "losses": progress.loss,
        "accuracies": progress.accuracy,
    }


def _own(ctx: Context, candidates: Positions, run: int) -> Positions:
    """The candidates that model `run` trains on. A part is a window of the stratified order."""
    settings = ctx.config.score
    return np.array_split(candidates, settings.runs)[run] if settings.disjoint else candidates


def trajectories_of(attempt: Attempt, models: Sequence[Artifact]) -> list[State]:
    """What these models recorded of all candidates, `Dynamics.tensors` (N, T) each; one for all if they are disjoint.

    Args:
        models: artifacts of `initialise`, in the order of their index.
    """
    recorded = [
        unpack(attempt.read_for_all(model, DYNAMICS, kind="other"), origin=f"{model.ref}/{DYNAMICS}")
        for model in models
    ]
    if not attempt.ctx.config.score.disjoint:
        return recorded
    return [{name: torch.cat([part[name] for part in recorded]) for name in recorded[0]}]
