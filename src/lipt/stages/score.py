"""Score: compute the outputs of one or more models for each candidate, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from lipt.config import Config
from lipt.data.chunks import Dataset
from lipt.data.images import ImageSet, ResidentImages, image_shape
from lipt.data.shards import Positions
from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.runtime.algorithm import scoring_needs
from lipt.runtime.dataset import count_candidates, images_of, open_dataset, split_positions
from lipt.runtime.network import new_model, read_weights
from lipt.selection import Candidates, Outputs, StoredOutputs, Trajectory
from lipt.selection.inputs.compressed import TopLogits
from lipt.stages.initialise import trajectories_of
from lipt.stages.inputs import check_base, check_blocks, check_index
from lipt.stages.pretrain import DELTA
from lipt.training.flops import flops_per_image
from lipt.training.forward import accuracies, models_at_once, outputs_of_each
from lipt.training.networks import on_device
from lipt.training.tensor_files import State, decode_delta, pack, unpack

LABELS = "labels.safetensors"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Consecutive candidates (or validation images) that are scored together, by one pod."""

    of: Literal["candidates", "validation"]
    start: int
    stop: int


def blocks(ctx: Context, dataset: Artifact) -> list[Block]:
    """All blocks to score. Only `score.block_images` sets their size: results do not depend on the number of pods."""
    if not dataset.summary:  # a dry run on data that were never ingested
        return [Block(of="candidates", start=0, stop=0)]
    candidates = count_candidates(ctx, dataset)
    sets: dict[Literal["candidates", "validation"], int] = {"candidates": candidates}
    if scoring_needs(ctx.config).validation:
        sets["validation"] = int(dataset.summary["train"]) - candidates
    size = ctx.config.score.block_images
    return [
        Block(of=of, start=start, stop=min(start + size, count))
        for of, count in sets.items()
        for start in range(0, count, size)
    ]


def score(
    ctx: Context, dataset: Artifact, models: Sequence[Artifact], base: Artifact | None = None, *, index: int = 0
) -> Stage:
    """Forward a block of images through each model, once. Algorithms that read only a trajectory need no forward pass.

    Streamed images are read and decoded once for as many models as `models_at_once` says.

    Args:
        models: whole models, or jigsaws.
        base: theta_*, which jigsaws are stored relative to.
        index: index of the block in `blocks`.

    Files: for each model its logits and penultimate features; the labels. The first block also holds the trajectories
    of all candidates: so they are read once, whatever the number of blocks. Rows are in the order of the split. The
    summary of the first block has the validation accuracy of the first model of `initialise`. Merges know theirs.
    """
    ctx, dataset = ctx.of_scorer(), ctx.data_of_scorer(dataset)
    check_base(base, [model for model in models if DELTA in model.files])
    found, reads = blocks(ctx, dataset), scoring_needs(ctx.config)
    check_index(index, len(found), "score block")
    block = found[index]
    holds_trajectories = reads.trajectory and index == 0

    def body(attempt: Attempt) -> dict[str, Any]:
        data = open_dataset(attempt, dataset)
        validation, candidates = split_positions(ctx, data)
        positions = (candidates if block.of == "candidates" else validation)[block.start : block.stop]
        labels_N = torch.from_numpy(data.index("train").label[positions].astype(np.int64))
        attempt.put(LABELS, pack({"labels": labels_N}), kind="other")
        counts: dict[str, Any] = {
            "models": len(models),
            "images": len(positions),
            "classes": len(data.manifest.classes),
        }
        for number, recorded in enumerate(trajectories_of(attempt, models) if holds_trajectories else []):
            attempt.put(_trajectory(number), pack(recorded), kind="other")
        if index == 0 and models[0].stage == "initialise":
            counts["accuracy"] = _accuracy(attempt, models[0], data, validation)
        if not reads.outputs:
            return counts
        images = images_of(ctx, data, "train", positions)
        star = read_weights(attempt, base) if base else {}
        networks = (
            on_device(new_model(ctx, len(data.manifest.classes), 0, _state(attempt, artifact, star)), ctx.device)
            for artifact in models
        )
        tops = _forward(attempt, networks, images, classes=len(data.manifest.classes), count=len(models))
        return counts | (_compression(tops) if tops else {})

    inputs = [dataset, *models, *([base] if base else [])]
    form = ctx.config.score if reads.outputs else ctx.config.score.with_defaults("top_classes", "stored_precision")
    stored = form.model_dump(mode="json", include={"top_classes", "stored_precision"})
    stored |= {"trajectories": holds_trajectories, "outputs": reads.outputs}
    chosen = ctx.settings("model", view=ctx.view(), precision=ctx.config.precision, block=asdict(block), stored=stored)
    return Stage(ctx=ctx, name="score", settings=chosen, inputs=inputs, body=body, label=_label(ctx, block))


def _accuracy(attempt: Attempt, model: Artifact, data: Dataset, validation: Positions) -> float:
    """The validation accuracy of a whole model. Its memory is free afterwards, for the images that are scored."""
    ctx = attempt.ctx
    network = new_model(ctx, len(data.manifest.classes), 0, read_weights(attempt, model))
    images = images_of(ctx, data, "train", validation)
    attempt.flops += len(images) * flops_per_image(network, image_shape(images)).forward
    return accuracies([on_device(network, ctx.device)], images, device=ctx.device)[0]


def output_bytes(config: Config, classes: int, features: int) -> int:
    """Bytes of the stored outputs of one model for one image."""
    settings = config.score
    each = _DTYPES[settings.stored_precision].itemsize
    logits = each * classes
    if settings.top_classes:
        logits = min(logits, TopLogits.row_bytes(classes, settings.top_classes))
    return logits + each * features


def _forward(
    attempt: Attempt, networks: Iterator[nn.Module], images: ImageSet, *, classes: int, count: int
) -> list[TopLogits]:
    """Store the outputs of all networks, pass by pass. Returns the logits that were compressed.

    Args:
        networks: on the device; each is made when its pass begins.
        count: of the networks.
    """
    tops: list[TopLogits] = []
    done = 0
    for first in networks:
        together = [first, *islice(networks, _at_once(attempt.ctx, first, images, classes) - 1)]
        tops += _forward_together(attempt, together, images, done, count)
        done += len(together)
        del together  # before the next ones are made
    return tops


def _at_once(ctx: Context, network: nn.Module, images: ImageSet, classes: int) -> int:
    """Number of networks that share a pass. Images in memory need no decoding: there each has a pass of its own."""
    if isinstance(images, ResidentImages):
        return 1
    weights = sum(tensor.nbytes for tensor in network.state_dict().values())
    layer = network.get_submodule(str(network.classifier_name))
    outputs = len(images) * output_bytes(ctx.config, classes, int(str(layer.in_features)))
    return models_at_once(weights + outputs, ctx.config.data.resident_mb * 1e6)


def _forward_together(
    attempt: Attempt, networks: Sequence[nn.Module], images: ImageSet, start: int, count: int
) -> list[TopLogits]:
    """Store the outputs of these networks, the first of which is number `start` of `count`."""
    ctx, settings = attempt.ctx, attempt.ctx.config.score
    found = outputs_of_each(
        networks,
        images,
        device=ctx.device,
        precision=ctx.precision,
        top_classes=settings.top_classes,
        dtype=_DTYPES[settings.stored_precision],
        advance=attempt.shows("images" + _of_models(start, len(networks), count)),
    )
    attempt.flops += len(networks) * len(images) * flops_per_image(networks[0], image_shape(images)).forward
    for number, outputs in enumerate(found, start):
        attempt.put(_outputs(number), pack(outputs.tensors()), kind="other")
    return [outputs.logits_NC for outputs in found if isinstance(outputs.logits_NC, TopLogits)]


def _of_models(start: int, together: int, count: int) -> str:
    """Of which models the progress is, if there are several."""
    if count == 1:
        return ""
    if together == 1:
        return f", model {start + 1} of {count}"
    return f", {count} models" if together == count else f", models {start + 1} to {start + together} of {count}"


def _compression(tops: Sequence[TopLogits]) -> dict[str, Any]:
    """The bytes saved by storing only the largest probabilities, and the resulting errors in |delta|."""
    # Outputs that are not finite have no error; the selection refuses them and names the sample.
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


def _trajectory(number: int) -> str:
    return f"trajectory-{number}.safetensors"


def _outputs(model: int) -> str:
    return f"outputs-{model}.safetensors"


def _state(attempt: Attempt, artifact: Artifact, star: State) -> State:
    if DELTA not in artifact.files:
        return read_weights(attempt, artifact)
    return decode_delta(attempt.read(artifact, DELTA, kind="model"), star, origin=f"{artifact.ref}/{DELTA}")


def read_scores(attempt: Attempt, scores: Sequence[Artifact], of: str) -> Candidates:
    """The candidates or the validation images. Outputs are read block by block, when the algorithm needs them."""
    parts = [artifact for artifact in scores if artifact.settings["block"]["of"] == of]
    check_blocks(parts)
    models, classes = int(parts[0].summary["models"]), int(parts[0].summary["classes"])

    def tensors(part: Artifact, file: str) -> State:
        return unpack(attempt.read(part, file, kind="other"), origin=f"{part.ref}/{file}")

    def read(index: int) -> list[Outputs]:
        attempt.reporter.advance(attempt.label, index + 1, len(parts), "blocks")
        return [Outputs.of(tensors(parts[index], _outputs(model)), classes) for model in range(models)]

    trajectories = [file for file in map(_trajectory, range(models)) if file in parts[0].files]
    stored = StoredOutputs(models=models, sizes=[int(part.summary["images"]) for part in parts], read=read)
    return Candidates(
        labels_N=torch.cat([tensors(part, LABELS)["labels"] for part in parts]),
        num_classes=classes,
        stored=stored if _outputs(0) in parts[0].files else None,
        trajectories=[Trajectory.of(tensors(parts[0], file)) for file in trajectories],
    )
