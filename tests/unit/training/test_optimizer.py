"""SGD against torch's class, bit by bit."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from lipt.training import optimizer as optimizer_module
from lipt.training.optimizer import SGD


class Unused(nn.Module):
    """A layer gets no gradient in the first step, and one never does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.later, self.never = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        y: torch.Tensor = self.first(x)
        return self.later(y.tanh()) if step else y


@pytest.mark.parametrize("small", [0, 1 << 22])
@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_it_equals_torchs_class(momentum: float, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_module, "_SMALL", small)
    torch.manual_seed(0)
    ours, theirs = (model := Unused()), deepcopy(model)
    reference = torch.optim.SGD(theirs.parameters(), lr=1, momentum=momentum, weight_decay=0.1, nesterov=momentum > 0)
    optimizer = SGD(ours.parameters(), momentum=momentum, weight_decay=0.1)
    for step in range(4):
        x, lr = torch.randn(7, 3), 0.5 / (step + 1)
        reference.zero_grad()
        theirs(x, step).square().mean().backward()
        reference.param_groups[0]["lr"] = lr
        reference.step()
        ours(x, step).square().mean().backward()
        optimizer.step(lr)
        assert all(torch.equal(*pair) for pair in zip(ours.parameters(), theirs.parameters(), strict=True))
        assert all(parameter.grad is None for parameter in ours.parameters())
    assert set(optimizer.momentum_buffers) == (set(range(4)) if momentum else set())
