"""A workaround for a bug in oneDNN, the library that computes torch's convolutions on a CPU.

The weight gradient of a strided 1x1 convolution writes outside of its buffer if the image is stored channels last and
has fewer channels than a vector register has floats (16 with AVX-512, 8 with AVX2):
https://github.com/uxlfoundation/oneDNN/issues/6035. This damages the heap: the process crashes later or continues with
a wrong gradient. docs/explanation/architecture.md lists the sizes that are affected.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn


def without_strided_1x1(model: nn.Module) -> None:
    """Make every strided 1x1 convolution slice its input and convolve with stride 1.

    The result is the same, because such a convolution reads no other pixels; so are FLOPs, parameters and their names.
    A hook does the slicing, so that it also works for subclasses that compute their weight. A second call changes
    nothing.
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
