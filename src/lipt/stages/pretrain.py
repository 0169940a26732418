"""The swarm: theta_*, shards, jigsaws (method.md section 2); how they are merged is `soup`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from lipt.data.augmentation import normalise
from lipt.data.chunks import SampleRanges, load_images
from lipt.data.images import ResidentImages, image_shape
from lipt.data.shards import shards
from lipt.run.checkpoint import follow, resumable
from lipt.run.context import WEIGHTS, Context
from lipt.run.processes.child import Inputs, Summary, Team
from lipt.run.processes.parent import run_together
from lipt.run.workspace import Artifact, Step
from lipt.training.loop import Dynamics, Recipe, Trainer, train
from lipt.training.pruning import draw_density, prune
from lipt.training.tensor_files import encode_delta, pack, state_of

DELTA = "delta.zst"
DYNAMICS = "dynamics.safetensors"


def initialise(ctx: Context, dataset: Artifact, *, run: int = 0) -> Artifact:
    """Train theta_* on all candidates for a few epochs; classic pre-training calls it with run = 0..R-1.

    Files: the weights, and the forgetting events counted on the way. Several GPUs are used as in the main training.
    """
    classic, settings = ctx.config.score.model == "classic", ctx.config.initialise

    def body(step: Step) -> Summary:
        return run_together(ctx, step, fit_theta, {"dataset": dataset}, batch_size=settings.batch_size, run=run)

    chosen = ctx.settings(
        "model", view=ctx.view(), epochs=_epochs(ctx), lr=settings.lr, batch_size=settings.batch_size, run=run
    )
    return ctx.step("initialise", chosen, [dataset], body, label=f"initialise[{run}]" if classic else None)


def _epochs(ctx: Context) -> int:
    return ctx.config.score.epochs if ctx.config.score.model == "classic" else ctx.config.initialise.epochs


def fit_theta(ctx: Context, step: Step, inputs: Inputs, team: Team, *, run: int) -> Summary:
    """The training of theta_* itself, as each process of `team` runs it; returns the summary."""
    settings, dataset = ctx.config.initialise, inputs["dataset"]
    assert dataset is not None
    data = ctx.dataset(step, dataset)
    _, candidates = ctx.split(data)
    images = ctx.images(data, "train", candidates, load=team.load)
    model = ctx.model(len(data.manifest.classes), ctx.seed("initialise", run))
    recipe = Recipe(
        epochs=_epochs(ctx),
        batch_size=settings.batch_size,
        lr=settings.lr,
        schedule="constant",
        augment=ctx.standard_augment(),
    )
    trainer = Trainer(model, recipe, seed=ctx.seed("initialise", run), device=ctx.device, ranks=team.ranks)
    dynamics = Dynamics.empty(len(images))
    with resumable(step, trainer, every_s=ctx.config.train.checkpoint_s, dynamics=dynamics) as after_epoch:
        train(trainer, lambda _trainer: (images, None), dynamics=dynamics, after_epoch=after_epoch)
    if team.ranks.rank == 0:
        step.flops += trainer.progress.images * ctx.flops(model, image_shape(images))[1]
        step.put(WEIGHTS, pack(state_of(model)), kind="model")
        step.put(DYNAMICS, pack({"forgetting": dynamics.scores()}), kind="other")
    return {"epochs": recipe.epochs, "losses": trainer.progress.loss, "accuracies": trainer.progress.accuracy}


def dispatch(ctx: Context, dataset: Artifact) -> Artifact:
    """Cut the shards: for each worker a plan of byte ranges, so that it reads its own samples and nothing else."""
    settings = ctx.config.dispatch

    def body(step: Step) -> dict[str, Any]:
        data = ctx.dataset(step, dataset)
        _, candidates = ctx.split(data)
        size = settings.batches * settings.batch_size
        parts = shards(
            candidates, count=settings.jigsaws, size=size, stratified=settings.stratified, seed=ctx.seed("dispatch")
        )
        for index, positions in enumerate(parts):
            step.put(_shard(index), json.dumps(data.ranges_of("train", positions).as_dict()).encode(), kind="other")
        share = settings.jigsaws * size / len(candidates)
        return {
            "jigsaws": settings.jigsaws,
            "images": settings.jigsaws * size,
            "share": share,
            "classes": len(data.manifest.classes),
        }

    return ctx.step("dispatch", ctx.settings("dispatch", view=ctx.view()), [dataset], body)


def pretrain(ctx: Context, dataset: Artifact, theta: Artifact, plans: Artifact, *, index: int) -> Artifact:
    """Train and prune one jigsaw on its shard. File: its difference to theta_*, compressed."""
    settings = ctx.config.pretrain

    def body(step: Step) -> dict[str, Any]:
        images = shard_images(ctx, step, dataset, plans, index)
        base = ctx.weights(step, theta)
        seed = ctx.seed("pretrain", index)
        model = ctx.model(int(plans.summary["classes"]), seed, base)
        recipe = Recipe(
            epochs=settings.passes,
            batch_size=ctx.config.dispatch.batch_size,
            lr=settings.lr,
            schedule="constant",
            augment=ctx.jigsaw_augment(),
        )
        trainer = Trainer(model, recipe, seed=seed, device=ctx.device)
        follow(step, trainer)
        train(trainer, lambda _trainer: (images, None))
        density = prune(
            model,
            settings.prune,
            draw_density(*settings.density, seed=seed),
            seed=seed,
            scope=settings.prune_scope,
            loss=_batch_loss(model, images, ctx),
        )
        step.flops += trainer.progress.images * ctx.flops(model, image_shape(images))[1]
        step.put(DELTA, encode_delta(state_of(model), base), kind="model")
        return {"density": density, "losses": trainer.progress.loss}

    return ctx.step("pretrain", _jigsaw_settings(ctx, index), [dataset, theta, plans], body, label=f"pretrain[{index}]")


def jigsaw_ref(ctx: Context, dataset: Artifact, theta: Artifact, plans: Artifact, *, index: int) -> str:
    """Where `pretrain` leaves the jigsaw of a worker."""
    return ctx.ref("pretrain", _jigsaw_settings(ctx, index), [dataset, theta, plans])


def _jigsaw_settings(ctx: Context, index: int) -> dict[str, Any]:
    batch_size = ctx.config.dispatch.batch_size
    return ctx.settings("model", "pretrain", view=ctx.view(), batch_size=batch_size, index=index)


def _shard(index: int) -> str:
    return f"shard-{index:05d}.json"


def shard_images(ctx: Context, step: Step, dataset: Artifact, plans: Artifact, index: int) -> ResidentImages:
    """The images of a worker's shard."""
    wanted = SampleRanges.from_dict(json.loads(step.read(plans, _shard(index), kind="other")))
    images_NCHW = load_images(wanted, ctx.dataset(step, dataset).read, image_size=ctx.config.data.image_size)
    return ResidentImages(images_NCHW=images_NCHW, labels_N=torch.from_numpy(wanted.labels_N))


def _batch_loss(model: torch.nn.Module, images: ResidentImages, ctx: Context) -> Callable[[], torch.Tensor]:
    """The loss of the shard's first batch, for SNIP."""
    rows = np.arange(min(len(images), ctx.config.dispatch.batch_size))
    return lambda: F.cross_entropy(
        model(normalise(images.images_NCHW[rows]).to(ctx.device)), images.labels_N[rows].to(ctx.device)
    )
