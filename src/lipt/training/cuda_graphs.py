"""Training steps on a GPU that are recorded once and replayed (CUDA graphs).

A step of a small network is hundreds of kernels, each shorter than the time that Python takes to launch it. A replay
launches all of them at once.

Shape legend: P images of a batch, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: Computes the gradients and updates the weights: uint8 images (P, 3, H, W), labels (P,), loss weights (P,) or None,
#: images of the batch in all processes, learning rate -> float32 (2,), sum of losses and number of hits; logits (P, C).
Step = Callable[[Tensor, Tensor, Tensor | None, int, float | Tensor], tuple[Tensor, Tensor]]

#: Batches of a size before its step is recorded: the first step makes the momentum, and libraries set themselves up.
_BEFORE = 2
#: At most this many sizes stay recorded, those used last: draws that are led by losses give other sizes in each epoch.
_SIZES = 8


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    rate: Tensor
    totals_2: Tensor
    logits_PC: Tensor


class Replayed:
    """A step, from the third batch of a size on as a replay of what the GPU did for it.

    Only for a step that launches the same kernels for each batch of a size: what Python decides is recorded, too.
    The tensors that a call returns are overwritten by the next one.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], int] = {}
        self._recorded: dict[tuple[object, ...], _Recorded] = {}
        self._pool: Any = None

    def __call__(
        self, step: Step, images: Tensor, labels_P: Tensor, weights_P: Tensor | None, size: int, rate: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Do `step` with these arguments.

        Args:
            step: always the same one. It is not kept: it holds the training, which would hold its memory until the next
                garbage collection.
        """
        given = [images, labels_P] if weights_P is None else [images, labels_P, weights_P]
        key = (images.shape, weights_P is None, size)
        recorded = self._recorded.pop(key, None)
        if recorded is None:
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] <= _BEFORE:
                return step(images, labels_P, weights_P, size, rate)
            if len(self._recorded) == _SIZES:
                del self._recorded[next(iter(self._recorded))]
            recorded = self._record(step, given, size)
        self._recorded[key] = recorded  # the last one is the one used last
        for own, tensor in zip(recorded.inputs, given, strict=True):
            own.copy_(tensor)
        recorded.rate.fill_(rate)
        recorded.graph.replay()
        return recorded.totals_2, recorded.logits_PC

    def _record(self, step: Step, given: list[Tensor], size: int) -> _Recorded:
        inputs = [tensor.clone() for tensor in given]
        rate = torch.zeros((), device=inputs[0].device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            weights_P = inputs[2] if len(inputs) > 2 else None
            totals_2, logits_PC = step(inputs[0], inputs[1], weights_P, size, rate)
        self._pool = graph.pool()  # the graphs never run at the same time
        return _Recorded(graph=graph, inputs=inputs, rate=rate, totals_2=totals_2, logits_PC=logits_PC)
