"""Orthogonal matching pursuit on factored gradients, on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lipt.selection.arrays import View, view
from lipt.selection.inputs.gradients import LastLayer
from lipt.selection.numerics.nnls import NonNegativeLeastSquares
from lipt.selection.numerics.norms import sum_of
from lipt.selection.numerics.steps import features_first, large, product

#: Steps between two exact computations of the residual, which make float32 pick in the order of float64.
REFRESH = 32


def matching_pursuit(
    layers: Sequence[LastLayer], k: int, *, goal_scale: float = 1.0, lam: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Orthogonal matching pursuit with non-negative weights, towards b = goal_scale * sum of all gradients.

    Each step picks the candidate most correlated with the residual, argmax <g_i, b - sum_S w_s g_s>, then solves for
    all weights: minimise |sum_S w_s g_s - b|^2 + lam |w|^2 over w >= 0. O(k M (C + E) + M k^2 / 2) time, O(M k) memory
    for M candidates. Most products run in `dtype`, in numpy, which has less overhead per operation. The goal, the
    weights, the products of the picks with each other and, every `REFRESH` steps, the residual are computed from the
    float64 gradients.

    Args:
        layers: float64, on a CPU, one per model: together one long gradient.
        k: the number of picks, at most M.

    Returns:
        The positions (k,) in order of pick, and their weights (k,), float64.
    """
    goals = [layer.delta_NC.T @ layer.features_NE * goal_scale for layer in layers]
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
