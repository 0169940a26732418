"""A guard against a fault in oneDNN, the library that computes torch's convolutions on a CPU.

The weight gradient of a 1x1 convolution with a stride writes outside of its workspace when the image is stored
channels last and has fewer channels than a vector register holds floats (16 with AVX-512, 8 with AVX2):
https://github.com/uxlfoundation/oneDNN/issues/6035. The heap is damaged, and the process dies at some later point, or
goes on with a wrong gradient. Which sizes it reaches: docs/architecture.md.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn


def without_strided_1x1(model: nn.Module) -> None:
    """Let every 1x1 convolution of the model take its stride as a slice of its input, and convolve with stride 1.

    The result is the same, since such a convolution looks at no other pixels; so are FLOPs, parameters and their names.
    A hook slices, so that subclasses which compute their weight first are covered. To do it twice changes nothing.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d) and _strided_1x1(module):
            module.register_forward_pre_hook(partial(_slice, module.stride))
            module.stride = (1,) * len(module.stride)


def _strided_1x1(conv: nn.Conv1d | nn.Conv2d) -> bool:
    unpadded = conv.padding == "valid" or not any(conv.padding)
    return unpadded and all(side == 1 for side in conv.kernel_size) and any(step > 1 for step in conv.stride)


def _slice(stride: tuple[int, ...], _module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    x, *rest = inputs
    return x[(..., *(slice(None, None, step) for step in stride))], *rest
