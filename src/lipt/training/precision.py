"""The number format in which networks are trained and evaluated, and what stays float32 where they run in bfloat16.

On a CPU some of torch's bfloat16 kernels are slower than its float32 kernels, though the processor multiplies bfloat16
matrices itself: those of the backward pass of attention, of group normalisation, and of the backward pass of depthwise
convolutions that are strided or larger than 3 x 3 (`python -m benchmarks.bf16`). All attention, group normalisation and
depthwise layers are computed in float32 there, as torch does it itself with normalisation on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

Precision = Literal["fp32", "bf16"]


def native_precision(device: torch.device) -> Precision:
    """bf16 where the device multiplies bfloat16 matrices itself: GPUs from sm80, CPUs with AVX512-BF16 or AMX.

    Elsewhere bfloat16 is emulated, which is slower than float32.
    """
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        # Only from torch 2.11 on; before, a CPU counts as one that emulates bfloat16.
        capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
        native = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return "bf16" if native else "fp32"


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Inside the block convolutions and matrix products are computed in `precision`; weights stay float32."""
    if precision == "fp32":
        return nullcontext()
    return _bf16_on_cpu() if device.type == "cpu" else torch.autocast(device.type, torch.bfloat16)


class _Float32Layer(nn.Module):
    """A layer that stays float32 where the network runs in bf16."""

    weight: Tensor

    def forward(self, x: Tensor) -> Any:
        if x.is_meta:  # has shapes only, and autocast does not know it
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype))


class Float32Linear(_Float32Layer, nn.Linear):
    """The last layer: 8 bits of a logit would give scores ties."""


class _Float32Conv2d(_Float32Layer, nn.Conv2d):
    """A depthwise convolution."""


_PLAIN: Mapping[type[nn.Module], type[nn.Module]] = {Float32Linear: nn.Linear, _Float32Conv2d: nn.Conv2d}


def depthwise_in_float32(model: nn.Module) -> None:
    """Keep the depthwise convolutions float32. A second call changes nothing."""
    for layer in model.modules():
        if type(layer) is nn.Conv2d and layer.groups == layer.in_channels > 1:
            layer.__class__ = _Float32Conv2d  # keeps parameters, name and place


def plain_layers(model: nn.Module) -> nn.Module:
    """The model with torch's own layers, for programs that run it without LiPT; changed in place."""
    for layer in model.modules():
        if plain := _PLAIN.get(type(layer)):
            layer.__class__ = plain
    return model


_inside: ContextVar[bool] = ContextVar("inside of a block of LiPT", default=False)


@contextmanager
def float32_where_slow() -> Iterator[None]:
    """As inside of `autocast`, but without it: for a backward pass, in which a network may compute layers again."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


@contextmanager
def _bf16_on_cpu() -> Iterator[None]:
    _tell_torch()
    with float32_where_slow(), torch.autocast("cpu", torch.bfloat16):
        yield


@cache
def _tell_torch() -> torch.library.Library:
    """Register what autocast does with the slow functions on a CPU, also where a layer of torch calls them.

    Outside of LiPT's blocks it stays what torch does: attention in the format of the block, group normalisation in
    that of its input.
    """
    library = torch.library.Library("aten", "IMPL", "AutocastCPU")
    attention, group_norm = torch.ops.aten.scaled_dot_product_attention.default, torch.ops.aten.group_norm.default
    library.impl(attention, partial(_computed, attention, lambda: torch.get_autocast_dtype("cpu")))
    library.impl(group_norm, partial(_computed, group_norm, lambda: None))
    return library


def _computed(
    function: Callable[..., Tensor], outside: Callable[[], torch.dtype | None], *arguments: Any, **options: Any
) -> Tensor:
    """The function in float32 inside of LiPT's blocks, elsewhere in the other format (None: as the inputs are)."""
    dtype = torch.float32 if _inside.get() else outside()
    with torch.autocast("cpu", enabled=False):
        return function(
            *(_cast(value, dtype) for value in arguments),
            **{name: _cast(value, dtype) for name, value in options.items()},
        )


def _cast(value: Any, dtype: torch.dtype | None) -> Any:
    if dtype is None or not isinstance(value, Tensor) or value.dtype not in _CAST:
        return value
    return value.to(dtype)


#: The formats that torch's autocast converts.
_CAST = (torch.float32, torch.bfloat16, torch.float16)
