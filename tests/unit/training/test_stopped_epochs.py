"""A training that stops within its epochs, after each part, and goes on each time from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lipt.data.augmentation import StandardAugment
from lipt.data.images import ResidentImages
from lipt.progress import Reporter
from lipt.rng import global_seed
from lipt.runtime import checkpoint
from lipt.runtime.attempt import Attempt
from lipt.runtime.checkpoint import MOST_TIME, resume
from lipt.training import loop
from lipt.training.distributed import Ranks
from lipt.training.draws import InfoBatch, LossDraws, Ordered
from lipt.training.dynamics import Dynamics, observe
from lipt.training.epoch_sums import EpochSums
from lipt.training.loop import Trainer, train
from lipt.training.raptr import RaptrSchedule
from lipt.training.recipe import Recipe, TrainingProgress
from lipt.training.tensor_files import State, below, pack, state_of, unpack
from tests.tiny import tiny_context
from tests.unit.training.helpers import blocks, smooth_residual, with_dropout

N, EPOCHS = 90, 3
RECIPE = Recipe(epochs=EPOCHS, batch_size=16, lr=0.02, schedule="cosine", augment=StandardAugment(padding=1, flip=True))


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two steps: an epoch of six has three."""
    for module in (loop, checkpoint):
        monkeypatch.setattr(module, "STEPS_PER_PART", 2)


class Training:
    """A training and all that its checkpoint holds."""

    def __init__(self, kind: str) -> None:
        with global_seed(0, "weights"):
            model: nn.Module = with_dropout(4) if kind == "dropout" else smooth_residual(4)
        recipe = replace(RECIPE, raptr=RaptrSchedule(keep=(0.5, 1.0)) if kind == "raptr" else None)
        recipe = replace(recipe, steps=13 if kind == "steps" else None)
        self.draws: LossDraws | None = None
        if kind == "infobatch":
            self.draws = InfoBatch(torch.full((N,), torch.nan), probability=0.5)
        elif kind == "ordered":
            recipe, self.draws = replace(recipe, epoch_size=80), Ordered(torch.full((N,), torch.nan), count=70)
        self.trainer = Trainer(model, recipe, seed=5, device=torch.device("cpu"))
        self.dynamics = Dynamics.empty(N, EPOCHS)
        self.images, self.weights_N = blocks(n=N), torch.linspace(0.2, 3, N) if kind == "weights" else None

    def run(self, after_part: Callable[[Trainer], None], after_epoch: Callable[[Trainer], None]) -> None:
        torch.manual_seed(torch.randint(1000, ()).item())  # what others draw changes nothing
        train(
            self.trainer,
            lambda _trainer: (self.images, self.weights_N),
            dynamics=self.dynamics,
            draws=self.draws,
            after_epoch=after_epoch,
            after_part=after_part,
        )

    def saved(self) -> tuple[bytes, TrainingProgress]:
        tensors = self.trainer.tensors() | {f"dynamics/{name}": tensor for name, tensor in vars(self.dynamics).items()}
        if self.draws:
            tensors |= {f"draws/{name}": tensor for name, tensor in self.draws.tensors().items()}
        return pack(tensors), deepcopy(self.trainer.progress)

    def restore(self, data: bytes, progress: TrainingProgress) -> None:
        tensors = unpack(data, origin="the checkpoint")
        self.trainer.restore(tensors, deepcopy(progress))
        for name, tensor in below("dynamics", tensors).items():
            getattr(self.dynamics, name).copy_(tensor)
        if self.draws:
            self.draws.restore(below("draws", tensors))

    def outcome(self) -> State:
        curves = {
            "loss": torch.tensor(self.trainer.progress.loss),
            "hits": torch.tensor(self.trainer.progress.accuracy),
        }
        return (
            state_of(self.trainer.model) | vars(self.dynamics) | curves | (self.draws.tensors() if self.draws else {})
        )


@pytest.mark.parametrize("kind", ["plain", "dropout", "weights", "steps", "infobatch", "ordered", "raptr"])
def test_stopped_after_each_part_it_ends_with_the_same_bits(kind: str) -> None:
    straight = Training(kind)
    straight.run(lambda _: None, lambda _: None)

    saved: list[tuple[bytes, TrainingProgress]] = []

    def stop(trainer: Trainer) -> None:
        trainer.collect()
        saved.append(resumed.saved())
        raise KeyboardInterrupt

    resumed, within = Training(kind), 0
    while resumed.trainer.done < 1:
        resumed = Training(kind)
        if saved:
            resumed.restore(*saved[-1])
            within += saved[-1][1].part > 0
        try:
            resumed.run(stop, stop)
        except KeyboardInterrupt:
            continue
    assert within >= EPOCHS  # in each epoch at least once
    assert resumed.trainer.progress == straight.trainer.progress
    found = resumed.outcome()
    for name, tensor in straight.outcome().items():
        assert torch.equal(found[name].nan_to_num(-1), tensor.nan_to_num(-1)), name
    assert straight.dynamics.p_NT.isfinite().any(0).all()


def test_a_resumed_epoch_reads_only_what_is_left() -> None:
    read: list[int] = []

    class Counted(ResidentImages):
        def batches(self, rows_K: Tensor, sizes: Sequence[int], _seed: int | None = None) -> Iterator[Tensor]:
            read.append(len(rows_K))
            return super().batches(rows_K, sizes, _seed)

    training = Training("plain")
    training.images = Counted(**vars(training.images))
    saved = list[tuple[bytes, TrainingProgress]]()

    def note(trainer: Trainer) -> None:
        trainer.collect()
        saved.append(training.saved())

    training.run(note, lambda _: None)
    resumed = Training("plain")
    resumed.images = training.images
    resumed.restore(*saved[1])
    assert saved[1][1].part == 2
    resumed.run(lambda _: None, lambda _: None)
    assert read == [90, 90, 90, 30, 90, 90]  # six batches of 15; two were left


def test_an_epoch_goes_on_with_another_number_of_processes() -> None:
    """What two processes have seen counts once; the order of the sum changes, and so its rounding."""
    before = {"totals": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "observed": torch.eye(4, 3)}
    own_P, device = torch.tensor([3]), torch.device("cpu")
    sums = EpochSums(Ranks(), own_P, samples=4, observes=True, before=before, device=device)
    logits_PC, labels_P = torch.tensor([[2.0, 1.0]]), torch.tensor([0])
    sums.add(torch.tensor([10.0, 1.0]), logits_PC, labels_P)
    found = sums.so_far()
    assert torch.equal(found["totals"], torch.tensor([[14.0, 7.0]]))
    assert torch.equal(found["observed"][:3], torch.eye(4, 3)[:3])
    assert torch.equal(found["observed"][3:], observe(logits_PC, labels_P))


def test_checkpoints_take_a_part_of_the_time_whatever_one_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of an epoch takes ten seconds, a checkpoint two: so at most one in forty seconds."""
    now, saved_at = [0.0], list[float]()
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
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
