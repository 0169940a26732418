"""Random numbers: independent streams, each derived by name from the user's seed. So resuming needs no saved state."""

from __future__ import annotations

import hashlib
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
    """Seed torch's global CPU generator, from which torchvision draws, inside the block; restore it afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, *names))
        yield
