"""Equal samples are picked in their order; different ones are never exchanged."""

from __future__ import annotations

import pytest
import torch
from selection_samples import one_class, permuted
from torch import Tensor

from lipt.selection import Candidates
from lipt.selection.ties import lowest_first


def naive(rows_N: list[list[float]], picks: list[int]) -> list[int]:
    """Each pick replaced by the first equal sample that is not taken yet."""
    taken: list[int] = []
    for pick in picks:
        taken.append(next(i for i, row in enumerate(rows_N) if row == rows_N[pick] and i not in taken))
    return taken


def binary(n: int, d: int, dtype: torch.dtype) -> Tensor:
    """Distinct rows (n, d) of zeros and ones."""
    g = torch.Generator().manual_seed(0)
    return (torch.rand(2 * n, d, generator=g) < 0.3).unique(dim=0)[torch.randperm(n, generator=g)].to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_short_numbers_are_told_apart(dtype: torch.dtype) -> None:
    """As float64, whose last bits are 0, most of these rows had the hash of another one."""
    features_ND = binary(2000, 48, dtype)
    picked_K = torch.randperm(2000, generator=torch.Generator().manual_seed(1))[:300]
    candidates = Candidates.of([0] * 2000, features=features_ND)
    found_K = lowest_first(candidates, torch.arange(2000), picked_K, gradients=False)
    assert found_K.tolist() == naive(features_ND.tolist(), picked_K.tolist()) == picked_K.tolist()


@pytest.mark.parametrize("gradients", [True, False])
def test_equal_samples_come_in_their_order(gradients: bool) -> None:
    g = torch.Generator().manual_seed(0)
    candidates = permuted(one_class(10), torch.randint(10, (60,), generator=g))
    picked_K = torch.randperm(60, generator=g)[:25]
    found_K = lowest_first(candidates, torch.arange(60), picked_K, gradients=gradients)
    assert found_K.tolist() == naive(candidates.outputs[0].features_ND.tolist(), picked_K.tolist())
    assert found_K.tolist() != picked_K.tolist()


@pytest.mark.parametrize("gradients", [True, False])
def test_samples_of_one_hash_are_compared(gradients: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = one_class(30)
    monkeypatch.setattr("lipt.selection.ties._prints", lambda parts: torch.zeros(len(parts[0]), dtype=torch.int64))
    picked_K = torch.randperm(30, generator=torch.Generator().manual_seed(0))[:12]
    found_K = lowest_first(candidates, torch.arange(30), picked_K, gradients=gradients)
    assert found_K.tolist() == picked_K.tolist()
