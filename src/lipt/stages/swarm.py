"""The swarm: theta_*, shards, jigsaws, merge (method.md sections 2 and 3)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from lipt.core.augment import normalise
from lipt.core.chunks import ShardPlan, load_images
from lipt.core.images import ResidentImages, StreamedImages, image_shape
from lipt.core.nets import on_device
from lipt.core.pruning import draw_density, prune
from lipt.core.scoring import recalibrate_batchnorm
from lipt.core.shards import shards
from lipt.core.soup import Arena, Soup
from lipt.core.soup import merge as merge_states
from lipt.core.training import Dynamics, Recipe, Trainer, accuracy, train
from lipt.core.wire import State, decode_delta, encode_delta, pack, state_of
from lipt.errors import RunError
from lipt.stages.checkpoint import resumable
from lipt.stages.context import WEIGHTS, Context
from lipt.stages.workspace import Artifact, Step

DELTA = "delta.zst"
DYNAMICS = "dynamics.safetensors"


def initialise(ctx: Context, dataset: Artifact, *, run: int = 0) -> Artifact:
    """Train theta_* on all candidates for a few epochs; classic pre-training calls it with run = 0..R-1.

    Files: the weights, and the forgetting events counted on the way.
    """
    classic = ctx.config.score.model == "classic"
    settings = ctx.config.initialise
    epochs = ctx.config.score.epochs if classic else settings.epochs

    def body(step: Step) -> dict[str, Any]:
        data = ctx.dataset(step, dataset)
        _, candidates = ctx.split(data)
        images = ctx.images(data, "train", candidates)
        model = ctx.model(len(data.manifest.classes), ctx.seed("initialise", run))
        recipe = Recipe(
            epochs=epochs,
            batch_size=settings.batch_size,
            lr=settings.lr,
            schedule="constant",
            augment=ctx.standard_augment(),
        )
        trainer = Trainer(model, recipe, seed=ctx.seed("initialise", run), device=ctx.device)
        dynamics = Dynamics.empty(len(images))
        with resumable(step, trainer, every_s=ctx.config.train.checkpoint_s, dynamics=dynamics) as after_epoch:
            train(trainer, lambda _trainer: (images, None), dynamics=dynamics, after_epoch=after_epoch)
        step.flops += trainer.progress.images * ctx.flops(model, image_shape(images))[1]
        step.put(WEIGHTS, pack(state_of(model)), kind="model")
        step.put(DYNAMICS, pack({"forgetting": dynamics.scores()}), kind="other")
        return {"epochs": epochs, "loss": trainer.progress.loss, "accuracies": trainer.progress.accuracy}

    chosen = ctx.settings(
        "model", view=ctx.view(), epochs=epochs, lr=settings.lr, batch_size=settings.batch_size, run=run
    )
    return ctx.step("initialise", chosen, [dataset], body, label=f"initialise[{run}]" if classic else None)


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
            step.put(_shard(index), json.dumps(data.plan("train", positions).as_dict()).encode(), kind="other")
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
        images = _shard_images(ctx, step, dataset, plans, index)
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
        train(
            trainer,
            lambda _trainer: (images, None),
            after_epoch=lambda t: step.reporter.advance(step.label, t.progress.epoch, settings.passes),
        )
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
        return {"density": density, "loss": trainer.progress.loss}

    return ctx.step("pretrain", _jigsaw_settings(ctx, index), [dataset, theta, plans], body, label=f"pretrain[{index}]")


def jigsaw_ref(ctx: Context, dataset: Artifact, theta: Artifact, plans: Artifact, *, index: int) -> str:
    """Where `pretrain` leaves the jigsaw of a worker."""
    return ctx.ref("pretrain", _jigsaw_settings(ctx, index), [dataset, theta, plans])


def _jigsaw_settings(ctx: Context, index: int) -> dict[str, Any]:
    batch_size = ctx.config.dispatch.batch_size
    return ctx.settings("model", "pretrain", view=ctx.view(), batch_size=batch_size, index=index)


def merge(ctx: Context, dataset: Artifact, theta: Artifact, plans: Artifact, jigsaws: Sequence[Artifact]) -> Artifact:
    """Merge the jigsaws that arrived into theta_p; which ones, and in which order, they are listed does not matter.

    Raises:
        RunError: fewer than the quorum arrived; names the missing ones.
    """
    settings = ctx.config.merge
    present = {int(jigsaw.settings["index"]): jigsaw for jigsaw in jigsaws}
    missing = check_quorum(sorted(present), ctx.config.dispatch.jigsaws, settings.quorum)

    def body(step: Step) -> dict[str, Any]:
        star = ctx.weights(step, theta)
        packed = {index: step.read(jigsaw, DELTA, kind="model") for index, jigsaw in present.items()}
        judge = _Judge(ctx, step, dataset, plans, next(iter(present)))
        assert settings.method != "none"
        soup = merge_states(
            star,
            sorted(present),
            lambda index: decode_delta(packed[index], star, origin=f"{present[index].ref}/{DELTA}"),
            judge.arena(),
            method=settings.method,
            search=settings.search,
            batchnorm=settings.batchnorm,
            fallback=settings.fallback,
        )
        step.flops += judge.images * ctx.flops(judge.model, image_shape(judge.validation))[0]
        step.put(WEIGHTS, pack(soup.state), kind="model")
        return _soup_summary(soup) | {
            "missing": missing,
            "densities": {str(i): present[i].summary["density"] for i in sorted(present)},
        }

    inputs = [dataset, theta, plans, *(present[index] for index in sorted(present))]
    return ctx.step("merge", ctx.settings("model", "merge", view=ctx.view()), inputs, body)


def check_quorum(present: list[int], count: int, quorum: float) -> list[int]:
    """The indices that are missing.

    Raises:
        RunError: too many are.
    """
    missing = sorted(set(range(count)) - set(present))
    needed = math.ceil(quorum * count)
    if len(present) < needed:
        raise RunError(
            f"{len(present)} of {count} jigsaws arrived, the quorum is {needed}; "
            f"missing: {', '.join(map(str, missing))}",
            "run again: only the missing ones are trained; or lower merge.quorum",
        )
    return missing


class _Judge:
    """Judges states on the validation set, whose images stay where they are decoded; counts the images it forwarded."""

    def __init__(self, ctx: Context, step: Step, dataset: Artifact, plans: Artifact, shard: int) -> None:
        settings = ctx.config.merge
        data = ctx.dataset(step, dataset)
        positions, _ = ctx.split(data)
        self.validation = ctx.images(data, "train", positions)
        # Any window of the stratified order is a stratified sample, so the first images are as good as a random draw.
        positions = positions[: settings.search_images]
        self.searched = self.validation.subset(torch.arange(len(positions)))
        if isinstance(self.searched, StreamedImages):  # every candidate looks at them: where they fit, read once
            self.searched = ctx.images(data, "train", positions)
        training = _shard_images(ctx, step, dataset, plans, shard)
        self.training = training.subset(torch.arange(min(settings.recalibration_images, len(training))))
        self.model = on_device(ctx.model(len(data.manifest.classes), 0), ctx.device)
        self.ctx, self.step = ctx, step
        self.images = 0
        self.candidates = 0

    def arena(self) -> Arena:
        return Arena(
            search=lambda state: self._accuracy(state, self.searched),
            confirm=lambda state: self._accuracy(state, self.validation),
            recalibrate=self._recalibrate,
        )

    def _accuracy(self, state: State, images: ResidentImages | StreamedImages) -> float:
        self.model.load_state_dict(state)
        self.images += len(images)
        self.candidates += 1
        self.step.reporter.advance(self.step.label, self.candidates, 0, "candidates")
        return accuracy(self.model, images, device=self.ctx.device)

    def _recalibrate(self, state: State) -> State:
        self.model.load_state_dict(state)
        recalibrate_batchnorm(self.model, self.training, device=self.ctx.device)
        self.images += len(self.training)
        return state_of(self.model)


def _soup_summary(soup: Soup) -> dict[str, Any]:
    return {
        "chosen": soup.chosen,
        "accuracy": soup.accuracy,
        "theta_star_accuracy": soup.theta_star_accuracy,
        "best_single_accuracy": soup.best_single_accuracy,
        "best_single": soup.best_single,
        "uniform_accuracy": soup.uniform_accuracy,
        "steps": [asdict(step) for step in soup.steps],
    }


def _shard(index: int) -> str:
    return f"shard-{index:05d}.json"


def _shard_images(ctx: Context, step: Step, dataset: Artifact, plans: Artifact, index: int) -> ResidentImages:
    plan = ShardPlan.from_dict(json.loads(step.read(plans, _shard(index), kind="other")))
    loaded = load_images(plan, ctx.dataset(step, dataset).read, image_size=ctx.config.data.image_size)
    return ResidentImages(images_NCHW=loaded.images_NCHW, labels_N=loaded.labels_N)


def _batch_loss(model: torch.nn.Module, images: ResidentImages, ctx: Context) -> Callable[[], torch.Tensor]:
    """The loss of the shard's first batch, for SNIP."""
    rows = np.arange(min(len(images), ctx.config.dispatch.batch_size))
    return lambda: F.cross_entropy(
        model(normalise(images.images_NCHW[rows]).to(ctx.device)), images.labels_N[rows].to(ctx.device)
    )
