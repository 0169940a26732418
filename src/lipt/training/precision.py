"""The number format in which networks are trained and evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

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
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
