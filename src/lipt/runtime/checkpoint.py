"""Checkpoints of a training stage: one object that holds weights, momentum, progress and the cost so far."""

import json
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Self

import torch

from lipt.errors import DivergedError, IntegrityError, TransientError
from lipt.ledger import Cost, machines
from lipt.runtime.artifact import CHECKPOINT, CHECKPOINT_INPUTS
from lipt.runtime.attempt import Attempt
from lipt.training.batches import STEPS_PER_PART
from lipt.training.distributed import Ranks
from lipt.training.dynamics import Dynamics
from lipt.training.loop import Trainer
from lipt.training.pulse import Phase, phase
from lipt.training.recipe import TrainingProgress
from lipt.training.tensor_files import below, pack, unpack

#: Part of the time in which checkpoints may be written: the longer one takes, the fewer there are.
MOST_TIME = 0.05
#: Seconds that a training which ends early gives to a checkpoint that is being written.
_GRACE_S = 10.0


def resume(
    attempt: Attempt,
    trainer: Trainer,
    *,
    every_s: float,
    dynamics: Dynamics | None = None,
    extra: Callable[[], dict[str, torch.Tensor]] = dict,
    restore_extra: Callable[[dict[str, torch.Tensor]], None] = lambda _tensors: None,
) -> "Saves":
    """Continue `trainer` where an interrupted attempt stopped.

    If several processes share the training, the first reads and writes the checkpoints, and sends them to the others.

    Args:
        every_s: least seconds between two checkpoints; 0 saves after every part of an epoch.
        extra: further tensors that must survive, such as the current subset under re-selection.

    Returns:
        The hooks of `lipt.training.loop.train` that save checkpoints; enter it for the time of the training.
    """
    ranks = trainer.ranks
    data = ranks.broadcast((attempt.load_checkpoint() if ranks.rank == 0 else None) or b"")
    if data:
        _restore(data, attempt, trainer, dynamics, restore_extra)
        if ranks.rank == 0:
            attempt.reporter.note(attempt.label, f"continues {_where(attempt, trainer)}, from its checkpoint")
    if os.environ.get("LOCAL_RANK", "0") == "0":  # in each pod: its progress shows that it does not hang
        follow(attempt, trainer)
    return Saves(attempt, measures(attempt, trainer), every_s=every_s, dynamics=dynamics, extra=extra)


class Saves:
    """The hooks of a training that save its checkpoints. All processes of the training call them.

    A thread writes a checkpoint while the training goes on. If every part of an epoch is saved, the training waits.
    """

    def __init__(
        self,
        attempt: Attempt,
        measure: Callable[[Trainer], None],
        *,
        every_s: float,
        dynamics: Dynamics | None,
        extra: Callable[[], dict[str, torch.Tensor]],
    ) -> None:
        self._attempt, self._measure, self._dynamics, self._extra = attempt, measure, dynamics, extra
        self._every_s, self._last, self._took_s = every_s, time.monotonic(), 0.0
        self._writer: threading.Thread | None = None
        self._failed: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, DivergedError):
            self._wait()  # who finishes the artifact removes the checkpoint; in a race also that of a diverged training
        elif self._writer is not None:
            self._writer.join(_GRACE_S)

    def after_epoch(self, trainer: Trainer) -> None:
        """Report the figures of the epoch, and save a checkpoint if one is due."""
        if trainer.ranks.rank == 0:
            self._measure(trainer)
        if trainer.done < 1:
            self._save(trainer)

    def after_part(self, trainer: Trainer) -> None:
        """Save a checkpoint within an epoch if one is due."""
        self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        ranks, now = trainer.ranks, time.monotonic()
        if ranks.broadcast(bytes([self._is_due(now)])) == b"\0":  # the clock of the first process decides
            return
        trainer.collect()
        cost = total_cost(self._attempt, ranks)
        with phase(Phase.FREE):
            if ranks.rank == 0:
                self._wait()
                data = _pack(self._attempt, cost, trainer, self._dynamics, self._extra())
                # A daemon: a process that is told to end does not wait for a store that is away.
                self._writer = threading.Thread(target=self._write, args=(data, now), daemon=True)
                self._writer.start()
                if not self._every_s:
                    self._wait()

    def _is_due(self, now: float) -> bool:
        if self._writer is not None and self._writer.is_alive():
            return False
        wait_s = max(self._every_s, self._took_s / MOST_TIME) if self._every_s else 0
        return now - self._last >= wait_s

    def _write(self, data: bytes, began: float) -> None:
        try:
            self._attempt.save_checkpoint(data)
        except TransientError as error:  # the one before is still there
            reporter, label = self._attempt.reporter, self._attempt.label
            reporter.alert(f"goes on without a new checkpoint: {error.message}", label)
        except BaseException as error:
            self._failed = error
        self._last = time.monotonic()
        self._took_s = self._last - began  # also if it was in vain: each attempt at a store that is away takes long

    def _wait(self) -> None:
        """Wait until the last checkpoint is written.

        Raises:
            Exception: it could not be written.
        """
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._failed is not None:
            raise self._failed


def measures(attempt: Attempt, trainer: Trainer) -> Callable[[Trainer], None]:
    """The hook that hands the figures of each epoch to the reporter."""
    # Of the epoch that goes on from a checkpoint the attempt before has trained these; its batches are nearly full.
    behind = trainer.progress.part * STEPS_PER_PART * trainer.recipe.batch_size
    before, since = trainer.progress.images + behind, time.monotonic()

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


def _where(attempt: Attempt, trainer: Trainer) -> str:
    """How far the training is."""
    progress, recipe = trainer.progress, trainer.recipe
    if progress.part:
        return f"after {progress.part * STEPS_PER_PART:,} steps of {_epoch(attempt, trainer, progress.epoch + 1)}"
    steps = "" if _knows_epochs(attempt, trainer) else f" ({progress.steps:,} of {recipe.steps:,} steps)"
    return f"after {_epoch(attempt, trainer, progress.epoch)}{steps}"


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


def _pack(
    attempt: Attempt, cost: Cost, trainer: Trainer, dynamics: Dynamics | None, extra: dict[str, torch.Tensor]
) -> bytes:
    document = {"progress": asdict(trainer.progress), "cost": asdict(cost)}
    tensors = trainer.tensors() | {
        "document": torch.frombuffer(bytearray(json.dumps(document).encode()), dtype=torch.uint8)
    }
    tensors |= {f"extra/{name}": tensor for name, tensor in extra.items()}
    if dynamics is not None:
        tensors |= {f"dynamics/{name}": tensor for name, tensor in vars(dynamics).items()}
    return pack(tensors, {CHECKPOINT_INPUTS: json.dumps(list(attempt.inputs))})


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
