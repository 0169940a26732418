"""Which steps are replayed; recording is replaced here, because it needs a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from lipt.training import cuda_graphs
from lipt.training.cuda_graphs import Replayed


@dataclass(kw_only=True)
class Recorder:
    """Counts, by number of images of a batch."""

    done: list[int] = field(default_factory=list)
    """Steps that Python launched."""
    recorded: list[int] = field(default_factory=list)
    replayed: list[int] = field(default_factory=list)

    def step(
        self, images: Tensor, _labels_P: Tensor, _weights_P: Tensor | None, _size: int, _rate: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        self.done.append(len(images))
        return torch.zeros(2), torch.zeros(len(images), 4)

    def record(self, _replayed: Replayed, _step: object, given: list[Tensor], _size: int) -> cuda_graphs._Recorded:
        count = len(given[0])
        self.recorded.append(count)
        return cuda_graphs._Recorded(
            graph=SimpleNamespace(replay=lambda: self.replayed.append(count)),  # type: ignore[arg-type]
            inputs=[tensor.clone() for tensor in given],
            rate=torch.zeros(()),
            totals_2=torch.zeros(2),
            logits_PC=torch.zeros(count, 4),
        )


def test_the_sizes_used_last_stay_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training led by losses sees new sizes in each epoch: those of its first epochs must not fill the table."""
    recorder, replayed = Recorder(), Replayed()
    monkeypatch.setattr(Replayed, "_record", lambda *given: recorder.record(*given))

    def run(count: int, times: int) -> None:
        for _ in range(times):
            replayed(recorder.step, torch.zeros(count, 3, 2, 2), torch.zeros(count), None, count, 0.1)

    for count in range(1, 9):
        run(count, 3)
    assert recorder.recorded == recorder.replayed == list(range(1, 9))
    run(1, 1)  # now 2 is the one that was used longest ago
    run(9, 4)
    assert recorder.recorded == list(range(1, 10))
    assert recorder.replayed == [*range(1, 9), 1, 9, 9]
    recorder.done.clear()
    run(1, 1)
    run(2, 1)
    assert recorder.recorded == [*range(1, 10), 2]
    assert recorder.replayed[-2:] == [1, 2]
    assert recorder.done == []
