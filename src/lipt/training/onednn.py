"""Workarounds for two bugs in oneDNN, the library that computes torch's convolutions on a CPU.

The weight gradient of a strided 1x1 convolution writes outside of its buffer if the image is stored channels last and
has fewer channels than a vector register has floats (16 with AVX-512, 8 with AVX2):
https://github.com/uxlfoundation/oneDNN/issues/6035. This damages the heap: the process crashes later or continues with
a wrong gradient.

In bfloat16, the weight gradient of a convolution whose input is narrower than its stride is not written where a weight
meets only padding: what was in memory before stays there, NaN included.

docs/explanation/architecture.md lists the sizes that are affected.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F


def guard_convolutions(model: nn.Module) -> None:
    """Keep every strided convolution away from both bugs.

    A strided 1x1 convolution slices its input and convolves with stride 1; the result is the same, because it reads no
    other pixels. Another one gets zeros at the right of an input that is narrower than the stride; the result is the
    same, because the zeros take the place of padding. FLOPs, parameters and their names stay. Hooks do this, so that
    it also works for subclasses that compute their weight. A second call changes nothing.
    """
    for module in model.modules():
        if not isinstance(module, nn.Conv1d | nn.Conv2d):
            continue
        if _strided_1x1(module):
            module.register_forward_pre_hook(partial(_slice, module.stride))
            module.stride = (1,) * len(module.stride)
        elif module.stride[-1] > 1 and _widen not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_widen)


def _strided_1x1(conv: nn.Conv1d | nn.Conv2d) -> bool:
    unpadded = conv.padding == "valid" or not any(conv.padding)
    return unpadded and all(side == 1 for side in conv.kernel_size) and any(step > 1 for step in conv.stride)


def _slice(stride: tuple[int, ...], _module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    x, *rest = inputs
    return x[(..., *(slice(None, None, step) for step in stride))], *rest


def _widen(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Tensor, ...] | None:
    """Fill the input with zeros up to the stride, unless that would add a column to the output."""
    assert isinstance(module, nn.Conv1d | nn.Conv2d)
    x, *rest = inputs
    width, step = x.shape[-1], module.stride[-1]
    if width >= step or isinstance(module.padding, str) or module.padding_mode != "zeros":
        return None
    reach = 2 * module.padding[-1] - module.dilation[-1] * (module.kernel_size[-1] - 1) - 1
    return (F.pad(x, (0, step - width)), *rest) if (width + reach) // step == (step + reach) // step else None
