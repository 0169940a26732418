"""Seeds: one user seed, and independent streams derived from it by name, so that resuming needs no saved generator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream called `names`, for example `derive(seed, "order", epoch)`."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator for that stream; draws are made on the CPU so that they do not depend on the device."""
    return torch.Generator().manual_seed(derive(seed, *names))


def permutation(n: int, seed: int, *names: str | int) -> Tensor:
    """A random order of 0..n-1, int64 (n,)."""
    return torch.randperm(n, generator=generator(seed, *names))


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Inside the block torch's CPU kernels give the same bits each time. Those of a GPU do not: some operations have no
    such kernel there.

    `torch.use_deterministic_algorithms` does the same, and imports the compiler for it: 4 seconds of CPU.
    """
    before = torch.get_deterministic_debug_mode()
    if device.type == "cpu":
        torch.set_deterministic_debug_mode("error")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


@contextmanager
def global_seed(seed: int, *names: str | int) -> Iterator[None]:
    """Seed torch's global CPU generator inside the block (torchvision draws from it) and restore it afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, *names))
        yield
