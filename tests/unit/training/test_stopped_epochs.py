"""A training that stops within its epochs, after each part, and goes on each time from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from lipt.data.images import ResidentImages
from lipt.runtime import checkpoint
from lipt.training import loop
from lipt.training.distributed import Ranks
from lipt.training.dynamics import observe
from lipt.training.epoch_sums import EpochSums
from lipt.training.loop import Trainer
from lipt.training.recipe import TrainingProgress
from tests.unit.training.small_training import EPOCHS, Training


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two steps: an epoch of six has three."""
    for module in (loop, checkpoint):
        monkeypatch.setattr(module, "STEPS_PER_PART", 2)


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
