"""Greedy medoids: picks that minimise the sum of the distances of all samples to their nearest pick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lipt.selection.numerics.maxima import TIE, best
from lipt.selection.numerics.steps import leader

#: Maps samples (B,) to their distances (B, M) to all samples, in newly allocated memory.
Rows = Callable[[Tensor], Tensor]
#: Rows per block.
BLOCK = 256


def cluster_sizes(rows: Rows, picked_K: Tensor, n: int) -> Tensor:
    """The number of samples closest to each pick (k,). Ties go to the earlier pick; the sum is n."""
    nearest_M = torch.full((n,), torch.inf, device=picked_K.device)
    owner_M = torch.zeros(n, dtype=torch.int64, device=picked_K.device)
    for start in range(0, len(picked_K), BLOCK):
        distances_BM = rows(picked_K[start : start + BLOCK])
        local_M = distances_BM.argmin(0)
        distance_M = distances_BM.gather(0, local_M[None])[0]
        closer_M = distance_M < nearest_M
        nearest_M = nearest_M.to(distance_M.dtype).where(~closer_M, distance_M)
        owner_M = owner_M.where(~closer_M, local_M + start)
    return torch.bincount(owner_M, minlength=len(picked_K))


def first_medoid(rows: Rows, n: int, device: torch.device) -> Tensor:
    """The sample (1,) with the smallest sum of distances to all samples; the lowest of equal ones."""
    totals_M = torch.empty(n, dtype=torch.float64, device=device)
    for block_B in blocks(n, device):
        totals_M[block_B] = rows(block_B).sum(1).double()
    return best(-totals_M)


def nearest_to(rows: Rows, picked_P: Tensor) -> Tensor:
    """The distance (M,) of every sample to its nearest pick, in newly allocated memory."""
    parts = [rows(part).amin(0) for part in picked_P.split(BLOCK)]
    return torch.stack(parts).amin(0)


@dataclass
class _Cover:
    """Distances of all samples to their nearest pick, and by how much another pick reduces their sum."""

    rows: Rows
    nearest_M: Tensor
    free_M: Tensor

    @classmethod
    def start(cls, rows: Rows, picked_P: Tensor, n: int) -> _Cover:
        free_M = torch.ones(n, dtype=torch.bool, device=picked_P.device)
        free_M[picked_P] = False
        return cls(rows, nearest_to(rows, picked_P), free_M)

    def gains(self, candidates_B: Tensor) -> Tensor:
        """The decrease (B,) of the sum of distances by each candidate."""
        gains_B = self.nearest_M.new_empty(len(candidates_B))
        # If something small were kept from each block, the allocator would not use the block's memory again.
        for part_B, gain_B in zip(candidates_B.split(BLOCK), gains_B.split(BLOCK), strict=True):
            gain_B.copy_(self.rows(part_B).neg_().add_(self.nearest_M).clamp_min_(0).sum(1))
        return gains_B

    def take(self, pick: int) -> None:
        index_1 = torch.tensor([pick], device=self.nearest_M.device)
        self.nearest_M = torch.minimum(self.nearest_M, self.rows(index_1)[0])
        self.free_M[pick] = False


@dataclass(frozen=True)
class Kept:
    """`Rows` from a matrix in memory.

    Args:
        matrix_MM: the distances, or cosines: then the distance is 1 - cos.
    """

    matrix_MM: Tensor
    cosines: bool = False

    def __call__(self, index_B: Tensor) -> Tensor:
        rows_BM = self.matrix_MM[index_B]
        return rows_BM.neg_().add_(1).clamp_min_(0) if self.cosines else rows_BM


def one_by_one(kept: Kept, k: int, initial_I: Tensor) -> Tensor:
    """As `lazy_greedy`, one candidate at a time: the fastest way if the matrix is in the memory of a CPU.

    A constant more or less in all distances changes no gain. So cosines serve as they are: the nearest pick has the
    largest one.
    """
    matrix = kept.matrix_MM.numpy()
    nearer, sign = (np.maximum, 1) if kept.cosines else (np.minimum, -1)
    picks = initial_I.tolist() or [_first(kept)]
    end = k + len(initial_I)
    nearest_M = nearer.reduce(matrix[picks])
    saved_M, signs_M = np.empty_like(nearest_M), np.full_like(nearest_M, sign)

    def gain(candidate: int) -> float:
        nearer(nearest_M, matrix[candidate], out=saved_M)
        np.subtract(saved_M, nearest_M, out=saved_M)
        return float(np.dot(saved_M, signs_M))  # faster than the sum

    bounds_M = np.empty(len(matrix))
    for start in range(0, len(matrix), 8):  # few enough for the cache
        saved_BM = nearer(nearest_M, matrix[start : start + 8])
        bounds_M[start : start + 8] = np.dot(np.subtract(saved_BM, nearest_M, out=saved_BM), signs_M)
    bounds_M[picks] = -1
    while len(picks) < end:
        best, fresh = 0.0, dict[int, float]()
        while bounds_M[candidate := int(bounds_M.argmax())] > best * (1 - TIE):
            fresh[candidate] = value = gain(candidate)
            best, bounds_M[candidate] = max(best, value), -1
        for candidate, value in fresh.items():
            bounds_M[candidate] = value
        if best > 0:
            picks.append(min(candidate for candidate, value in fresh.items() if value >= best * (1 - TIE)))
        else:  # nothing left to gain: any free one
            picks.append(int((bounds_M >= 0).argmax()))
        bounds_M[picks[-1]] = -1
        nearer(nearest_M, matrix[picks[-1]], out=nearest_M)
    return torch.tensor(picks[len(initial_I) :])


def _first(kept: Kept) -> int:
    """The sample with the smallest sum of distances; the lowest of those that are equal up to rounding."""
    matrix = kept.matrix_MM.numpy()
    totals_M = matrix.sum(1)
    if not kept.cosines:
        return int(leader(-totals_M))
    # Where all cosines are nearly 1, their sums differ by less than a share of them that would count as equal.
    rounding = np.full_like(totals_M, 8 * np.finfo(totals_M.dtype).eps * len(matrix) / TIE)
    return int(leader(totals_M - len(matrix), rounding))


def lazy_greedy(rows: Rows, k: int, n: int, initial_I: Tensor) -> Tensor:
    """Positions (k,) of the exact greedy: gains only shrink (submodularity), so old gains bound the new ones."""
    device = initial_I.device
    if isinstance(rows, Kept) and device.type == "cpu":
        return one_by_one(rows, k, initial_I)
    start_P = initial_I if len(initial_I) else first_medoid(rows, n, device)
    cover = _Cover.start(rows, start_P, n)
    bounds_M = cover.gains(torch.arange(n, device=device))
    bounds_M[start_P] = -1
    picked = start_P.tolist()
    while len(picked) < k + len(initial_I):
        picked.append(_best_by_bounds(cover, bounds_M))
        cover.take(picked[-1])
        bounds_M[picked[-1]] = -1
    return torch.tensor(picked[len(initial_I) :], device=device)


def _best_by_bounds(cover: _Cover, bounds_M: Tensor) -> int:
    """The candidate of largest gain; ties go to the lowest index. Updates the bounds that it evaluates."""
    stale_M = bounds_M.clone()  # -1 for picks and for candidates evaluated in this call
    gains_M = torch.full_like(bounds_M, -1)
    most, width = 0.0, 8
    while float(stale_M.max()) > most * (1 - TIE):
        batch_B = stale_M.topk(min(width, len(stale_M))).indices
        batch_B = batch_B[stale_M[batch_B] >= 0]
        bounds_M[batch_B] = gains_M[batch_B] = cover.gains(batch_B)
        stale_M[batch_B] = -1
        most, width = float(gains_M.max()), 2 * width
    equals_M = gains_M >= most * (1 - TIE) if most > 0 else cover.free_M  # nothing left to gain: any free one
    return int(equals_M.int().argmax())


def stochastic_greedy(rows: Rows, k: int, n: int, size: int, generator: torch.Generator, initial_I: Tensor) -> Tensor:
    """Positions (k,): each pick is the best of `size` random samples (Mirzasoleiman et al. 2015)."""
    device = initial_I.device
    start_P = initial_I if len(initial_I) else first_medoid(rows, n, device)
    cover = _Cover.start(rows, start_P, n)
    picked = start_P.tolist()
    while len(picked) < k + len(initial_I):
        free_F = cover.free_M.nonzero().flatten()
        sample_B = free_F[torch.randperm(len(free_F), generator=generator)[:size].to(device)].sort().values
        picked.append(int(sample_B[best(cover.gains(sample_B))]))
        cover.take(picked[-1])
    return torch.tensor(picked[len(initial_I) :], device=device)


def blocks(n: int, device: torch.device) -> tuple[Tensor, ...]:
    """Positions of all samples in blocks."""
    return torch.split(torch.arange(n, device=device), BLOCK)
