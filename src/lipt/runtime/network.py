"""The configured network, its weights in the workspace, and the augmentation of its training images."""

from torch import nn

from lipt.config import Raptr
from lipt.data.augmentation import Augment, StandardAugment, no_augmentation
from lipt.data.images import ImageSet
from lipt.data.randaugment import RandAugment
from lipt.runtime.artifact import Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.training.networks import build_model
from lipt.training.raptr import RaptrSchedule, recalibrate
from lipt.training.tensor_files import State, unpack

WEIGHTS = "weights.safetensors"


def new_model(ctx: Context, num_classes: int, seed: int, state: State | None = None) -> nn.Module:
    """The configured network, freshly initialised or with the weights given.

    Raises:
        RunError: the file of a user's network has changed since the run began.
    """
    settings = ctx.config.model
    model = build_model(
        settings.name,
        num_classes=num_classes,
        seed=seed,
        width=settings.width,
        classifier=settings.classifier,
        code=ctx.code,
    )
    if state is not None:
        model.load_state_dict(state)
    return model


def read_weights(attempt: Attempt, artifact: Artifact) -> State:
    """The state dict of an artifact that holds a whole model. Do not change it in place: it is cached."""
    cached = attempt.ctx.cache.weights
    if artifact.ref not in cached:
        data = attempt.read_for_all(artifact, WEIGHTS, kind="model")
        cached.clear()
        cached[artifact.ref] = unpack(data, origin=f"{artifact.ref}/{WEIGHTS}")
    return cached[artifact.ref]


def standard_augment(ctx: Context) -> Augment:
    """Shift and flip as configured under `data`. With `data.crop: resized`, crop and flip are part of decoding."""
    data = ctx.config.data
    if data.crop == "resized":
        return no_augmentation
    return StandardAugment(padding=data.crop_padding, flip=data.flip)


def jigsaw_augment(ctx: Context) -> Augment:
    """The augmentation of local training: RandAugment replaces shift and flip, but follows RandomResizedCrop."""
    settings = ctx.config.pretrain
    if settings.augment == "none":
        return no_augmentation
    if settings.augment == "standard":
        return standard_augment(ctx)
    return RandAugment(num_ops=settings.num_ops, magnitude=settings.magnitude)


def raptr_schedule(settings: Raptr | None) -> RaptrSchedule | None:
    """The schedule of the subnetworks that a training runs; None = always the full network."""
    return RaptrSchedule(**settings.model_dump()) if settings else None


def recalibrate_full(ctx: Context, model: nn.Module, images: ImageSet, *, seed: int) -> int:
    """`recalibrate` with the augmentation of the configured training."""
    return recalibrate(
        model, images, augment=standard_augment(ctx), seed=seed, device=ctx.device, precision=ctx.precision
    )
