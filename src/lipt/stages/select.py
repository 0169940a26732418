"""Score and select: which samples the main training gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from lipt.config import Config, Select
from lipt.data.images import image_shape
from lipt.data.shards import Positions, split
from lipt.errors import RunError, UsageError
from lipt.run.context import Context
from lipt.run.workspace import Artifact, Step
from lipt.selection import Candidates, Outputs, Requirements, Selection, StoredOutputs, requirements, resolve
from lipt.selection import select as run_selection
from lipt.selection.compressed import TopLogits
from lipt.stages.pretrain import DELTA, DYNAMICS
from lipt.training.forward import outputs_of
from lipt.training.networks import on_device
from lipt.training.tensor_files import State, decode_delta, pack, unpack

SUBSET = "subset.parquet"
LABELS = "labels.safetensors"


@dataclass(frozen=True, kw_only=True)
class Block:
    """A run of candidates, or of validation images, that is scored at once and by one pod."""

    of: Literal["candidates", "validation"]
    start: int
    stop: int


def algorithm_of(settings: Select) -> str:
    """The algorithm that runs; another one than the configured for `auto`."""
    return resolve(settings.algorithm, settings.fraction, balanced=settings.balanced)


def needs_of(settings: Select) -> Requirements:
    """What that algorithm needs."""
    return requirements(settings.algorithm, settings.fraction, settings.options)


def blocks(ctx: Context, dataset: Artifact) -> list[Block]:
    """What there is to score. Cut by `score.block_images` alone, so the outcome does not depend on who scores what."""
    if not dataset.summary:  # a dry run on data that were never ingested
        return [Block(of="candidates", start=0, stop=0)]
    validation, candidates = split(
        int(dataset.summary["train"]), ctx.config.data.validation_fraction, seed=ctx.seed("split")
    )
    sets: dict[Literal["candidates", "validation"], int] = {"candidates": len(candidates)}
    if needs_of(ctx.config.select).validation:
        sets["validation"] = len(validation)
    size = ctx.config.score.block_images
    return [
        Block(of=of, start=start, stop=min(start + size, count))
        for of, count in sets.items()
        for start in range(0, count, size)
    ]


def score(
    ctx: Context, dataset: Artifact, models: Sequence[Artifact], base: Artifact | None = None, *, index: int = 0
) -> Artifact:
    """Forward a block of images through each model, once.

    Args:
        models: whole models, or jigsaws.
        base: theta_*, which jigsaws are stored relative to.
        index: which of the `blocks`.

    Files: per model the logits and penultimate features, the labels once; rows in the order of the split.
    """

    block = blocks(ctx, dataset)[index]

    def body(step: Step) -> dict[str, Any]:
        data = ctx.dataset(step, dataset)
        validation, candidates = ctx.split(data)
        positions = (candidates if block.of == "candidates" else validation)[block.start : block.stop]
        images = ctx.images(data, "train", positions)
        step.put(LABELS, pack({"labels": images.labels_N}), kind="other")
        star = ctx.weights(step, base) if base else {}
        tops: list[TopLogits] = []
        for number, artifact in enumerate(models):
            model = ctx.model(len(data.manifest.classes), 0, _state(ctx, step, artifact, star))
            model = on_device(model, ctx.device)
            outputs = outputs_of(
                model,
                images,
                device=ctx.device,
                top_classes=ctx.config.score.top_classes,
                dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[ctx.config.score.precision],
                advance=step.shows("images" if len(models) == 1 else f"images, model {number + 1} of {len(models)}"),
            )
            step.flops += len(images) * ctx.flops(model, image_shape(images))[0]
            step.put(_outputs(number), pack(outputs.tensors()), kind="other")
            if isinstance(outputs.logits_NC, TopLogits):
                tops.append(outputs.logits_NC)
            if number == 0 and DYNAMICS in artifact.files and block.of == "candidates":
                counted = unpack(step.read(artifact, DYNAMICS, kind="other"), origin=f"{artifact.ref}/{DYNAMICS}")
                kept = {name: tensor[block.start : block.stop].clone() for name, tensor in counted.items()}
                step.put(DYNAMICS, pack(kept), kind="other")
        counts = {"models": len(models), "images": len(images), "classes": len(data.manifest.classes)}
        return counts | (_compression(tops) if tops else {})

    inputs = [dataset, *models, *([base] if base else [])]
    return ctx.step("score", _score_settings(ctx, block), inputs, body, label=_label(ctx, block))


def score_ref(
    ctx: Context, dataset: Artifact, models: Sequence[Artifact], base: Artifact | None = None, *, index: int
) -> str:
    """Where `score` leaves a block."""
    block = blocks(ctx, dataset)[index]
    return ctx.ref("score", _score_settings(ctx, block), [dataset, *models, *([base] if base else [])])


def _score_settings(ctx: Context, block: Block) -> dict[str, Any]:
    stored = ctx.config.score.model_dump(mode="json", include={"top_classes", "precision"})
    return ctx.settings("model", view=ctx.view(), block=asdict(block), stored=stored)


def _compression(tops: Sequence[TopLogits]) -> dict[str, Any]:
    """What keeping the largest probabilities saves compared with float32, and the error it makes in |delta|."""
    # A sample that is not finite has no error; the selection refuses it by name.
    error_N = torch.cat([top.error_N for top in tops]).nan_to_num(0.0)
    return {
        "top_classes": tops[0].classes_NT.shape[1] - 1,
        "error_max": float(error_N.max()),
        "error_mean": float(error_N.double().mean()),
        "saved_bytes": sum(4 * len(top) * top.num_classes - top.nbytes for top in tops),
    }


def _label(ctx: Context, block: Block) -> str:
    of = "" if block.of == "candidates" else " validation"
    whole = block.start == 0 and block.stop < ctx.config.score.block_images
    return f"score{of}" if whole else f"score{of} {block.start:,}"


def _outputs(model: int) -> str:
    return f"outputs-{model}.safetensors"


def _state(ctx: Context, step: Step, artifact: Artifact, star: State) -> State:
    if DELTA not in artifact.files:
        return ctx.weights(step, artifact)
    return decode_delta(step.read(artifact, DELTA, kind="model"), star, origin=f"{artifact.ref}/{DELTA}")


def select(ctx: Context, dataset: Artifact, scores: Sequence[Artifact]) -> Artifact:
    """Spend the data budget. File: a table with one row per candidate (position, label, score, rank, weight).

    Args:
        scores: all blocks, in the order of `blocks`; none for algorithms that need none (random, stratified).
    """
    settings = ctx.config.select

    def body(step: Step) -> dict[str, Any]:
        data = ctx.dataset(step, dataset)
        _, positions = ctx.split(data)
        labels_N = torch.from_numpy(data.index("train").label[positions].astype(np.int64))
        num_classes = len(data.manifest.classes)
        candidates, validation = Candidates(labels_N=labels_N, num_classes=num_classes), None
        if scores:
            candidates = _stored(step, scores, "candidates")
            if needs_of(settings).validation:
                validation = _stored(step, scores, "validation")
        if len(candidates) != len(positions):
            raise RunError(
                f"the scores cover {len(candidates):,} of {len(positions):,} candidates", "hand over all score blocks"
            )
        notes = {
            "dataset": data.manifest.digest,
            "scores": [block.ref for block in scores],
            "requested": settings.model_dump(mode="json"),
        }
        selection = replace(
            apply(settings, candidates, validation, seed=ctx.seed("select")),
            positions_N=torch.from_numpy(positions),
            sources_N=None if (names := data.names("train")) is None else names.take(pa.array(positions)),
            notes=notes,
        )
        for remark in selection.remarks:
            step.reporter.say(remark)
        step.put(SUBSET, selection.to_parquet(), kind="other")
        kept = torch.bincount(labels_N[selection.indices_K], minlength=num_classes)
        return {
            "count": len(selection.indices_K),
            "candidates": len(positions),
            "algorithm": selection.algorithm,
            "kept_per_class": kept.tolist(),
            "candidates_per_class": torch.bincount(labels_N, minlength=num_classes).tolist(),
        }

    return ctx.step(
        "select",
        ctx.settings("select", view=ctx.view()),
        [dataset, *scores],
        body,
        label=f"select {settings.algorithm}",
    )


def apply(settings: Select, candidates: Candidates, validation: Candidates | None, *, seed: int) -> Selection:
    """The configured algorithm on these candidates."""
    return run_selection(
        settings.algorithm,
        candidates,
        fraction=settings.fraction,
        seed=seed,
        balanced=settings.balanced,
        options=settings.options,
        validation=validation,
    )


@dataclass(frozen=True, kw_only=True)
class Subset:
    """A selection as it was stored; rows ascend by position."""

    positions_K: Positions
    weights_K: Tensor
    table: pa.Table


def read_subset(step: Step, subset: Artifact, *, sources: bool = False) -> Subset:
    """The stored selection; `sources` adds the names of the candidates where the data set has them."""
    data = step.read(subset, SUBSET, kind="other")
    selection = Selection.from_parquet(data, origin=f"{subset.ref}/{SUBSET}", sources=sources)
    positions_K, weights_K = selection.ascending()
    return Subset(positions_K=positions_K.numpy(), weights_K=weights_K, table=selection.table())


def _stored(step: Step, scores: Sequence[Artifact], of: str) -> Candidates:
    """The samples of one set, whose outputs are read block by block when the algorithm asks for them."""
    parts = [artifact for artifact in scores if artifact.settings["block"]["of"] == of]
    models, classes = int(parts[0].summary["models"]), int(parts[0].summary["classes"])

    def tensors(part: Artifact, file: str) -> State:
        return unpack(step.read(part, file, kind="other"), origin=f"{part.ref}/{file}")

    def read(index: int) -> list[Outputs]:
        step.reporter.advance(step.label, index + 1, len(parts), "blocks")
        return [Outputs.of(tensors(parts[index], _outputs(model)), classes) for model in range(models)]

    counted = [tensors(part, DYNAMICS)["forgetting"] for part in parts if DYNAMICS in part.files]
    return Candidates(
        labels_N=torch.cat([tensors(part, LABELS)["labels"] for part in parts]),
        num_classes=classes,
        stored=StoredOutputs(models=models, sizes=[int(part.summary["images"]) for part in parts], read=read),
        forgetting_N=torch.cat(counted) if counted else None,
    )


def check_forgetting(config: Config) -> None:
    """Forgetting counts transitions between epochs, so it needs at least two of one model.

    Raises:
        UsageError: the configuration cannot provide them.
    """
    needs = needs_of(config.select)
    score_settings = config.score
    if needs.forgetting and (score_settings.model != "classic" or score_settings.epochs < 2):
        raise UsageError(
            f"select.algorithm: {config.select.algorithm} counts forgetting events during training, theta_p has none",
            "set score.model: classic, score.runs: 1 and score.epochs: 2 or more",
        )
