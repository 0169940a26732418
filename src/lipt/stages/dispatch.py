"""Dispatch: draw a disjoint random shard of the candidates for each worker (Ro et al., ICML 2023)."""

import json
from typing import Any

import torch

from lipt.data.chunks import SampleRanges
from lipt.data.images import StreamedImages
from lipt.data.shards import shards
from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.runtime.dataset import crops_of, open_dataset, split_positions


def dispatch(ctx: Context, dataset: Artifact) -> Stage:
    """Draw the shards. Files: the byte ranges of each worker's samples, so that a worker reads only those."""
    settings, dataset = ctx.config.dispatch, ctx.data_of_scorer(dataset)

    def body(attempt: Attempt) -> dict[str, Any]:
        data = open_dataset(attempt, dataset)
        _, candidates = split_positions(ctx, data)
        size = settings.batches * settings.batch_size
        parts = shards(
            candidates, count=settings.jigsaws, size=size, stratified=settings.stratified, seed=ctx.seed("dispatch")
        )
        for index, positions in enumerate(parts):
            attempt.put(_shard(index), json.dumps(data.ranges_of("train", positions).as_dict()).encode(), kind="other")
        share = settings.jigsaws * size / len(candidates)
        return {
            "jigsaws": settings.jigsaws,
            "images": settings.jigsaws * size,
            "share": share,
            "classes": len(data.manifest.classes),
        }

    # Not the whole view: shards are positions. Another image size of the network that is trained leaves a swarm of
    # `score.proxy` as it is.
    chosen = ctx.settings("dispatch", validation=ctx.config.data.validation_fraction)
    return Stage(ctx=ctx, name="dispatch", settings=chosen, inputs=[dataset], body=body, label="dispatch")


def _shard(index: int) -> str:
    return f"shard-{index:05d}.json"


def shard_images(attempt: Attempt, dataset: Artifact, shards: Artifact, index: int) -> StreamedImages:
    """Read the image files of shard `index`, and hold them in memory."""
    wanted = SampleRanges.from_dict(json.loads(attempt.read(shards, _shard(index), kind="other")))
    data = attempt.ctx.config.data
    images = StreamedImages(
        dataset=open_dataset(attempt, dataset),
        split=wanted.split,
        positions_N=wanted.positions_N,
        labels_N=torch.from_numpy(wanted.labels_N),
        image_size=data.image_size,
        crops=crops_of(data),
    )
    return images.hold(wanted)
