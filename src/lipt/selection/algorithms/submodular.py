"""Algorithms that maximise a submodular function: CRAIG, facility location, graph cut.

Facility location with similarities L - d_ij and any constant L is the k-medoid objective: minimise sum_i min_{j in S}
d_ij. CRAIG (gradient distances) and facility location (feature distances) share its greedy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lipt.selection.arrays import View, view
from lipt.selection.gradients import LastLayer, joint_features, last_layers
from lipt.selection.neighbours import nearest, sparse_medoids
from lipt.selection.norms import lengths, squarable
from lipt.selection.registry import TIE, Group, Picks, Task, best, per_group, register, require, stochastic_size
from lipt.selection.shrinking import shrinking_greedy
from lipt.selection.steps import Pick, features_first, large, leader, product

Greedy = Literal["auto", "lazy", "stochastic", "sparse"]
#: Distances (B, M) of the samples (B,) to all, in memory of its own.
Rows = Callable[[Tensor], Tensor]
#: The same to all samples from one on.
RowsFrom = Callable[[Tensor, int], Tensor]
#: The largest number of samples whose distances are stored (1 GiB of float32). Above it, rows are recomputed.
DENSE_LIMIT = 16384
#: Above this number of samples, `auto` looks at nearest neighbours only.
SPARSE_LIMIT = 50_000
#: Rows that are looked at together.
_BLOCK = 256


@register("craig", models=1, initial=True)
def craig(task: Task, *, greedy: Greedy = "auto", epsilon: float = 0.01, neighbours: int = 64) -> Picks:
    """Medoids of the gradients, weighted by cluster size.

    Source: Mirzasoleiman et al. 2020, Algorithm 1. Time: O(n²(C + d)). Use: as `gradmatch`.

    Args:
        greedy: `lazy` is the exact greedy; `stochastic` looks at (n / k) ln(1 / epsilon) random candidates per pick;
            `sparse` is the exact greedy where only the nearest `neighbours` of a sample can stand for it; `auto` is
            lazy up to 50,000 samples per problem, then sparse.
        epsilon: expected loss of value of the stochastic greedy, relative.

    Samples that are selected already stand for those closest to them, and have no weight.
    """

    def pick(group: Group) -> tuple[Tensor, Tensor]:
        rows = _kept(_gradient_distances(last_layers(task.candidates, group.members_M)), group)
        picked_K = _medoids(rows, group, task, greedy, epsilon, neighbours)
        standing = torch.cat([group.initial_I, picked_K])
        return picked_K, cluster_sizes(rows, standing, len(group.members_M))[len(group.initial_I) :]

    return per_group(task, pick, compares="gradients")


@register("facility_location", models=1, logits=False, initial=True)
def facility_location(
    task: Task,
    *,
    metric: Literal["cosine", "euclidean"] = "cosine",
    greedy: Greedy = "auto",
    epsilon: float = 0.01,
    neighbours: int = 64,
) -> Picks:
    """Medoids of the features.

    Source: Wei, Iyer & Bilmes 2015. Time: O(n²d). Use: coverage of feature space.
    The distance is 1 - cos or Euclidean; the other options are those of `craig`.
    """

    def pick(group: Group) -> tuple[Tensor, None]:
        features_MD = joint_features(task.candidates.outputs, group.members_M)
        rows = _kept(_feature_distances(features_MD, metric), group)
        return _medoids(rows, group, task, greedy, epsilon, neighbours), None

    return per_group(task, pick, compares="features")


@register("graph_cut", models=1, logits=False, initial=True)
def graph_cut(task: Task, *, lam: float = 0.5) -> Picks:
    """Representative samples that are not redundant.

    Source: Iyer et al. 2021. Time: O(knd). Use: as facility location, in linear memory.

    Greedy on sum_{i in V, j in S} s_ij - lam sum_{i, j in S} s_ij, where s_ij = (1 + cos(h_i, h_j)) / 2.
    It factorises, so the similarities are never formed: O(k n d) time, O(n d) memory.

    Args:
        lam: weight of redundancy; up to .5 every pick adds value.
    """
    require(lam >= 0, f"graph_cut: lam must not be negative, not {lam}")

    def pick(group: Group) -> tuple[Tensor, None]:
        unit_MD = _unit(joint_features(task.candidates.outputs, group.members_M))
        x_ME = torch.cat([unit_MD, torch.ones_like(unit_MD[:, :1])], dim=1) / math.sqrt(2)  # s_ij = x_i . x_j
        return cut(x_ME, group.budget, lam, group.initial_I), None

    return per_group(task, pick, compares="features")


def cut(x_ME: Tensor, k: int, lam: float, initial_I: Tensor | None = None) -> Tensor:
    """Positions (k,) of the greedy graph cut with similarities x_i . x_j, 0 or more, where |x_i| <= 1.

    Args:
        initial_I: picks that were made before.
    """
    objective = _Cut(x_ME, lam)
    everyone_M = torch.arange(len(x_ME), device=x_ME.device)
    picked_P = everyone_M[:0] if initial_I is None else initial_I
    return shrinking_greedy(objective, objective.values(objective.alone_M, everyone_M, picked_P, 0), k, picked_P)


class _Cut:
    """Values are what a sample adds to the graph cut."""

    def __init__(self, x_ME: Tensor, lam: float) -> None:
        self._x_ME, self._lam = x_ME, lam
        sum_E = x_ME.sum(0)
        self.alone_M = x_ME @ sum_E - lam * x_ME.square().sum(1)
        # With c the direction of the mean, x_i . x_j >= (c . x_i) (c . x_j) - r_i r_j, where r is what is left of |x|.
        self._along_M = x_ME @ (sum_E / sum_E.norm().clamp_min(1e-30))
        self._across_M = (1 - self._along_M.square()).clamp_min(0).sqrt()
        self._count, self._now_M = 0, self.alone_M
        self._least, self._most = float(self._along_M.min()), float(self._across_M.max())

    def values(self, old_B: Tensor, rows_B: Tensor, picks_P: Tensor, seen: int) -> Tensor:
        del old_B, seen  # the sum of all picks is as quick
        if self._count != len(picks_P):
            self._count = len(picks_P)
            self._now_M = self.alone_M - 2 * self._lam * (self._x_ME @ self._x_ME[picks_P].sum(0))
        return self._now_M[rows_B]

    def focus(self, rows_A: Tensor) -> None:
        x_EA = features_first(self._x_ME[rows_A])
        self._x_EA, self._change_A = view(x_EA), view(torch.empty_like(x_EA[0]))
        self._moves_ME = view(self._x_ME)

    def step(self, values_A: View, pick: Pick) -> None:
        product(self._moves_ME[pick], self._x_EA, self._change_A)
        self._change_A *= 2 * self._lam
        values_A -= self._change_A

    def least_loss(self, pick: int) -> float:
        similarity = self._least * float(self._along_M[pick]) - self._most * float(self._across_M[pick])
        return 2 * self._lam * max(0.0, similarity - 1e-5)  # rounded downwards


def cluster_sizes(rows: Rows, picked_K: Tensor, n: int) -> Tensor:
    """How many of the n samples are closest to each pick (k,); ties go to the earlier pick. Their sum is n."""
    nearest_M = torch.full((n,), torch.inf, device=picked_K.device)
    owner_M = torch.zeros(n, dtype=torch.int64, device=picked_K.device)
    for start in range(0, len(picked_K), _BLOCK):
        distances_BM = rows(picked_K[start : start + _BLOCK])
        local_M = distances_BM.argmin(0)
        distance_M = distances_BM.gather(0, local_M[None])[0]
        closer_M = distance_M < nearest_M
        nearest_M = nearest_M.to(distance_M.dtype).where(~closer_M, distance_M)
        owner_M = owner_M.where(~closer_M, local_M + start)
    return torch.bincount(owner_M, minlength=len(picked_K))


def first_medoid(rows: Rows, n: int, device: torch.device) -> Tensor:
    """The sample (1,) with the smallest sum of distances to all."""
    totals = [rows(block_B).sum(1) for block_B in _blocks(n, device)]
    return torch.cat(totals).argmin(keepdim=True)


def nearest_to(rows: Rows, picked_P: Tensor) -> Tensor:
    """The distance (M,) of every sample to the nearest of the picks, in memory of its own."""
    parts = [rows(part).amin(0) for part in picked_P.split(_BLOCK)]
    return torch.stack(parts).amin(0)


@dataclass
class _Cover:
    """Distances of all samples to their nearest pick, and what one more pick would take off their sum."""

    rows: Rows
    nearest_M: Tensor
    free_M: Tensor

    @classmethod
    def start(cls, rows: Rows, picked_P: Tensor, n: int) -> _Cover:
        free_M = torch.ones(n, dtype=torch.bool, device=picked_P.device)
        free_M[picked_P] = False
        return cls(rows, nearest_to(rows, picked_P), free_M)

    def gains(self, candidates_B: Tensor) -> Tensor:
        """Decrease of the sum of distances (B,) by each candidate."""
        parts = candidates_B.split(_BLOCK)
        return torch.cat([self.rows(part).neg_().add_(self.nearest_M).clamp_min_(0).sum(1) for part in parts])

    def take(self, pick: int) -> None:
        index_1 = torch.tensor([pick], device=self.nearest_M.device)
        self.nearest_M = torch.minimum(self.nearest_M, self.rows(index_1)[0])
        self.free_M[pick] = False


@dataclass(frozen=True)
class _Kept:
    """Rows from memory."""

    distances_MM: Tensor

    def __call__(self, index_B: Tensor) -> Tensor:
        return self.distances_MM[index_B]


def one_by_one(distances_MM: Tensor, k: int, initial_I: Tensor) -> Tensor:
    """As `lazy_greedy`, a candidate at a time: distances in the memory of a CPU are read soonest so."""
    distances = distances_MM.numpy()
    picks = initial_I.tolist() or [int(leader(distances.sum(1) * -1))]
    end = k + len(initial_I)
    nearest_M = distances[picks].min(0)
    saved_M, ones_M = np.empty_like(nearest_M), np.ones_like(nearest_M)

    def gain(candidate: int) -> float:
        np.minimum(nearest_M, distances[candidate], out=saved_M)
        np.subtract(nearest_M, saved_M, out=saved_M)
        return float(np.dot(saved_M, ones_M))  # sooner than the sum

    bounds_M = np.array([gain(candidate) for candidate in range(len(distances))])
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
        np.minimum(nearest_M, distances[picks[-1]], out=nearest_M)
    return torch.tensor(picks[len(initial_I) :])


def lazy_greedy(rows: Rows, k: int, n: int, initial_I: Tensor) -> Tensor:
    """Positions (k,) of the exact greedy: gains only shrink (submodularity), so old gains bound the new ones."""
    device = initial_I.device
    if isinstance(rows, _Kept) and device.type == "cpu":
        return one_by_one(rows.distances_MM, k, initial_I)
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
    """The candidate of largest gain, lowest index first; refreshes the bounds that it had to look at."""
    stale_M = bounds_M.clone()  # -1 for picks and for those evaluated in this call
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


def _medoids(rows: Rows, group: Group, task: Task, greedy: Greedy, epsilon: float, neighbours: int) -> Tensor:
    require(neighbours >= 1, f"neighbours must be at least 1, not {neighbours}")
    n, k, initial_I = len(group.members_M), group.budget, group.initial_I
    size = stochastic_size(n, k, epsilon)
    if greedy == "stochastic":
        return stochastic_greedy(rows, k, n, size, task.generator, initial_I)
    if greedy == "sparse" or (greedy == "auto" and n > SPARSE_LIMIT):
        return sparse_medoids(*nearest(rows, n, min(neighbours, n), initial_I.device), k, TIE, initial_I)
    return lazy_greedy(rows, k, n, initial_I)


def _gradient_distances(layers: list[LastLayer]) -> RowsFrom:
    """Rows of |g_b - g_i|, from two small matrix products per model."""
    norms_M = sum((layer.square_norms_N() for layer in layers), torch.zeros_like(layers[0].delta_NC[:, 0]))

    def rows(index_B: Tensor, start: int) -> Tensor:
        first, *others = [layer.gram_BN(index_B, start) for layer in layers]
        return _distances(sum(others, first), norms_M, index_B, start)

    return rows


def _feature_distances(features_MD: Tensor, metric: str) -> RowsFrom:
    """Rows of 1 - cos or of the Euclidean distance."""
    if metric == "cosine":
        unit_MD = _unit(features_MD)
        return lambda index_B, start: (unit_MD[index_B] @ unit_MD[start:].T).neg_().add_(1).clamp_min_(0)
    x_MD = squarable(features_MD)
    x_MD = x_MD - x_MD.mean(0)
    norms_M = x_MD.square().sum(1)
    return lambda index_B, start: _distances(x_MD[index_B] @ x_MD[start:].T, norms_M, index_B, start)


def _distances(dots_BM: Tensor, norms_M: Tensor, index_B: Tensor, start: int) -> Tensor:
    """|x_b - x_i| from inner products; in place. Exactly 0 for a sample and itself."""
    dots_BM.mul_(-2).add_(norms_M[start:]).add_(norms_M[index_B, None]).clamp_min_(0).sqrt_()
    return dots_BM.scatter_(1, (index_B - start)[:, None], 0.0)


def _kept(rows: RowsFrom, group: Group) -> Rows:
    """All rows, from memory where they fit."""
    n, device = len(group.members_M), group.members_M.device
    if n > DENSE_LIMIT:
        return lambda index_B: rows(index_B, 0)
    kept_MM = large(rows(torch.zeros(1, dtype=torch.int64, device=device), 0), n, n)
    for start, block_B in zip(range(0, n, _BLOCK), _blocks(n, device), strict=True):
        end = start + len(block_B)
        kept_MM[start:end, start:] = half_BM = rows(block_B, start)
        kept_MM[end:, start:end] = half_BM[:, len(block_B) :].T  # the other half is the same
    return _Kept(kept_MM)


def _blocks(n: int, device: torch.device) -> tuple[Tensor, ...]:
    return torch.split(torch.arange(n, device=device), _BLOCK)


def _unit(features_MD: Tensor) -> Tensor:
    """Rows of length 1; zero rows stay zero."""
    return features_MD / lengths(features_MD).clamp_min(torch.finfo(features_MD.dtype).tiny)[:, None]
