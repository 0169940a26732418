"""Count FLOPs. torch's `FlopCounterMode` does the same, but imports torch's compiler: 4 s of CPU time."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


class CountFlops(TorchDispatchMode):
    """Inside the block, adds up the FLOPs of all operations by torch's formulas (1 multiply-add = 2 FLOPs)."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        from torch.utils.flop_counter import flop_registry  # here: it imports Triton, 0.2 s in each process

        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self._formulas = flop_registry

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it, torch would import it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution_backward.default:
            self.total += _convolution_backward(*args)
        elif (formula := self._formulas.get(getattr(func, "_overloadpacket", func))) is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


def _convolution_backward(dy: Tensor, x: Tensor, weight: Tensor, *others: Any) -> int:
    """The gradients of input and weights take the FLOPs of the forward pass each.

    torch's formula ignores groups for the weights: it counts a depthwise convolution like a full one.
    """
    _bias, _stride, _padding, _dilation, transposed, _output_padding, _groups, wanted = others
    from torch.utils.flop_counter import conv_flop_count  # here: as above

    forward = conv_flop_count(list(x.shape), list(weight.shape), list(dy.shape), transposed)
    return int(forward * sum(wanted[:2]))


class ImageFlops(NamedTuple):
    """FLOPs of one image."""

    forward: int
    training: int
    """Forward and backward."""


def flops_per_image(model: nn.Module, shape: tuple[int, int, int]) -> ImageFlops:
    """FLOPs of one image of this shape (3, H, W), as torch counts them."""
    was_training = model.training
    model.eval()  # BatchNorm cannot train on one image
    x = torch.zeros(1, *shape, device=next(model.parameters()).device)
    with CountFlops() as forward:
        loss = model(x).sum()
    with CountFlops() as backward:
        loss.backward()
    model.zero_grad(set_to_none=True)
    model.train(was_training)
    return ImageFlops(forward.total, forward.total + backward.total)
