"""When checkpoints are written, and what goes on meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import sleep

import pytest
import torch

from lipt.progress import Reporter
from lipt.runtime import checkpoint
from lipt.runtime.attempt import Attempt
from lipt.runtime.checkpoint import MOST_TIME, resume
from lipt.runtime.lease import LostLeaseError
from lipt.training import loop
from lipt.training.loop import Trainer
from lipt.training.tensor_files import unpack
from tests.tiny import tiny_context
from tests.unit.training.small_training import EPOCHS, Training


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two steps: an epoch of six has three."""
    for module in (loop, checkpoint):
        monkeypatch.setattr(module, "STEPS_PER_PART", 2)


def test_checkpoints_take_a_part_of_the_time_whatever_one_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of an epoch takes ten seconds, a checkpoint two: so at most one in forty seconds."""
    now, saved_at = [0.0], list[float]()
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(checkpoint.threading.Thread, "start", checkpoint.threading.Thread.run)
    monkeypatch.setattr(checkpoint.threading.Thread, "join", lambda _self: None)
    save = Attempt.save_checkpoint

    def slow(self: Attempt, data: bytes) -> None:
        saved_at.append(now[0])
        save(self, data)
        now[0] += 2

    monkeypatch.setattr(Attempt, "save_checkpoint", slow)

    def trained(every_s: float) -> list[float]:
        now[0], training = 0.0, Training("plain")
        saved_at.clear()
        saves = resume(
            Attempt(ctx=tiny_context(tmp_path), ref=f"train/{every_s}", label="train"),
            training.trainer,
            every_s=every_s,
        )

        def pass_time(_done: int, _total: int) -> None:
            now[0] += 5  # two steps are a part

        training.trainer.advance = pass_time
        training.run(saves.after_part, saves.after_epoch)
        return saved_at.copy()

    assert trained(0) == [10, 22, 34, 46, 58, 70, 82, 94]  # after each part but the last
    assert trained(1) == [10, 52]
    assert 2 / MOST_TIME == 52 - (10 + 2)
    assert trained(25) == [30, 72]


def test_the_rate_of_a_resumed_epoch_counts_what_this_attempt_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of 15 images takes five seconds: three images per second, in each epoch."""
    now, rates = [0.0], list[float]()
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])

    class Measured(Reporter):
        def measured(self, label: str, step: int, figures: Mapping[str, float]) -> None:
            rates.append(figures["images_per_s"])

    def pass_time(_done: int, _total: int) -> None:
        now[0] += 5

    def trained(until: int) -> None:
        training, saved = Training("plain"), 0
        attempt = Attempt(ctx=replace(tiny_context(tmp_path), reporter=Measured()), ref="train/x", label="train")
        saves = resume(attempt, training.trainer, every_s=0)
        training.trainer.advance = pass_time

        def stop(trainer: Trainer) -> None:
            nonlocal saved
            saves.after_part(trainer)
            saved += 1
            if saved == until:
                raise KeyboardInterrupt

        training.run(stop, saves.after_epoch)

    with pytest.raises(KeyboardInterrupt):
        trained(2)  # in the first epoch, two of its six steps are left
    trained(0)
    assert rates == pytest.approx([2.6, 3, 3])  # 90 images, less 4 x 16


def test_a_training_goes_on_while_its_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state it holds is that of the step at which it was due; another one is not begun meanwhile."""
    save, written, seen = Attempt.save_checkpoint, list[int](), Event()

    def slow(self: Attempt, data: bytes) -> None:
        assert seen.wait(60)  # until the last epoch
        save(self, data)
        written.append(int.from_bytes(data[:8], "little"))

    monkeypatch.setattr(Attempt, "save_checkpoint", slow)
    training = Training("plain")
    attempt = Attempt(ctx=tiny_context(tmp_path), ref="train/x", label="train")
    due = training.saved()

    def after_epoch(trainer: Trainer) -> None:
        if trainer.progress.epoch == EPOCHS - 1:
            seen.set()

    with resume(attempt, training.trainer, every_s=1e-9) as saves:

        def after_part(trainer: Trainer) -> None:
            nonlocal due
            if saves._writer is None:
                due = training.saved()
            saves.after_part(trainer)

        training.run(after_part, after_epoch)
    assert len(written) == 1
    assert due[1].part == 1
    assert due[1].epoch == 0
    again = Training("plain")
    resume(attempt, again.trainer, every_s=0)
    assert (again.trainer.progress.epoch, again.trainer.progress.part) == (0, 1)
    expected = unpack(due[0], origin="x")
    found = again.trainer.tensors()
    names = {name for name in found if name.startswith(("model/", "momentum/"))}
    assert names
    assert all(torch.equal(found[name], expected[name]) for name in names)


def test_what_went_wrong_while_a_checkpoint_was_written_ends_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a lost lease, or a full disk. A store that is away does not."""

    def fail(_self: Attempt, _data: bytes) -> None:
        raise LostLeaseError

    monkeypatch.setattr(Attempt, "save_checkpoint", fail)
    training = Training("plain")
    attempt = Attempt(ctx=tiny_context(tmp_path), ref="train/x", label="train")
    with pytest.raises(LostLeaseError), resume(attempt, training.trainer, every_s=1e-9) as saves:
        training.run(saves.after_part, saves.after_epoch)


def test_a_training_that_is_stopped_finishes_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = Attempt.save_checkpoint

    def slow(self: Attempt, data: bytes) -> None:
        sleep(0.5)
        save(self, data)

    def stop(_done: int, _total: int) -> None:
        if saves._writer is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(Attempt, "save_checkpoint", slow)
    training = Training("plain")
    attempt = Attempt(ctx=tiny_context(tmp_path), ref="train/x", label="train")
    saves = resume(attempt, training.trainer, every_s=1e-9)
    training.trainer.advance = stop
    with pytest.raises(KeyboardInterrupt), saves:
        training.run(saves.after_part, saves.after_epoch)
    assert attempt.load_checkpoint()
