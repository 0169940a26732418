"""Stages for `lipt.runtime.processes.parent` that fail, each in its way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from lipt.adapters.store import StoreError
from lipt.config import parse_config
from lipt.data.augmentation import no_augmentation
from lipt.data.images import ResidentImages
from lipt.errors import RunError, TransientError
from lipt.runtime.artifact import Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.processes.child import ProcessGroup, run_stage
from lipt.runtime.stage import Stage
from lipt.stages.initialise import initialise
from lipt.training.distributed import Ranks
from lipt.training.loop import Trainer, train
from lipt.training.recipe import Recipe
from tests.unit.training.helpers import Smooth, blocks


def in_turn(ctx: Context, processes: ProcessGroup, *, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What several stages ask for, each with its own configuration and folder."""
    assert processes.folder is not None
    results = []
    for number, one in enumerate(asked):
        folder = processes.folder / f"asked-{number}"
        folder.mkdir(exist_ok=True)
        own = Context.of(parse_config(one["config"]), ctx.reporter)
        results.append(run_stage(own, replace(processes, folder=folder), **one["request"]))
    return results


def unreachable(_ctx: Context, processes: ProcessGroup) -> dict[str, Any]:
    if processes.ranks.rank == 1:
        raise TransientError("s3://bucket: out of reach", "check that the store is up")
    processes.ranks.sum(torch.zeros(1))  # never comes back
    return {}


def full(_ctx: Context, processes: ProcessGroup) -> dict[str, Any]:
    if processes.ranks.rank == 1:
        raise StoreError("s3://bucket: the store is full", "free space")
    raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")


def mistaken(_ctx: Context, processes: ProcessGroup) -> dict[str, Any]:
    if processes.ranks.rank == 1:
        raise ZeroDivisionError("by zero")
    raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")


def mistaken_alone(_ctx: Context, processes: ProcessGroup) -> dict[str, Any]:
    """The other process notices nothing, until the launcher ends it."""
    if processes.ranks.rank == 1:
        raise ZeroDivisionError("by zero")
    time.sleep(600)
    return {}


def killed(_ctx: Context, processes: ProcessGroup) -> dict[str, Any]:
    if processes.ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    processes.ranks.sum(torch.zeros(1))
    return {}


def ended_alone(_ctx: Context, processes: ProcessGroup) -> dict[str, Any]:
    """Leaves no word."""
    if processes.ranks.rank == 1:
        os._exit(7)
    time.sleep(600)
    return {}


def in_training(_ctx: Context, processes: ProcessGroup, *, hang: str) -> dict[str, Any]:
    """A training of two epochs, in the second of which the second process hangs."""
    own = processes.ranks.rank == 1
    _train_and_hang(processes.ranks, hang if own else "")
    return {}


def slow_first(_ctx: Context, processes: ProcessGroup, *, seconds: float) -> dict[str, Any]:
    """A training in which the first process works by itself, after an epoch and at the end; the other one waits."""
    ranks = processes.ranks

    def work(_trainer: Trainer) -> None:
        time.sleep(seconds if ranks.rank == 0 else 0)

    trainer = _trainer(ranks)
    train(trainer, lambda _trainer: (blocks(), None), after_epoch=work)
    ranks.broadcast(b"the end")
    return {"epochs": trainer.progress.epoch}


def hanging(ctx: Context, *, index: int) -> Stage:
    """Part 1 hangs while it trains a model, as soon as part 0 is there."""

    def hang() -> None:
        while hanging(ctx, index=0).find() is None:
            time.sleep(0.05)
        _train_and_hang(Ranks(), "reading")

    return _part(ctx, index, hang)


class _Stuck(ResidentImages):
    """Images that cannot be read beyond the first batch."""

    def batches(self, rows_K: Tensor, sizes: Sequence[int], seed: int | None = None) -> Iterator[Tensor]:
        yield next(super().batches(rows_K, sizes, seed))
        time.sleep(600)


def _trainer(ranks: Ranks) -> Trainer:
    recipe = Recipe(epochs=2, batch_size=32, lr=0.02, schedule="constant", augment=no_augmentation)
    return Trainer(Smooth(4), recipe, seed=0, device=torch.device("cpu"), ranks=ranks)


def _train_and_hang(ranks: Ranks, hang: str) -> None:
    """Train; in the second epoch, hang where `hang` says: never if it is empty."""
    trainer, images = _trainer(ranks), blocks()

    def images_of(trainer: Trainer) -> tuple[ResidentImages, None]:
        second = trainer.progress.epoch == 1
        if second and hang == "the last gradient":
            next(trainer.model.parameters()).register_hook(lambda _gradient: time.sleep(600))
        if second and hang == "stopped":
            trainer.advance = lambda done, _total: os.kill(os.getpid(), signal.SIGSTOP) if done == 192 else None
        stuck = _Stuck(images_NCHW=images.images_NCHW, labels_N=images.labels_N)
        return (stuck if second and hang == "reading" else images), None

    train(trainer, images_of)
    ranks.broadcast(b"the end")


def misshapen(ctx: Context, *, index: int) -> Stage:
    """Part 1 multiplies what does not fit."""
    return _part(ctx, index, lambda: torch.zeros(2, 3) @ torch.zeros(2, 3))


def immense(ctx: Context, *, index: int) -> Stage:
    """Part 1 needs more memory than there is."""
    return _part(ctx, index, lambda: torch.empty(10**15))


def broken_gpu(ctx: Context, *, index: int) -> Stage:
    """The GPU fails at part 1."""
    return _part(ctx, index, _fails)


def _fails() -> None:
    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


def unwritable(ctx: Context, *, index: int) -> Stage:
    """No disk has room for part 1."""
    return _part(ctx, index, _no_room)


def _no_room() -> None:
    raise StoreError("file:///full: No space left on device", "free space")


def fatal(ctx: Context, *, index: int) -> Stage:
    """Part 1 kills its process as soon as part 0 is there. Each try of a part leaves an object."""

    def kill() -> None:
        while fatal(ctx, index=0).find() is None:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

    stage = _part(ctx, index, kill)

    def body(attempt: Attempt) -> dict[str, Any]:
        ctx.workspace.store.write(f"tries/{index}-{uuid4().hex}", b"", kind="other")
        return stage.body(attempt)

    return replace(stage, body=body)


#: Environment variable: the indices of the models that `fragile` loses, with commas between.
LOST_MODELS = "LIPT_TEST_LOST_MODELS"


def fragile(ctx: Context, dataset: Artifact, *, index: int = 0) -> Stage:
    """`initialise`, of which some models are lost."""
    stage = initialise(ctx, dataset, index=index)
    lost = str(index) in os.environ[LOST_MODELS].split(",")
    return replace(stage, body=lambda _attempt: _fail(index)) if lost else stage


def _fail(index: int) -> dict[str, Any]:
    raise RunError(f"GPU {index} failed", "run again")


def _part(ctx: Context, index: int, fail: Callable[[], object]) -> Stage:
    def body(_attempt: Attempt) -> dict[str, Any]:
        if index == 1:
            fail()
        return {}

    return Stage(ctx=ctx, name="part", settings={"index": index}, inputs=[], body=body, label=f"part[{index}]")
