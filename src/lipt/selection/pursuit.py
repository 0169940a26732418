"""Orthogonal matching pursuit on factored gradients, for many groups side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from lipt.selection.gradients import LastLayer, sum_of
from lipt.selection.nnls import GrowingNonNegativeLeastSquares

#: Steps between two exact computations of the residual: with it, float32 picks in the order of float64.
REFRESH = 32
#: Variables that may enter or leave the least squares per step where asking the device whether more have to is dear.
ROUNDS = 3
#: What groups that are solved side by side may hold together: half of a shared cache, or a good part of a GPU.
CPU_BYTES, GPU_BYTES = 16 << 20, 8 << 30


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Find k gradients whose weighted sum comes close to `goal_scale` times the sum of all."""

    layers: Sequence[LastLayer]
    """Float64, one per model: together one long gradient."""
    k: int
    goal_scale: float = 1.0

    def __len__(self) -> int:
        return len(self.layers[0].delta_NC)


def side_by_side(sizes: Sequence[tuple[int, int]], width: int, device: torch.device) -> Iterator[list[int]]:
    """Indices of problems of similar size, as many at once as a cache (on a GPU: its memory) holds.

    Args:
        sizes: candidates and picks of each problem.
        width: C + E, over all models.
    """
    limit = CPU_BYTES if device.type == "cpu" else GPU_BYTES
    batch: list[int] = []
    for index in sorted(range(len(sizes)), key=sizes.__getitem__):
        members, k = sizes[index]
        needed = 4 * members * (width + k) + 8 * k * k
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
    per group of M. The many products run in `dtype`; goal, weights and, every `REFRESH` steps, the residual come from
    the float64 gradients. On a GPU the k steps of all problems are one sequence of kernels that the host never waits
    for.

    Args:
        rounds: see `GrowingNonNegativeLeastSquares.add`; None = exact at once on a CPU, `ROUNDS` on a GPU, where
            problems that needed more are solved again with more.

    Returns:
        For each problem the positions (k,) in order of pick, and their weights (k,), float64.
    """
    if rounds is None and problems[0].layers[0].delta_NC.device.type != "cpu":
        rounds = ROUNDS
    picked_GK, weights_GK = _solve(problems, lam, dtype, rounds)
    return [
        (picked_K[: problem.k], weights_K[: problem.k])
        for problem, picked_K, weights_K in zip(problems, picked_GK, weights_GK, strict=True)
    ]


def _solve(problems: Sequence[Problem], lam: float, dtype: torch.dtype, rounds: int | None) -> tuple[Tensor, Tensor]:
    """Picks (G, K) and weights (G, K) of problems side by side; beyond a problem's own k they mean nothing."""
    device = problems[0].layers[0].delta_NC.device
    groups, k = len(problems), max(problem.k for problem in problems)
    # A CPU works at one product per thread: with fewer groups than threads, each group is cut into parts.
    parts = max(1, torch.get_num_threads() // groups) if device.type == "cpu" else 1
    exact = [
        _Padded(
            _side_by_side([problem.layers[model].delta_NC for problem in problems], parts),
            _side_by_side([problem.layers[model].features_NE for problem in problems], parts),
        )
        for model in range(len(problems[0].layers))
    ]
    layers = [each.cut(parts, dtype) for each in exact]
    like = exact[0].delta_GMC
    members = like.shape[1]
    scale_G11 = like.new_tensor([problem.goal_scale for problem in problems])[:, None, None]
    goals = [each.delta_GMC.mT @ each.features_GME * scale_G11 for each in exact]
    b_GM = sum((each.dot_GM(goal) for each, goal in zip(exact, goals, strict=True)), torch.zeros_like(like[:, :, 0]))
    sizes_G = torch.tensor([len(problem) for problem in problems], device=device)
    budgets_G = torch.tensor([problem.k for problem in problems], device=device)

    rows_GPKM = like.new_empty(groups, parts, k, members // parts, dtype=dtype)  # <g_s, g_i> for the picks s
    picked_GK = torch.zeros(groups, k, dtype=torch.int64, device=device)
    solver = GrowingNonNegativeLeastSquares(groups, k, lam, device)
    # -inf for picks and for padding
    barred_GM = torch.where(torch.arange(members, device=device) < sizes_G[:, None], 0.0, -torch.inf).to(dtype)
    # The correlations at some earlier weights; later ones follow from the Gram rows and the change of the weights.
    base_GM, base_w_GK = b_GM.to(dtype), torch.zeros_like(solver.w_GK)
    correlations_GM = base_GM
    for t in range(k):
        best_G1 = (correlations_GM + barred_GM).argmax(1, keepdim=True)
        barred_GM.scatter_(1, best_G1, -torch.inf)
        picked_GK[:, t : t + 1] = best_G1
        row_GPM = sum_of([layer.gram_row(best_G1, each) for layer, each in zip(layers, exact, strict=True)])
        rows_GPKM[:, :, t] = row_GPM
        gram_GT = row_GPM.flatten(1).gather(1, picked_GK[:, : t + 1])
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
        correlations_GM = base_GM - _times(change_GT, rows_GPKM[:, :, : t + 1]).flatten(1)
    if rounds is not None and bool(solver.unsettled_G.any()):
        return _solve(problems, lam, dtype, 2 * rounds)
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

    def cut(self, parts: int, dtype: torch.dtype) -> _Cut:
        """In P parts of equally many samples."""
        return _Cut(
            *(each.to(dtype).unflatten(1, (parts, -1)).mT.contiguous() for each in (self.delta_GMC, self.features_GME))
        )


@dataclass(frozen=True)
class _Cut:
    """The same in P parts of M samples, which come last: so a matrix-vector product streams through memory."""

    delta_GPCM: Tensor
    features_GPEM: Tensor

    def dot_GM(self, matrix_GCE: Tensor) -> Tensor:
        """<g_i, B> of all samples (G, P M)."""
        return (matrix_GCE[:, None] @ self.features_GPEM).mul_(self.delta_GPCM).sum(2).flatten(1)

    def gram_row(self, index_G1: Tensor, exact: _Padded) -> Tensor:
        """<g_s, g_i> (G, P, M) for the one sample s of each group."""
        delta_GC, features_GE = (
            _rows(each, index_G1)[:, 0].to(self.delta_GPCM.dtype) for each in (exact.delta_GMC, exact.features_GME)
        )
        return _times(delta_GC, self.delta_GPCM).mul_(_times(features_GE, self.features_GPEM))


def _side_by_side(groups: Sequence[Tensor], parts: int) -> Tensor:
    """(G, M, X), padded with zeros to a length that can be cut."""
    x_GMX = pad_sequence(list(groups), batch_first=True)
    return functional.pad(x_GMX, (0, 0, 0, -x_GMX.shape[1] % parts))


def _rows(x_GMX: Tensor, index_GT: Tensor) -> Tensor:
    """x[g, index[g, t]] (G, T, X)."""
    return x_GMX[torch.arange(len(x_GMX), device=x_GMX.device)[:, None], index_GT]


def _times(v_GX: Tensor, x_GPXM: Tensor) -> Tensor:
    """v^T x (G, P, M)."""
    groups, parts, size, members = x_GPXM.shape
    v_B1X = v_GX[:, None].expand(groups, parts, size).reshape(-1, 1, size)
    return torch.bmm(v_B1X, x_GPXM.view(-1, size, members)).view(groups, parts, members)
