"""What RaPTr saves, as it is counted for the ledger and predicted for a plan."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from lipt.training.raptr import RaptrSchedule, block_flops, skippable_blocks
from tests.unit.training.helpers import Residual


def test_a_training_that_ends_within_an_epoch_skips_in_its_own_steps_only() -> None:
    never = RaptrSchedule(keep=(1e-9,))
    assert never.skipped_images(["block"], 0, 2, [10, 9], 3) == {"block": 10 + 9 + 10}
    assert never.skipped_images(["block"], 0, 2, [10, 9], None) == {"block": 2 * 19}


class Narrowing(nn.Module):
    """The same block before and after the image is made smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pool, self.second = Residual(3), nn.AvgPool2d(2), Residual(3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.second(self.pool(self.first(x))).flatten(1)
        return logits


def test_a_block_costs_less_on_smaller_images() -> None:
    model = Narrowing()
    flops = block_flops(model, skippable_blocks(model), (3, 16, 16))
    assert flops["first"] == pytest.approx(4 * flops["second"])
