"""Random numbers: independent streams, each derived by name from the user's seed. So resuming needs no saved state."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def derive(seed: int, *names: str | int) -> int:
    """The 63-bit seed of the stream `names`, for example `derive(seed, "order", epoch)`."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A generator for the stream `names`. It is on the CPU, so that draws do not depend on the device."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *names))


def permutation(n: int, seed: int, *names: str | int) -> Tensor:
    """A random order of 0..n-1, int64 (n,)."""
    import torch

    return torch.randperm(n, generator=generator(seed, *names))


#: Constants of SplitMix64 (Steele et al. 2014), as signed numbers.
_GAMMA, _FIRST, _SECOND = (c - (1 << 64) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def uniform(rows_P: Tensor, count: int, seed: int, *names: str | int) -> Tensor:
    """`count` random numbers in [0, 1) for each row, float32 (P, count): the same ones wherever a row occurs.

    SplitMix64, with the stream's seed as its start and `row * count + column` as its counter; the upper 24 bits.
    """
    import torch

    z = rows_P[:, None] * count + torch.arange(1, count + 1, device=rows_P.device)
    z = z * _GAMMA + derive(seed, *names)  # torch's integers wrap around
    z = (z ^ _shift_right(z, 30)) * _FIRST
    z = (z ^ _shift_right(z, 27)) * _SECOND
    return _shift_right(z ^ _shift_right(z, 31), 40).float() * 2.0**-24


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """A shift of unsigned numbers."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Make torch's CPU kernels deterministic inside the block. Some GPU kernels have no deterministic version.

    `torch.use_deterministic_algorithms` does the same, but imports torch's compiler, which takes 4 s of CPU time.
    """
    import torch

    before = torch.get_deterministic_debug_mode()
    if device.type == "cpu":
        torch.set_deterministic_debug_mode("error")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


@contextmanager
def global_seed(seed: int, *names: str | int) -> Iterator[None]:
    """Seed the global generators of torch, Python and NumPy inside the block, from which torchvision, layers such as
    Dropout and networks of users draw; restore those of the CPU afterwards."""
    import numpy as np
    import torch

    value, of_python, of_numpy = derive(seed, *names), random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(value)
        random.seed(value)
        np.random.seed(value % 2**32)
        try:
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)
