"""Pretrain: train a copy of theta_* on one shard and prune it; the result is a jigsaw (Ro et al., ICML 2023)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lipt.config import Config, Pretrain
from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.stages.inputs import check_index

if TYPE_CHECKING:
    import torch

    from lipt.data.images import ImageSet

DELTA = "delta.zst"
#: What to do about lost jigsaws if nothing else is known.
TRAIN_AGAIN = "run again, which trains only these"


def pretrain(ctx: Context, dataset: Artifact, theta: Artifact, shards: Artifact, *, index: int) -> Stage:
    """Train and prune one jigsaw on its shard. File: its difference from theta_*, compressed.

    Args:
        theta: theta_*, the artifact of `initialise`.
        shards: the artifact of `dispatch`: for each shard the byte ranges of its images in the chunks.
        index: of the jigsaw, and so of its shard.
    """
    ctx, dataset = ctx.of_scorer(), ctx.data_of_scorer(dataset)
    check_index(index, ctx.config.dispatch.jigsaws, "jigsaw")

    def body(attempt: Attempt) -> dict[str, Any]:
        # Imported here, so that the box that waits for the jigsaws, and only asks which are there, imports no torch.
        from lipt.data.images import image_shape
        from lipt.runtime.checkpoint import follow, measures
        from lipt.runtime.network import jigsaw_augment, new_model, read_weights
        from lipt.stages.dispatch import shard_images
        from lipt.training.flops import flops_per_image
        from lipt.training.loop import Trainer, train
        from lipt.training.recipe import Recipe
        from lipt.training.tensor_files import encode_delta, state_of

        settings = ctx.config.pretrain
        stored = shard_images(attempt, dataset, shards, index)
        images = stored if stored.crops and settings.augment != "none" else stored.resident().on(ctx.device)
        base = read_weights(attempt, theta)
        seed = ctx.seed("pretrain", index)
        model = new_model(ctx, int(shards.summary["classes"]), seed, base)
        recipe = Recipe(
            epochs=settings.passes,
            batch_size=ctx.config.dispatch.batch_size,
            lr=settings.lr,
            lr_name="pretrain.lr",
            schedule="constant",
            augment=jigsaw_augment(ctx),
            precision=ctx.precision,
        )
        trainer = Trainer(model, recipe, seed=seed, device=ctx.device)
        follow(attempt, trainer)  # show progress
        train(trainer, lambda _trainer: (images, None), after_epoch=measures(attempt, trainer))
        density = prune_model(ctx, model, images, seed)
        pruned_on = min(ctx.config.dispatch.batch_size, len(images)) if settings.prune == "snip" else 0
        flops = flops_per_image(model, image_shape(images)).training
        attempt.flops += (trainer.progress.images + pruned_on) * flops
        attempt.put(DELTA, encode_delta(state_of(model), base), kind="model")
        progress = trainer.progress
        return {"density": density, "steps": progress.steps, "images": progress.images, "losses": progress.loss}

    batch_size = ctx.config.dispatch.batch_size
    precision, local = ctx.config.precision, _effective(ctx.config.pretrain).model_dump(mode="json")
    chosen = ctx.settings(
        "model", pretrain=local, view=ctx.view(), precision=precision, batch_size=batch_size, index=index
    )
    inputs = [dataset, theta, shards]
    return Stage(ctx=ctx, name="pretrain", settings=chosen, inputs=inputs, body=body, label=f"pretrain[{index}]")


def _effective(settings: Pretrain) -> Pretrain:
    """The settings, without the values of those that have no effect."""
    augments = [] if settings.augment == "randaugment" else ["num_ops", "magnitude"]
    return settings.with_defaults(*augments, *(["density", "prune_scope"] if settings.prune == "none" else []))


def quorum_of(config: Config) -> int:
    """Number of jigsaws that must arrive: the quorum, or if they score, as many as the algorithm needs."""
    count = config.dispatch.jigsaws
    needed = config.merge.needed(count)
    if config.score.model != "jigsaws":
        return needed
    from lipt.runtime.algorithm import scoring_needs  # here: imports torch, which a box that only waits has no use for

    return max(needed, min(scoring_needs(config).models, count))


def prune_model(ctx: Context, model: torch.nn.Module, images: ImageSet, seed: int) -> float:
    """Prune a trained copy as configured; returns its density.

    Args:
        images: of its shard, for SNIP.
    """
    from lipt.training.pruning import draw_density, prune

    settings = ctx.config.pretrain
    return prune(
        model,
        settings.prune,
        draw_density(*settings.density, seed=seed),
        seed=seed,
        scope=settings.prune_scope,
        loss=_batch_loss(model, images, ctx),
    )


def _batch_loss(model: torch.nn.Module, images: ImageSet, ctx: Context) -> Callable[[], torch.Tensor]:
    """The loss of the shard's first batch, for SNIP."""
    import torch.nn.functional as F

    from lipt.training.forward import forward_batches

    def loss() -> torch.Tensor:
        x, y_B = next(forward_batches(images, ctx.config.dispatch.batch_size, ctx.device))
        return F.cross_entropy(model(x), y_B.to(x.device))  # labels are in memory

    return loss
