"""Checks of the configured network before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from lipt.config import Config
from lipt.errors import LiptError, UsageError, in_one_line
from lipt.flow.checks.facts import Facts
from lipt.flow.checks.raptr import check_blocks
from lipt.flow.dag import has_swarm, trains_models
from lipt.report.numbers import format_count
from lipt.rng import generator
from lipt.runtime.budgets import epoch_images, kept_images, smallest_batch, smallest_initial_batch
from lipt.selection.inputs.dataset import logits_and_features
from lipt.selection.inputs.not_logits import refuse_probabilities
from lipt.training.batches import batch_sizes
from lipt.training.networks import build_model, default_width, on_device, shapes_only
from lipt.training.precision import Precision, autocast, native_precision
from lipt.training.vision_transformer import VisionTransformer

#: Sections of the trainings up to the scores, and all.
_BEFORE_SCORES = ("initialise", "dispatch")
_TRAININGS = (*_BEFORE_SCORES, "train")


def check_model(config: Config, facts: Facts | None) -> int:
    """Build the network of the main training; returns its number of weights. A user's own model is also applied to two
    images.

    Raises:
        UsageError: the model is unknown, cannot be built, cannot process the images, or batches of one, or has no
            blocks for RaPTr.
    """
    return _check(config, facts, ("train",) if config.score.proxy else _TRAININGS)


def check_proxy(config: Config, facts: Facts | None) -> int:
    """`check_model` of the network `score.proxy`, which there must be."""
    scorer, proxy = config.of_scorer(), config.score.proxy
    if proxy and proxy.width and default_width(scorer.model.name) is None:
        other = "" if proxy.name else ", or set score.proxy.name to one of LiPT's networks"
        raise UsageError(f"score.proxy.width: {scorer.model.name} has a fixed width", f"leave it out{other}")
    if facts and (side := scorer.data.image_size):
        facts = replace(facts, size=(side, side))
    try:
        return _check(scorer, facts, _BEFORE_SCORES)
    except LiptError as error:
        raise type(error)(f"score.proxy: {error.message}", error.remedy) from error


def _check(config: Config, facts: Facts | None, trainings: Collection[str]) -> int:
    """
    Args:
        trainings: those of this network, by the sections of their settings.
    """
    settings = config.model
    own, classes = ":" in settings.name, facts.classes if facts else 10
    with torch.no_grad(), nullcontext() if own else shapes_only():
        model = build_model(
            settings.name, num_classes=classes, seed=0, width=settings.width, classifier=settings.classifier
        )
        if own and facts and facts.size:
            _check_outputs(config, model, classes, facts.size)
        if facts and facts.size:
            if isinstance(model, VisionTransformer):  # of LiPT's networks the only one that does not take all sizes
                model.check_size(*facts.size)
            _check_single_images(config, model, facts, trainings)
    check_blocks(config, model, trainings)
    return sum(parameter.numel() for parameter in model.parameters())


def _check_outputs(config: Config, model: nn.Module, classes: int, size: tuple[int, int]) -> None:
    """Apply the network to two images, as it is scored and as it is trained."""
    name, (height, width) = config.model.name, size
    if any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
        raise UsageError(f"model.name: {name} is compiled, which hides its layers", "return it without torch.compile")
    if odd := [key for key, value in model.state_dict().items() if not isinstance(value, Tensor)]:
        raise UsageError(
            f"model.name: the state of {name} has {odd[0]}, which is no tensor and cannot be stored",
            "leave out get_extra_state; keep numbers in a buffer",
        )
    others = {parameter.dtype for parameter in model.parameters()} - {torch.float32}
    if others:
        raise UsageError(f"model.name: {name} has weights of {', '.join(map(str, others))}", "return it with .float()")
    x = torch.rand(2, 3, height, width, generator=generator(0, "check")).contiguous(memory_format=torch.channels_last)
    remedy = "set data.image_size to the size that it expects"
    try:
        found = {"": logits_and_features(on_device(model.eval(), x.device), x)[0]}
        precision = _precision_here(config)
        if precision == "bf16":
            remedy = "set precision: fp32"
        with torch.enable_grad(), autocast(x.device, precision):
            found[" in train mode"] = model.train()(x)
    except LiptError:
        raise
    except Exception as error:
        if "view size is not compatible" in str(error):
            raise UsageError(
                f"model.name: {name} uses view() on images that lie in memory with their channels last",
                "write reshape(...) or flatten(1) in place of view(...)",
            ) from error
        raise UsageError(
            f"model.name: {name} cannot process images of {height}x{width} pixels: {in_one_line(error)}",
            f"correct the model, or {remedy}",
        ) from error
    for mode, logits in found.items():
        if not isinstance(logits, Tensor) or logits.shape != (2, classes):
            what = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise UsageError(
                f"model.name: {name} returns {what} for 2 images and {classes} classes{mode}",
                f"return logits of shape (2, {classes})",
            )
        if not logits.isfinite().all():
            raise UsageError(
                f"model.name: {name} returns NaN or infinity for images of noise{mode}, with its first weights",
                "correct the model",
            )
    try:
        refuse_probabilities(found[""], name)
    except UsageError as error:
        raise UsageError(f"model.name: {error.message}", "leave out the softmax: the loss computes it") from None
    if not found[" in train mode"].requires_grad:
        raise UsageError(f"model.name: all weights of {name} are frozen", "leave at least those of the classifier free")


def _precision_here(config: Config) -> Precision:
    """The precision of a training on this CPU; fp32 if a GPU trains, whose operations may be others."""
    if config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available()):
        return "fp32"
    return native_precision(torch.device("cpu")) if config.precision == "auto" else config.precision


def _check_single_images(config: Config, model: nn.Module, facts: Facts, trainings: Collection[str]) -> None:
    """Train on one image, if settings lead to batches of one: BatchNorm needs several values per channel.

    Raises:
        UsageError: it has one value per channel; names the setting.
    """
    assert facts.size is not None
    if not (why := next(lonely_images(config, facts, trainings), None)):
        return
    try:
        model.train()(torch.zeros(1, 3, *facts.size))
    except ValueError as error:
        height, width = facts.size
        raise UsageError(
            f"{why}: {config.model.name} cannot train on a single image of {height}x{width} pixels, "
            "because its BatchNorm would see one value per channel",
            "train on more images; or raise it, if an epoch has more than one",
        ) from error


def lonely_images(config: Config, facts: Facts, trainings: Collection[str] = _TRAININGS) -> Iterator[str]:
    """Why one of these trainings, or a recalibration, has a batch of one image."""
    try:
        candidates, trains = facts.candidates(config.data), trains_models(config)
    except LiptError:  # other checks report it
        return
    kept = kept_images(config, candidates)
    drawn = format_count(epoch_images(config.train, candidates, kept), "image")
    if config.train.draw == "infobatch":
        drawn = f"at most {drawn}"
    batches = [("train", drawn, config.train.batch_size, smallest_batch(config.train, candidates, kept))]
    if trains:
        scored = format_count(candidates, "image")
        if config.score.disjoint:
            scored = f"about {format_count(candidates // config.score.runs, 'image')}"
        smallest = smallest_initial_batch(config, candidates)
        batches.append(("initialise", scored, config.initialise.batch_size, smallest))
    if has_swarm(config):
        size = config.dispatch.batch_size
        shard = config.dispatch.batches * size
        batches.append(("dispatch", format_count(shard, "image"), size, batch_sizes(shard, size)[-1]))
        recalibrates = config.merge.batchnorm != "averaged" and "dispatch" in trainings
        if recalibrates and config.merge.recalibration_images == 1:
            yield "merge.recalibration_images is 1"
    for section, images, size, smallest in batches:
        if smallest == 1 and section in trainings:
            of = "" if size == 1 else f" and an epoch has {images}"
            yield f"{section}.batch_size is {size}{of}"
