"""Score and select: which samples the main training gets."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from lipt.config import Config, Select
from lipt.core.images import image_shape
from lipt.core.nets import on_device
from lipt.core.scoring import score as score_images
from lipt.core.selection import Candidates, Outputs, Selection, requirements
from lipt.core.selection import select as run_selection
from lipt.core.shards import Positions, split
from lipt.core.wire import State, decode_delta, pack, unpack
from lipt.errors import RunError, UsageError
from lipt.stages.context import Context
from lipt.stages.swarm import DELTA, DYNAMICS
from lipt.stages.workspace import Artifact, Step

SUBSET = "subset.parquet"
LABELS = "labels.safetensors"


@dataclass(frozen=True, kw_only=True)
class Block:
    """A run of candidates, or of validation images, that is scored at once and by one pod."""

    of: Literal["candidates", "validation"]
    start: int
    stop: int


def blocks(ctx: Context, dataset: Artifact) -> list[Block]:
    """What there is to score. Cut by `score.block_images` alone, so the outcome does not depend on who scores what."""
    if not dataset.summary:  # a dry run on data that were never ingested
        return [Block(of="candidates", start=0, stop=0)]
    validation, candidates = split(
        int(dataset.summary["train"]), ctx.config.data.validation_fraction, seed=ctx.seed("split")
    )
    sets: dict[Literal["candidates", "validation"], int] = {"candidates": len(candidates)}
    if requirements(ctx.config.select.algorithm).validation:
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
        for number, artifact in enumerate(models):
            model = ctx.model(len(data.manifest.classes), 0, _state(ctx, step, artifact, star))
            model = on_device(model, ctx.device)
            outputs = score_images(
                model,
                images,
                device=ctx.device,
                advance=lambda done, total: step.reporter.advance(step.label, done, total, "images"),
            )
            step.flops += len(images) * ctx.flops(model, image_shape(images))[0]
            tensors = {"logits": outputs.logits_NC, "features": outputs.features_ND}
            step.put(_outputs(number), pack(tensors), kind="other")
            if number == 0 and DYNAMICS in artifact.files and block.of == "candidates":
                counted = unpack(step.read(artifact, DYNAMICS, kind="other"), origin=f"{artifact.ref}/{DYNAMICS}")
                kept = {name: tensor[block.start : block.stop].clone() for name, tensor in counted.items()}
                step.put(DYNAMICS, pack(kept), kind="other")
        return {"models": len(models), "images": len(images), "classes": len(data.manifest.classes)}

    inputs = [dataset, *models, *([base] if base else [])]
    return ctx.step("score", _score_settings(ctx, block), inputs, body, label=_label(ctx, block))


def score_ref(
    ctx: Context, dataset: Artifact, models: Sequence[Artifact], base: Artifact | None = None, *, index: int
) -> str:
    """Where `score` leaves a block."""
    block = blocks(ctx, dataset)[index]
    return ctx.ref("score", _score_settings(ctx, block), [dataset, *models, *([base] if base else [])])


def _score_settings(ctx: Context, block: Block) -> dict[str, Any]:
    return ctx.settings("model", view=ctx.view(), block=asdict(block))


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
            candidates = _load(step, scores, "candidates")
            if requirements(settings.algorithm).validation:
                validation = _load(step, scores, "validation")
        if len(candidates) != len(positions):
            raise RunError(
                f"the scores cover {len(candidates):,} of {len(positions):,} candidates", "hand over all score blocks"
            )
        selection = apply(settings, candidates, validation, seed=ctx.seed("select"))
        provenance = {
            "dataset": data.manifest.digest,
            "scores": [block.ref for block in scores],
            **settings.model_dump(mode="json"),
        }
        step.put(SUBSET, subset_table(selection, positions, labels_N, provenance), kind="other")
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


def subset_table(selection: Selection, positions: Positions, labels_N: Tensor, provenance: dict[str, Any]) -> bytes:
    """The selection as Parquet: position, label, score of every candidate; rank and weight of the chosen, else null."""
    n, indices = len(positions), selection.indices_K.numpy()
    rank, weight = np.full(n, -1, np.int32), np.zeros(n, np.float32)
    rank[indices], weight[indices] = np.arange(len(indices)), selection.weights_K.float().cpu().numpy()
    scores = None if selection.scores_N is None else pa.array(selection.scores_N.float().cpu().numpy())
    table = pa.table({
        "position": positions, "label": labels_N.numpy().astype(np.int32),
        "score": scores if scores is not None else pa.nulls(n, pa.float32()),
        "rank": pa.array(rank, mask=rank < 0), "weight": pa.array(weight, mask=rank < 0),
    })  # fmt: skip
    sink = io.BytesIO()
    pq.write_table(
        table.replace_schema_metadata({"lipt": json.dumps(provenance, sort_keys=True)}), sink, compression="zstd"
    )
    return sink.getvalue()


def read_subset(step: Step, subset: Artifact) -> Subset:
    """The stored selection."""
    table = pq.read_table(io.BytesIO(step.read(subset, SUBSET, kind="other")))
    kept = table.filter(pa.compute.is_valid(table["rank"])).sort_by("position")
    return Subset(
        positions_K=kept["position"].to_numpy().astype(np.int64),
        weights_K=torch.from_numpy(kept["weight"].to_numpy().copy()),
        table=table,
    )


def _load(step: Step, scores: Sequence[Artifact], of: str) -> Candidates:
    """The blocks of one set, each read once and copied to its place: memory for the whole and for one block."""
    parts = [artifact for artifact in scores if artifact.settings["block"]["of"] == of]
    filled: dict[str, Tensor] = {}
    total = sum(int(part.summary["images"]) for part in parts)

    def fill(part: Artifact, file: str, names: dict[str, str], start: int) -> None:
        tensors = unpack(step.read(part, file, kind="other"), origin=f"{part.ref}/{file}")
        for stored, name in names.items():
            if name not in filled:
                filled[name] = torch.empty(total, *tensors[stored].shape[1:], dtype=tensors[stored].dtype)
            filled[name][start : start + len(tensors[stored])] = tensors[stored]

    start, models = 0, int(parts[0].summary["models"])
    for done, part in enumerate(parts):
        fill(part, LABELS, {"labels": "labels"}, start)
        for index in range(models):
            fill(part, _outputs(index), {"logits": f"logits/{index}", "features": f"features/{index}"}, start)
        if DYNAMICS in part.files:
            fill(part, DYNAMICS, {"forgetting": "forgetting"}, start)
        start += int(part.summary["images"])
        step.reporter.advance(step.label, done + 1, len(parts), "blocks")
    return Candidates(
        labels_N=filled["labels"],
        num_classes=int(parts[0].summary["classes"]),
        outputs=[
            Outputs(logits_NC=filled[f"logits/{index}"], features_ND=filled[f"features/{index}"])
            for index in range(models)
        ],
        forgetting_N=filled.get("forgetting"),
    )


def check_forgetting(config: Config) -> None:
    """Forgetting counts transitions between epochs, so it needs at least two of one model.

    Raises:
        UsageError: the configuration cannot provide them.
    """
    needs = requirements(config.select.algorithm)
    score_settings = config.score
    if needs.forgetting and (score_settings.model != "classic" or score_settings.epochs < 2):
        raise UsageError(
            f"select.algorithm: {config.select.algorithm} counts forgetting events during training, theta_p has none",
            "set score.model: classic, score.runs: 1 and score.epochs: 2 or more",
        )
