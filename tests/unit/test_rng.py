"""Random numbers for each row, against SplitMix64 in Python's integers."""

from __future__ import annotations

import random

import numpy as np
import torch

from lipt.rng import derive, global_seed, uniform

_ALL = (1 << 64) - 1


def split_mix_64(state: int) -> int:
    """Sebastiano Vigna's splitmix64.c: the output for a state that was already increased."""
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _ALL
    return z ^ (z >> 31)


def test_the_reference_gives_the_published_numbers() -> None:
    found = [split_mix_64((1234567 + (1 + i) * 0x9E3779B97F4A7C15) & _ALL) for i in range(3)]
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_uniform_equals_the_reference() -> None:
    rows = torch.tensor([0, 1, 2, 77, 10**9, 0])
    found = uniform(rows, 5, 3, "crop", 1)
    expected = [
        [
            (split_mix_64((derive(3, "crop", 1) + (row * 5 + column + 1) * 0x9E3779B97F4A7C15) & _ALL) >> 40) / 2**24
            for column in range(5)
        ]
        for row in rows.tolist()
    ]
    assert found.tolist() == expected
    assert torch.equal(found[0], found[5])


def test_uniform_is_uniform_and_independent() -> None:
    found = torch.cat([uniform(torch.arange(50_000), 4, 0), uniform(torch.arange(50_000), 2, 1)], 1).double()
    assert 0 <= found.min() < 1e-4
    assert 1 - 1e-4 < found.max() < 1
    for column in found.T:
        counts = torch.histc(column, 16, 0, 1)
        assert (counts - 3125).abs().max() < 5 * 3125**0.5
    correlation = torch.corrcoef(found.T) - torch.eye(6, dtype=torch.float64)
    assert correlation.abs().max() < 5 / 50_000**0.5
    following = torch.corrcoef(torch.stack([found[:-1, 0], found[1:, 0]]))[0, 1]
    assert abs(following) < 5 / 50_000**0.5


def test_global_generators_repeat_their_draws_and_go_on_afterwards() -> None:
    """Also those of Python and NumPy: a user's network may skip layers by them."""

    def draws() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    def after(seed: int) -> list[float]:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        with global_seed(3, "network", 0):
            inside.append(draws())
        return draws()

    inside: list[list[float]] = []
    outside = [after(1), after(1), after(2)]
    assert inside[0] == inside[1] == inside[2]
    assert outside[0] == outside[1]
    assert all(one != other for one, other in zip(outside[0], outside[2], strict=True))
