"""SGD with Nesterov momentum. `torch.optim.SGD` does the same, but imports torch's compiler: 4 s of CPU time."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

#: A network with at most this many weights gets one update of all layers, also on a CPU. The result is the same to the
#: bit, in half the time. This update copies all gradients. That is too much memory for a large network, and saves it
#: little time.
_SMALL = 1 << 22


class SGD:
    """Updates `parameters` from their gradients.

    Args:
        momentum: 0 = none.
        weight_decay: this times the weights is added to the gradients.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, momentum: float, weight_decay: float) -> None:
        self.parameters = list(parameters)
        self.momentum_buffers: dict[int, Tensor] = {}
        """Buffers by index of the parameter; a parameter that never had a gradient has none."""
        self._momentum, self._weight_decay = momentum, weight_decay
        self._small = sum(parameter.numel() for parameter in self.parameters) <= _SMALL

    @torch.no_grad()
    def step(self, lr: float | Tensor) -> None:
        """Update all parameters that have a gradient, and drop the gradients.

        Args:
            lr: a tensor, on a GPU only, may change after the step was recorded (`cuda_graphs.Replayed`).
        """
        recorded = isinstance(lr, Tensor)
        moved = {index: parameter for index, parameter in enumerate(self.parameters) if parameter.grad is not None}
        buffers = [self.momentum_buffers.get(index) for index in moved]
        sgd(
            list(moved.values()),
            [parameter.grad for parameter in moved.values() if parameter.grad is not None],
            buffers,
            fused=recorded or None,
            foreach=(not recorded and self._small) or None,
            weight_decay=self._weight_decay,
            momentum=self._momentum,
            lr=lr,
            dampening=0,
            nesterov=self._momentum > 0,
            maximize=False,
        )
        for (index, parameter), buffer in zip(moved.items(), buffers, strict=True):
            parameter.grad = None
            if buffer is not None:
                self.momentum_buffers[index] = buffer
