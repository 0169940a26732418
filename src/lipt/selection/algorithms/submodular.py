"""Algorithms that maximise a submodular function: CRAIG, facility location, graph cut.

Facility location with similarities L - d_ij and any constant L is the k-medoid objective: minimise sum_i min_{j in S}
d_ij. CRAIG (gradient distances) and facility location (feature distances) share its greedy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lipt.selection.arrays import View, view
from lipt.selection.inputs.gradients import LastLayer, joint_features, last_layers, squarable_layers
from lipt.selection.needs import Size
from lipt.selection.numerics.closeness import blurred, squares_between
from lipt.selection.numerics.maxima import TIE
from lipt.selection.numerics.medoids import BLOCK, Kept, Rows, blocks, cluster_sizes, lazy_greedy, stochastic_greedy
from lipt.selection.numerics.neighbours import BLOCK_BYTES, nearest, sparse_medoids
from lipt.selection.numerics.norms import lengths, squarable
from lipt.selection.numerics.shrinking import shrinking_greedy
from lipt.selection.numerics.steps import Pick, features_first, large, product
from lipt.selection.registry import Group, Picks, Task, per_group, register, require, stochastic_size

Greedy = Literal["auto", "lazy", "stochastic", "sparse"]
#: Maps samples (B,) and a start to the distances (B, M) to all samples from `start` on.
RowsFrom = Callable[[Tensor, int], Tensor]
#: Maps samples (R,) and (C,) to their squared distances (R, C), from differences.
Squares = Callable[[Tensor, Tensor], Tensor]
#: The largest number of samples whose distances are stored (1 GiB in float32, 2 in float64). Above it, rows are
#: recomputed.
DENSE_LIMIT = 16384
#: Above this number of samples, `auto` uses nearest neighbours only.
SPARSE_LIMIT = 50_000
#: Samples whose distances to close ones are computed at once: few, so that they take little memory.
CLOSE = 32
#: Cosines are off by a few rounding errors: they serve as distances only if 1 - cos of all pairs exceeds this
#: many of them.
FAR = 1024
#: Unit vectors that differ by less than this many rounding errors are equal.
ALIKE = 32


def medoid_bytes(size: Size, *, greedy: Greedy = "auto", neighbours: int = 64, **_: Any) -> int:
    """Bytes that medoids take besides the outputs and a copy of them, in float32.

    Freed blocks that the allocator keeps come on top: glibc was seen to keep up to 120 MB.
    """
    n = size.n
    if greedy == "sparse" or (greedy == "auto" and n > SPARSE_LIMIT):
        # The graph: int64 positions, distances in float32 and in float64, and two arrays of int64 while it is sorted.
        return 36 * n * min(neighbours, n) + 2 * BLOCK_BYTES
    # A few blocks of distances; all of them if they fit.
    return 4 * n * ((n if n <= DENSE_LIMIT else 0) + 3 * BLOCK)


@register("craig", models=1, initial=True, memory=medoid_bytes)
def craig(task: Task, *, greedy: Greedy = "auto", epsilon: float = 0.01, neighbours: int = 64) -> Picks:
    """Medoids of the gradients, weighted by cluster size.

    Source: Mirzasoleiman et al. 2020, Algorithm 1. Time: O(n²(C + d)). Use: as `gradmatch`.

    Args:
        greedy: `lazy` is the exact greedy. `stochastic` evaluates (n / k) ln(1 / epsilon) random candidates per pick.
            `sparse` is the exact greedy where only its nearest `neighbours` can represent a sample. `auto` is lazy up
            to 50,000 samples per problem, then sparse.
        epsilon: of the stochastic greedy. Its value is expected to reach the share 1 - 1/e - epsilon of the largest
            one; that of the exact greedy reaches 1 - 1/e.
        neighbours: of the sparse greedy.

    The distance is that of whole last-layer gradients. The authors' code for networks compares p - onehot(y) alone;
    features of zeros give that. Initial samples represent the samples closest to them, and get no weight.
    """

    def pick(group: Group) -> tuple[Tensor, Tensor]:
        layers, _ = squarable_layers(last_layers(task.candidates, group.members_M))
        rows = _kept(_gradient_distances(layers), group)
        picked_K = _medoids(rows, group, task, greedy, epsilon, neighbours)
        standing = torch.cat([group.initial_I, picked_K])
        return picked_K, cluster_sizes(rows, standing, len(group.members_M))[len(group.initial_I) :]

    return per_group(task, pick, compares="gradients")


@register("facility_location", models=1, logits=False, initial=True, memory=medoid_bytes)
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

    Args:
        metric: the distance: `cosine` is 1 - cos.
        greedy: as for `craig`.
        epsilon: of the stochastic greedy. Its value is expected to reach the share 1 - 1/e - epsilon of the largest
            one; that of the exact greedy reaches 1 - 1/e.
        neighbours: of the sparse greedy.
    """

    def pick(group: Group) -> tuple[Tensor, None]:
        features_MD = joint_features(task.candidates.outputs, group.members_M)
        rows = _cosines(features_MD) if metric == "cosine" else None
        rows = rows or _kept(_feature_distances(features_MD, metric), group)
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
    require(lam >= 0, f"graph_cut: lam must not be negative, not {lam}", "pass 0 or more")

    def pick(group: Group) -> tuple[Tensor, None]:
        features_MD = joint_features(task.candidates.outputs, group.members_M)
        x_ME = features_MD.new_ones(len(features_MD), features_MD.shape[1] + 1)
        _unit(features_MD, out_MD=x_ME[:, :-1])
        x_ME /= math.sqrt(2)  # s_ij = x_i . x_j
        return cut(x_ME, group.budget, lam, group.initial_I), None

    return per_group(task, pick, compares="features")


def cut(x_ME: Tensor, k: int, lam: float, initial_I: Tensor | None = None) -> Tensor:
    """Positions (k,) of the greedy graph cut with similarities x_i . x_j, 0 or more, where |x_i| <= 1.

    Args:
        initial_I: earlier picks.
    """
    objective = _Cut(x_ME, lam)
    everyone_M = torch.arange(len(x_ME), device=x_ME.device)
    picked_P = everyone_M[:0] if initial_I is None else initial_I
    return shrinking_greedy(objective, objective.values(objective.alone_M, everyone_M, picked_P, 0), k, picked_P)


class _Cut:
    """The value of a sample is its gain in the graph cut."""

    def __init__(self, x_ME: Tensor, lam: float) -> None:
        self._x_ME, self._lam = x_ME, lam
        sum_E = x_ME.sum(0)
        lengths_M: Tensor = torch.linalg.vector_norm(x_ME, dim=1)
        self.alone_M = x_ME @ sum_E - lam * lengths_M.square()
        # With c the direction of the mean and r_i the part of x_i orthogonal to it,
        # x_i . x_j >= (c . x_i) (c . x_j) - |r_i| |r_j|.
        self._along_M = x_ME @ (sum_E / sum_E.norm().clamp_min(1e-30))
        self._across_M = (1 - self._along_M.square()).clamp_min(0).sqrt()
        self._count, self._now_M = 0, self.alone_M
        self._least, self._most = float(self._along_M.min()), float(self._across_M.max())

    def values(self, old_B: Tensor, rows_B: Tensor, picks_P: Tensor, seen: int) -> Tensor:
        del old_B, seen  # summing all picks is as fast
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


def _medoids(rows: Rows, group: Group, task: Task, greedy: Greedy, epsilon: float, neighbours: int) -> Tensor:
    require(neighbours >= 1, f"neighbours must be at least 1, not {neighbours}", "pass 1 or more")
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

    def squares(rows_R: Tensor, columns_C: Tensor) -> Tensor:
        first, *others = [layer.squares_RC(rows_R, columns_C) for layer in layers]
        return sum(others, first)

    def rows(index_B: Tensor, start: int) -> Tensor:
        first, *others = [layer.gram_BN(index_B, start) for layer in layers]
        return _squares(sum(others, first), norms_M, index_B, start, squares).sqrt_()

    return rows


def _cosines(features_MD: Tensor) -> Rows | None:
    """All cosines as they are, which is the fastest way; None where they do not fit, or lose the digits of 1 - cos.

    A cosine near 1 has the rounding error of 1, however small 1 - cos is.
    """
    if not features_MD.is_cpu or len(features_MD) > DENSE_LIMIT:
        return None
    unit = _unit(features_MD).numpy()
    too_close = 1 - FAR * torch.finfo(features_MD.dtype).eps
    for rows in (min(CLOSE, len(unit)), len(unit)):  # where samples are close, a few rows usually show it
        cosines = np.matmul(unit[:rows], unit.T)  # of all of them, numpy computes half
        own = cosines.diagonal().copy()
        np.fill_diagonal(cosines, -1)
        if cosines.max() > too_close:
            return None
        np.fill_diagonal(cosines, own)
    return Kept(torch.from_numpy(cosines), cosines=True)


def _feature_distances(features_MD: Tensor, metric: str) -> RowsFrom:
    """Rows of 1 - cos or of the Euclidean distance."""
    cosine = metric == "cosine"
    x_MD = _unit(features_MD) if cosine else squarable(features_MD)
    zero_M = (x_MD == 0).all(1) if cosine else torch.zeros_like(x_MD[:, 0], dtype=torch.bool)
    any_zero = bool(zero_M.any())
    x_MD = x_MD - x_MD.mean(0)
    norms_M = x_MD.square().sum(1)
    # Features with the same direction but another length differ by rounding errors of their unit vectors.
    same = (ALIKE * torch.finfo(x_MD.dtype).eps) ** 2 if cosine else 0.0

    def squares(rows_R: Tensor, columns_C: Tensor) -> Tensor:
        apart_RC = squares_between(x_MD[rows_R], x_MD[columns_C])
        return torch.where(apart_RC > same, apart_RC, 0.0)

    def rows(index_B: Tensor, start: int) -> Tensor:
        squares_BM = _squares(x_MD[index_B] @ x_MD[start:].T, norms_M, index_B, start, squares)
        if not cosine:
            return squares_BM.sqrt_()
        squares_BM.div_(2)  # 1 - cos = |u - v|^2 / 2, which keeps its digits where it is small
        if any_zero:
            squares_BM.masked_fill_(zero_M[index_B, None] | zero_M[start:], 1.0)
        return squares_BM

    return rows


def _squares(dots_BM: Tensor, norms_M: Tensor, index_B: Tensor, start: int, squares: Squares) -> Tensor:
    """|x_b - x_i|^2 from inner products, in place, and from differences where the samples are close; exactly 0 between
    a sample and itself."""
    own_B1, norms_B = (index_B - start)[:, None], norms_M[index_B]
    dots_BM.mul_(-2).add_(norms_M[start:]).add_(norms_B[:, None]).clamp_min_(0).scatter_(1, own_B1, torch.inf)
    # The norms of close samples are nearly equal, so 3 times one of them exceeds the sum of both.
    close_R = (dots_BM.amin(1) < blurred(3 * norms_B)).nonzero().flatten()
    for rows_R in close_R.split(CLOSE) if len(close_R) else ():
        near_RM = dots_BM[rows_R] < blurred(norms_M[start:] + norms_B[rows_R, None])
        columns_C = near_RM.any(0).nonzero().flatten()
        exact_RC, part = squares(index_B[rows_R], columns_C + start), (rows_R[:, None], columns_C)
        dots_BM[part] = exact_RC.where(near_RM[:, columns_C], dots_BM[part])
    return dots_BM.scatter_(1, own_B1, 0.0)


def _kept(rows: RowsFrom, group: Group) -> Rows:
    """The rows, kept in memory if there are at most `DENSE_LIMIT`."""
    n, device = len(group.members_M), group.members_M.device
    if n > DENSE_LIMIT:
        return lambda index_B: rows(index_B, 0)
    kept_MM = large(rows(torch.zeros(1, dtype=torch.int64, device=device), 0), n, n)
    for block_B in blocks(n, device):
        start, end = int(block_B[0]), int(block_B[-1]) + 1
        kept_MM[start:end, start:] = half_BM = rows(block_B, start)
        kept_MM[end:, start:end] = half_BM[:, len(block_B) :].T  # the matrix is symmetric
    return Kept(kept_MM)


def _unit(features_MD: Tensor, out_MD: Tensor | None = None) -> Tensor:
    """Rows of length 1; zero rows stay zero."""
    lengths_M1 = lengths(features_MD).clamp_min(torch.finfo(features_MD.dtype).tiny)[:, None]
    unit_MD: Tensor = torch.div(features_MD, lengths_M1, out=out_MD)
    return unit_MD
