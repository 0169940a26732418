"""The loop never waits for the device within an epoch.

The device "meta" stands for a GPU: its tensors have no values, so that reading one on the CPU is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lipt.data.augmentation import Augment, StandardAugment
from lipt.data.images import ResidentImages
from lipt.data.randaugment import RandAugment
from lipt.training.loop import Trainer
from lipt.training.networks import build_model
from lipt.training.recipe import Recipe
from tests.unit.training.helpers import blocks

DEVICE = torch.device("meta")


class Copies(TorchDispatchMode):
    """Counts copies to the device that the CPU waits for."""

    blocking = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and (args[0].device, out.device) == (torch.device("cpu"), DEVICE):
            self.blocking += not (kwargs or {}).get("non_blocking")
        return out


class Streamed(ResidentImages):
    """Images that stay on the CPU, batch by batch."""

    def batches(self, rows_K: Tensor, sizes: Sequence[int], seed: int | None = None) -> Iterator[Tensor]:
        for rows_B in rows_K.split(list(sizes)):
            yield self.images_NCHW[rows_B]


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("augment", [StandardAugment(padding=1, flip=True), RandAugment(num_ops=2, magnitude=9)])
@pytest.mark.parametrize("weighted", [True, False])
def test_an_epoch_does_not_wait_for_the_device(augment: Augment, resident: bool, weighted: bool) -> None:
    images = blocks(n=96)
    found = images.on(DEVICE) if resident else Streamed(images_NCHW=images.images_NCHW, labels_N=images.labels_N)
    recipe = Recipe(epochs=1, batch_size=16, lr=0.1, schedule="cosine", augment=augment)
    trainer = Trainer(build_model("resnet18", num_classes=4, seed=0, width=4), recipe, seed=0, device=DEVICE)
    copies, seen = Copies(), []
    trainer.advance = lambda done, _total: seen.append((done, copies.blocking))
    with copies, pytest.raises(RuntimeError, match="meta"):  # the loss is read at the end of the epoch
        trainer.run_epoch(found, weights_N=torch.rand(96) if weighted else None)
    assert [done for done, _ in seen] == [16, 32, 48, 64, 80, 96]
    first, last = seen[0][1], seen[-1][1]
    assert first == last <= 4
