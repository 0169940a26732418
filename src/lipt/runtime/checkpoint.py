"""Checkpoints of a training stage: one object that holds weights, momentum, progress and the cost so far."""

import json
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import torch

from lipt.errors import IntegrityError
from lipt.ledger import Cost, machines
from lipt.runtime.artifact import CHECKPOINT
from lipt.runtime.attempt import Attempt
from lipt.training.distributed import Ranks
from lipt.training.dynamics import Dynamics
from lipt.training.loop import Trainer, TrainingProgress
from lipt.training.tensor_files import below, pack, unpack


@contextmanager
def resumable(
    attempt: Attempt,
    trainer: Trainer,
    *,
    every_s: float,
    dynamics: Dynamics | None = None,
    extra: Callable[[], dict[str, torch.Tensor]] = dict,
    restore_extra: Callable[[dict[str, torch.Tensor]], None] = lambda _tensors: None,
) -> Iterator[Callable[[Trainer], None]]:
    """Continue `trainer` where an interrupted attempt stopped, and give the hook that saves checkpoints.

    If several processes share the training, the first reads and writes the checkpoints, and sends them to the others.

    Args:
        every_s: least seconds between two checkpoints; 0 saves after every epoch.
        extra: further tensors that must survive, such as the current subset under re-selection.
    """
    ranks = trainer.ranks
    data = ranks.broadcast((attempt.load_checkpoint() if ranks.rank == 0 else None) or b"")
    if data:
        _restore(data, attempt, trainer, dynamics, restore_extra)
        if ranks.rank == 0:
            done, recipe = trainer.progress, trainer.recipe
            steps = "" if _knows_epochs(attempt, trainer) else f" ({done.steps:,} of {recipe.steps:,} steps)"
            after = f"{_epoch(attempt, trainer, done.epoch)}{steps}"
            attempt.reporter.note(attempt.label, f"continues after {after}, from its checkpoint")
    if os.environ.get("LOCAL_RANK", "0") == "0":  # in each pod: its progress shows that it does not hang
        follow(attempt, trainer)
    last, measure = time.monotonic(), measures(attempt, trainer)

    def after_epoch(trainer: Trainer) -> None:
        nonlocal last
        if ranks.rank == 0:
            measure(trainer)
        cost = total_cost(attempt, ranks)
        if ranks.rank == 0 and trainer.done < 1 and time.monotonic() - last >= every_s:
            last = time.monotonic()
            attempt.save_checkpoint(_pack(cost, trainer, dynamics, extra()))

    yield after_epoch


def measures(attempt: Attempt, trainer: Trainer) -> Callable[[Trainer], None]:
    """The hook that hands the figures of each epoch to the reporter."""
    before, since = trainer.progress.images, time.monotonic()

    def after_epoch(trainer: Trainer) -> None:
        nonlocal before, since
        progress, now = trainer.progress, time.monotonic()
        rate = (progress.images - before) / max(now - since, 1e-9)
        before, since = progress.images, now
        figures = {"loss": progress.loss[-1], "train_accuracy": progress.accuracy[-1], "images_per_s": rate}
        attempt.reporter.measured(attempt.label, progress.steps, figures)

    return after_epoch


def follow(attempt: Attempt, trainer: Trainer) -> None:
    """Report the progress of each batch."""
    # Two objects that refer to each other stay until the next garbage collection, and with them a GPU's memory.
    seen = weakref.proxy(trainer)

    def advance(done: int, total: int) -> None:
        progress = seen.progress
        loss = f", loss {progress.loss[-1]:.3f}" if progress.loss else ""
        attempt.shows(f"images, {_epoch(attempt, seen, progress.epoch + 1)}{loss}")(done, total)

    trainer.advance = advance


def _epoch(attempt: Attempt, trainer: Trainer, epoch: int) -> str:
    """An epoch of all epochs, if their number is known."""
    return f"epoch {epoch} of {trainer.recipe.epochs}" if _knows_epochs(attempt, trainer) else f"epoch {epoch}"


def _knows_epochs(attempt: Attempt, trainer: Trainer) -> bool:
    """Whether the number of epochs is known: InfoBatch leaves out images, so `steps` may take more epochs."""
    return trainer.recipe.steps is None or attempt.ctx.config.train.draw != "infobatch"


def total_cost(attempt: Attempt, ranks: Ranks) -> Cost:
    """The cost so far: traffic and machines of all processes, memory of the largest. Every process must call this."""
    own = attempt.cost()
    parts = [Cost(**json.loads(part)) for part in ranks.gather(json.dumps(asdict(own)).encode())]
    machine = machines(part.machine for part in parts)
    return replace(sum(parts, Cost()), wall_s=own.wall_s, machine=machine)  # they run at the same time


def _pack(cost: Cost, trainer: Trainer, dynamics: Dynamics | None, extra: dict[str, torch.Tensor]) -> bytes:
    document = {"progress": asdict(trainer.progress), "cost": asdict(cost)}
    tensors = trainer.tensors() | {
        "document": torch.frombuffer(bytearray(json.dumps(document).encode()), dtype=torch.uint8)
    }
    tensors |= {f"extra/{name}": tensor for name, tensor in extra.items()}
    if dynamics is not None:
        tensors |= {f"dynamics/{name}": tensor for name, tensor in vars(dynamics).items()}
    return pack(tensors)


def _restore(
    data: bytes,
    attempt: Attempt,
    trainer: Trainer,
    dynamics: Dynamics | None,
    restore_extra: Callable[[dict[str, torch.Tensor]], None],
) -> None:
    origin = f"{attempt.ref}/{CHECKPOINT}"
    tensors = unpack(data, origin=origin)
    try:
        document: dict[str, Any] = json.loads(tensors.pop("document").numpy().tobytes())
        trainer.restore(tensors, TrainingProgress(**document["progress"]))
        for name in vars(dynamics) if dynamics is not None else ():
            getattr(dynamics, name).copy_(tensors[f"dynamics/{name}"])
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        raise IntegrityError(
            f"{origin} is damaged: {error}", "delete it; the stage starts from its beginning"
        ) from None
    restore_extra(below("extra", tensors))
    if trainer.ranks.rank == 0:  # the sum over all processes, so it must count once
        attempt.earlier = Cost(**document["cost"])
