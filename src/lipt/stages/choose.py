"""Score and select: which samples the main training gets."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
from lipt.core.shards import Positions
from lipt.core.wire import State, decode_delta, pack, unpack
from lipt.errors import UsageError
from lipt.stages.context import Context, read_weights
from lipt.stages.swarm import DELTA, DYNAMICS
from lipt.stages.workspace import Artifact, Step

SUBSET = "subset.parquet"


def score(ctx: Context, dataset: Artifact, models: Sequence[Artifact], base: Artifact | None = None) -> Artifact:
    """Forward all candidates through each model, once.

    Args:
        models: whole models, or jigsaws.
        base: theta_*, which jigsaws are stored relative to.

    Files: `labels`, per model the logits and penultimate features of the candidates, and of the validation set where
    the algorithm looks at it; rows are candidates in the order of the split.
    """
    needs = requirements(ctx.config.select.algorithm)

    def body(step: Step) -> dict[str, Any]:
        data = ctx.dataset(step, dataset)
        validation, candidates = ctx.split(data)
        sets = {"candidates": ctx.images(data, "train", candidates)}
        if needs.validation:
            sets["validation"] = ctx.images(data, "train", validation)
        for name, images in sets.items():
            step.put(f"{name}-labels.safetensors", pack({"labels": images.labels_N}), kind="other")
        star = read_weights(step, base) if base else {}
        for index, artifact in enumerate(models):
            model = ctx.model(len(data.manifest.classes), 0, _state(step, artifact, star))
            model = on_device(model, ctx.device)
            for name, images in sets.items():
                outputs = score_images(
                    model,
                    images,
                    device=ctx.device,
                    advance=lambda done, total: step.reporter.advance(step.label, done, total, "images"),
                )
                step.flops += len(images) * ctx.flops(model, image_shape(images))[0]
                step.put(
                    f"{name}-{index}.safetensors",
                    pack({"logits": outputs.logits_NC, "features": outputs.features_ND}),
                    kind="other",
                )
            if index == 0 and DYNAMICS in artifact.files:
                step.put(DYNAMICS, step.read(artifact, DYNAMICS, kind="other"), kind="other")
        return {"models": len(models), "candidates": len(candidates), "classes": len(data.manifest.classes)}

    chosen = ctx.settings("model", view=ctx.view(), validation=needs.validation)
    return ctx.step("score", chosen, [dataset, *models, *([base] if base else [])], body)


def _state(step: Step, artifact: Artifact, star: State) -> State:
    if DELTA not in artifact.files:
        return read_weights(step, artifact)
    return decode_delta(step.read(artifact, DELTA, kind="model"), star, origin=f"{artifact.ref}/{DELTA}")


def select(ctx: Context, dataset: Artifact, scores: Artifact | None) -> Artifact:
    """Spend the data budget. File: a table with one row per candidate (position, label, score, rank, weight).

    Args:
        scores: None for algorithms that need none (random, stratified).
    """
    settings = ctx.config.select

    def body(step: Step) -> dict[str, Any]:
        data = ctx.dataset(step, dataset)
        _, positions = ctx.split(data)
        labels_N = torch.from_numpy(data.index("train").label[positions].astype(np.int64))
        num_classes = len(data.manifest.classes)
        candidates, validation = Candidates(labels_N=labels_N, num_classes=num_classes), None
        if scores is not None:
            candidates = _load_candidates(step, scores, "candidates")
            if requirements(settings.algorithm).validation:
                validation = _load_candidates(step, scores, "validation")
        selection = apply(settings, candidates, validation, seed=ctx.seed("select"))
        provenance = {
            "dataset": data.manifest.digest,
            "scores": scores.ref if scores else None,
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

    inputs = [dataset] if scores is None else [dataset, scores]
    return ctx.step(
        "select", ctx.settings("select", view=ctx.view()), inputs, body, label=f"select {settings.algorithm}"
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


def _load_candidates(step: Step, scores: Artifact, name: str) -> Candidates:
    def load(file: str) -> dict[str, Tensor]:
        return unpack(step.read(scores, file, kind="other"), origin=f"{scores.ref}/{file}")

    outputs = []
    for index in range(int(scores.summary["models"])):
        tensors = load(f"{name}-{index}.safetensors")
        outputs.append(Outputs(logits_NC=tensors["logits"], features_ND=tensors["features"]))
    forgetting = load(DYNAMICS)["forgetting"] if name == "candidates" and DYNAMICS in scores.files else None
    return Candidates(
        labels_N=load(f"{name}-labels.safetensors")["labels"],
        num_classes=int(scores.summary["classes"]),
        outputs=outputs,
        forgetting_N=forgetting,
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
