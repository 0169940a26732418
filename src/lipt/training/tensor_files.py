"""Files of weights: safetensors, and for jigsaws a compressed bf16 difference to theta_*, the delta.

A delta is zstd(safetensors). For each floating-point tensor with two dimensions or more it contains

    zero/NAME   a bitmap of exact zeros, so that pruned weights stay exactly zero
    delta/NAME  the difference of all other values to the base, in bf16, all low bytes before all high bytes:
                zstd compresses the high bytes (sign and exponent), but not the low ones

All other tensors (biases, BatchNorm, counters; less than 1 % of the bytes) are stored unchanged as `full/NAME`.
"""

import numpy as np
import torch
import zstandard
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from lipt.errors import IntegrityError

State = dict[str, Tensor]


def state_of(model: nn.Module) -> State:
    """A detached CPU copy of all parameters and buffers, contiguous."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in model.state_dict().items()}


def pack(tensors: State, metadata: dict[str, str] | None = None) -> bytes:
    """Tensors as safetensors bytes, lossless."""
    return save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)


def below(prefix: str, tensors: State) -> State:
    """The tensors whose names begin with `prefix/`, named without it."""
    return {name.removeprefix(f"{prefix}/"): found for name, found in tensors.items() if name.startswith(f"{prefix}/")}


def unpack(data: bytes, *, origin: str) -> State:
    """Tensors from safetensors bytes.

    Raises:
        IntegrityError: `data` is not a safetensors file; names `origin`.
    """
    try:
        return load(data)
    except (SafetensorError, ValueError) as error:
        raise IntegrityError(
            f"{origin} is not a safetensors file: {error}", "delete it; the stage that wrote it runs again"
        ) from None


def encode_delta(state: State, base: State) -> bytes:
    """The delta of `state` to `base`, which has the same names and shapes.

    The relative error of each difference is at most 2^-9; zeros stay exact.
    """
    parts: State = {}
    for name, tensor in state.items():
        if not _has_delta(tensor):
            parts[f"full/{name}"] = tensor
            continue
        zero = tensor == 0
        # Where the two are equal: infinity minus infinity would be NaN, and a mask of attention may hold infinities.
        difference = (tensor - base[name]).masked_fill_(tensor == base[name], 0)
        delta = difference[~zero].to(torch.bfloat16)
        parts[f"delta/{name}"] = delta.view(torch.uint8).view(-1, 2).t().contiguous()
        parts[f"zero/{name}"] = torch.from_numpy(np.packbits(zero.flatten().numpy()))
    return zstandard.ZstdCompressor(level=3).compress(save(parts))


def decode_delta(data: bytes, base: State, *, origin: str) -> State:
    """The state of a delta to the same `base`.

    Raises:
        IntegrityError: the delta is damaged or has another base; names `origin`.
    """
    limit = 4 * sum(tensor.numel() * tensor.element_size() for tensor in base.values()) + 1_000_000
    try:
        if zstandard.frame_content_size(data) > limit:  # zstandard would allocate as much as the header says
            raise ValueError("unpacked, it would be larger than the model")
        parts = unpack(zstandard.ZstdDecompressor().decompress(data), origin=origin)
        return {name: _restore(name, tensor, parts) for name, tensor in base.items()}
    except (zstandard.ZstdError, KeyError, RuntimeError, ValueError) as error:
        raise IntegrityError(
            f"{origin} is not a delta to this theta_*: {error}", "delete it; its worker runs again"
        ) from None


def _has_delta(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() > 1


def _restore(name: str, base: Tensor, parts: State) -> Tensor:
    if not _has_delta(base):
        return parts[f"full/{name}"].view_as(base)
    bits = np.unpackbits(parts[f"zero/{name}"].numpy(), count=base.numel())
    kept = ~torch.from_numpy(bits).view(base.shape).bool()
    delta = parts[f"delta/{name}"].t().flatten().view(torch.bfloat16)
    if len(delta) != int(kept.sum()):
        raise ValueError(f"{name} has {len(delta):,} values for {int(kept.sum()):,} weights")
    # Indexing with a mask would take six times as long.
    return torch.zeros_like(base).masked_scatter_(kept, delta.to(base.dtype)).add_(base).masked_fill_(~kept, 0)
