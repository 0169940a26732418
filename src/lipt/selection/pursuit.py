"""Orthogonal matching pursuit on factored gradients: one group at a time on a CPU, many in parallel on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lipt.selection.arrays import View, view
from lipt.selection.gradients import LastLayer
from lipt.selection.nnls import GrowingNonNegativeLeastSquares, NonNegativeLeastSquares
from lipt.selection.norms import sum_of
from lipt.selection.steps import features_first, large, product

#: Steps between two exact computations of the residual, which make float32 pick in the order of float64.
REFRESH = 32
#: Changes of the active set per step on a GPU. The number is fixed because a device-to-host check is expensive.
ROUNDS = 3
#: Memory of all groups that are solved in parallel.
GPU_BYTES = 8 << 30


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Find k gradients whose weighted sum approximates `goal_scale` times the sum of all."""

    layers: Sequence[LastLayer]
    """Float64, one per model: together one long gradient."""
    k: int
    goal_scale: float = 1.0

    def __len__(self) -> int:
        return len(self.layers[0].delta_NC)


def side_by_side(sizes: Sequence[tuple[int, int]], width: int, device: torch.device) -> Iterator[list[int]]:
    """Batches of indices of problems of similar size: as many as fit on a GPU, or one on a CPU.

    Args:
        sizes: candidates and picks of each problem.
        width: C + E, summed over the models.
    """
    limit = 0 if device.type == "cpu" else GPU_BYTES
    batch: list[int] = []
    for index in sorted(range(len(sizes)), key=sizes.__getitem__):
        members, k = sizes[index]
        needed = 4 * members * (width + k) + 8 * k * (width + k)
        if batch and (len(batch) + 1) * needed > limit:
            yield batch
            batch = []
        batch.append(index)
    yield batch


def matching_pursuit(
    problems: Sequence[Problem], *, lam: float, dtype: torch.dtype, rounds: int | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Orthogonal matching pursuit with non-negative weights, towards b = goal_scale * sum of all gradients.

    Each step picks the candidate most correlated with the residual, argmax <g_i, b - sum_S w_s g_s>, then solves for
    all weights: minimise |sum_S w_s g_s - b|^2 + lam |w|^2 over w >= 0. O(k M (C + E) + M k^2 / 2) time, O(M k) memory
    per group of M. Most products run in `dtype`. The goal, the weights, the products of the picks with each other and,
    every `REFRESH` steps, the residual are computed from the float64 gradients. On a GPU the host waits for none of the
    k steps.

    Args:
        rounds: of `GrowingNonNegativeLeastSquares.add`; if a problem needs more, all are solved again with twice as
            many. None = `ROUNDS` on a GPU; on a CPU problems are solved one by one.

    Returns:
        For each problem the positions (k,) in order of pick, and their weights (k,), float64.
    """
    if rounds is None and problems[0].layers[0].delta_NC.device.type == "cpu":
        return [_alone(problem, lam, dtype) for problem in problems]
    picked_GK, weights_GK = _side_by_side(problems, lam, dtype, rounds or ROUNDS)
    return [
        (picked_K[: problem.k], weights_K[: problem.k])
        for problem, picked_K, weights_K in zip(problems, picked_GK, weights_GK, strict=True)
    ]


def _alone(problem: Problem, lam: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Picks (k,) and weights (k,) of one problem; steps run in numpy, which has less overhead per operation."""
    layers, k = problem.layers, problem.k
    goals = [layer.delta_NC.T @ layer.features_NE * problem.goal_scale for layer in layers]
    b = sum_of([layer.dot_N(goal) for layer, goal in zip(layers, goals, strict=True)])
    streams = [
        _Stream(features_first(each.delta_NC.to(dtype)), features_first(each.features_NE.to(dtype))) for each in layers
    ]
    like = b.to(dtype)
    b_M, base_M, correlations_M, along_M = view(b), view(like), view(like.clone()), view(torch.empty_like(like))
    rows_KM = view(large(like, k, len(b)))  # <g_s, g_i> for the picks s
    chosen = [_Chosen.of(layer, k) for layer in layers]
    picked_K, solver = np.zeros(k, dtype=np.int64), NonNegativeLeastSquares(k, lam)
    # Correlations at the last exact weights; current ones follow from the Gram rows and the change of the weights.
    base_w_K, barred_M = np.zeros(k), np.zeros_like(base_M)  # -inf for picks
    for t in range(k):
        picked_K[t] = pick = int(correlations_M.argmax())
        barred_M[pick] = -np.inf
        rows_KM[t] = 0
        for stream in streams:
            stream.add_gram_row(pick, rows_KM[t], along_M, correlations_M)
        w_T = solver.add(np.sum([each.add(t, pick) for each in chosen], axis=0), float(b_M[pick]))
        if (t + 1) % REFRESH == 0:
            base_w_K[: t + 1] = w_T = solver.refine()
            picks_T, w_T1 = torch.from_numpy(picked_K[: t + 1]), torch.from_numpy(w_T)[:, None]
            sums = [(each.delta_NC[picks_T] * w_T1).T @ each.features_NE[picks_T] for each in layers]
            rests = [(goal - each).to(dtype) for goal, each in zip(goals, sums, strict=True)]
            base_M = view(sum_of([each.dot_M(rest) for each, rest in zip(streams, rests, strict=True)]))
        product((base_w_K[: t + 1] - w_T).astype(base_M.dtype), rows_KM[: t + 1], correlations_M)
        correlations_M += base_M
        correlations_M += barred_M
    return torch.from_numpy(picked_K), torch.from_numpy(solver.refine())


@dataclass(frozen=True)
class _Chosen:
    """The gradients of the picks, in float64: a digit less, and picks that depend on each other get huge weights."""

    delta_NC: View
    features_NE: View
    delta_KC: View
    features_KE: View

    @classmethod
    def of(cls, layer: LastLayer, k: int) -> _Chosen:
        delta_NC, features_NE = view(layer.delta_NC), view(layer.features_NE)
        return cls(delta_NC, features_NE, *(np.empty((k, each.shape[1])) for each in (delta_NC, features_NE)))

    def add(self, t: int, pick: int) -> View:
        """Add the pick of step t; its products <g_t, g_s> with the picks s up to t."""
        self.delta_KC[t], self.features_KE[t] = self.delta_NC[pick], self.features_NE[pick]
        product_T: View = self.delta_KC[: t + 1] @ self.delta_KC[t]
        product_T *= self.features_KE[: t + 1] @ self.features_KE[t]
        return product_T


@dataclass(frozen=True)
class _Stream:
    """`LastLayer` with the samples last, so that products read memory in order."""

    delta_CM: Tensor
    features_EM: Tensor

    def add_gram_row(self, pick: int, sum_M: View, delta_M: View, features_M: View) -> None:
        """sum += <g_s, g_i> for the sample s = `pick`; `delta_M` and `features_M` are working memory."""
        for x_XM, out_M in ((view(self.delta_CM), delta_M), (view(self.features_EM), features_M)):
            product(x_XM[:, pick].copy(), x_XM, out_M)
        delta_M *= features_M
        sum_M += delta_M

    def dot_M(self, matrix_CE: Tensor) -> Tensor:
        """<g_i, B>."""
        return (matrix_CE @ self.features_EM).mul_(self.delta_CM).sum(0)


def _side_by_side(problems: Sequence[Problem], lam: float, dtype: torch.dtype, rounds: int) -> tuple[Tensor, Tensor]:
    """Picks (G, K) and weights (G, K) of problems in parallel; entries beyond a problem's own k are meaningless."""
    device = problems[0].layers[0].delta_NC.device
    groups, k = len(problems), max(problem.k for problem in problems)
    exact = [
        _Padded(
            pad_sequence([problem.layers[model].delta_NC for problem in problems], batch_first=True),
            pad_sequence([problem.layers[model].features_NE for problem in problems], batch_first=True),
        )
        for model in range(len(problems[0].layers))
    ]
    layers = [each.samples_last(dtype) for each in exact]
    like = exact[0].delta_GMC
    members = like.shape[1]
    scale_G11 = like.new_tensor([problem.goal_scale for problem in problems])[:, None, None]
    goals = [each.delta_GMC.mT @ each.features_GME * scale_G11 for each in exact]
    b_GM = sum((each.dot_GM(goal) for each, goal in zip(exact, goals, strict=True)), torch.zeros_like(like[:, :, 0]))
    sizes_G = torch.tensor([len(problem) for problem in problems], device=device)
    budgets_G = torch.tensor([problem.k for problem in problems], device=device)

    rows_GKM = like.new_empty(groups, k, members, dtype=dtype)  # <g_s, g_i> for the picks s
    chosen = [_ChosenOfAll.of(each, k) for each in exact]
    picked_GK = torch.zeros(groups, k, dtype=torch.int64, device=device)
    solver = GrowingNonNegativeLeastSquares(groups, k, lam, device)
    # -inf for picks and for padding
    barred_GM = torch.where(torch.arange(members, device=device) < sizes_G[:, None], 0.0, -torch.inf).to(dtype)
    # Correlations at the last exact weights; current ones follow from the Gram rows and the change of the weights.
    base_GM, base_w_GK = b_GM.to(dtype), torch.zeros_like(solver.w_GK)
    correlations_GM = base_GM
    for t in range(k):
        best_G1 = (correlations_GM + barred_GM).argmax(1, keepdim=True)
        barred_GM.scatter_(1, best_G1, -torch.inf)
        picked_GK[:, t : t + 1] = best_G1
        row_GM = sum_of([layer.gram_row(best_G1, each) for layer, each in zip(layers, exact, strict=True)])
        rows_GKM[:, t] = row_GM
        gram_GT = sum_of([each.add(t, best_G1) for each in chosen])
        w_GT = solver.add(gram_GT, b_GM.gather(1, best_G1).squeeze(1), t < budgets_G, rounds)
        if (t + 1) % REFRESH == 0:
            base_w_GK[:, : t + 1] = w_GT = solver.refine()
            base_GM = sum_of(
                [
                    layer.dot_GM((goal - each.weighted_sum(picked_GK[:, : t + 1], w_GT)).to(dtype))
                    for layer, each, goal in zip(layers, exact, goals, strict=True)
                ]
            )
        change_GT = (w_GT - base_w_GK[:, : t + 1]).to(dtype)
        correlations_GM = base_GM - _times(change_GT, rows_GKM[:, : t + 1])
    if bool(solver.unsettled_G.any()):
        return _side_by_side(problems, lam, dtype, 2 * rounds)
    return picked_GK, solver.refine()


@dataclass(frozen=True)
class _Padded:
    """`LastLayer` of G groups, padded with zeros to M samples."""

    delta_GMC: Tensor
    features_GME: Tensor

    def dot_GM(self, matrix_GCE: Tensor) -> Tensor:
        """<g_i, B>."""
        return (matrix_GCE @ self.features_GME.mT).mul_(self.delta_GMC.mT).sum(1)

    def weighted_sum(self, index_GT: Tensor, w_GT: Tensor) -> Tensor:
        """sum_t w_t g_t (G, C, E) over the samples `index_GT`."""
        delta_GTC, features_GTE = (_rows(each, index_GT) for each in (self.delta_GMC, self.features_GME))
        return (delta_GTC * w_GT[:, :, None]).mT @ features_GTE

    def samples_last(self, dtype: torch.dtype) -> _Streams:
        """A transposed, contiguous copy in `dtype`."""
        return _Streams(*(each.to(dtype).mT.contiguous() for each in (self.delta_GMC, self.features_GME)))


@dataclass(frozen=True)
class _ChosenOfAll:
    """`_Chosen` of G groups."""

    all: _Padded
    delta_GKC: Tensor
    features_GKE: Tensor

    @classmethod
    def of(cls, padded: _Padded, k: int) -> _ChosenOfAll:
        both = (padded.delta_GMC, padded.features_GME)
        return cls(padded, *(each.new_empty(len(each), k, each.shape[2]) for each in both))

    def add(self, t: int, index_G1: Tensor) -> Tensor:
        """Add one pick per group; its products (G, t + 1) with the picks so far, itself included."""
        self.delta_GKC[:, t : t + 1] = _rows(self.all.delta_GMC, index_G1)
        self.features_GKE[:, t : t + 1] = _rows(self.all.features_GME, index_G1)
        products = (each_GKX[:, : t + 1] @ each_GKX[:, t, :, None] for each_GKX in (self.delta_GKC, self.features_GKE))
        delta_GT1, features_GT1 = products
        return (delta_GT1 * features_GT1).squeeze(2)


@dataclass(frozen=True)
class _Streams:
    """The same with the samples last, so that products read memory in order."""

    delta_GCM: Tensor
    features_GEM: Tensor

    def dot_GM(self, matrix_GCE: Tensor) -> Tensor:
        """<g_i, B>."""
        return (matrix_GCE @ self.features_GEM).mul_(self.delta_GCM).sum(1)

    def gram_row(self, index_G1: Tensor, exact: _Padded) -> Tensor:
        """<g_s, g_i> (G, M) for one sample s per group."""
        delta_GC, features_GE = (
            _rows(each, index_G1)[:, 0].to(self.delta_GCM.dtype) for each in (exact.delta_GMC, exact.features_GME)
        )
        return _times(delta_GC, self.delta_GCM).mul_(_times(features_GE, self.features_GEM))


def _rows(x_GMX: Tensor, index_GT: Tensor) -> Tensor:
    """x[g, index[g, t]] (G, T, X)."""
    return x_GMX[torch.arange(len(x_GMX), device=x_GMX.device)[:, None], index_GT]


def _times(v_GX: Tensor, x_GXM: Tensor) -> Tensor:
    """v^T x (G, M)."""
    return torch.bmm(v_GX[:, None], x_GXM).squeeze(1)
