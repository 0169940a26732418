"""Orthogonal matching pursuit for one group on a CPU: the steps in numpy, which starts small operations sooner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lipt.core.selection.gradients import LastLayer, sum_of
from lipt.core.selection.nnls import NonNegativeLeastSquares
from lipt.core.selection.steps import View, features_first, large, product, view


def pursue(
    layers: Sequence[LastLayer], k: int, *, goal_scale: float, lam: float, dtype: torch.dtype, refresh: int
) -> tuple[Tensor, Tensor]:
    """Positions (k,) in order of pick and weights (k,) of one `Problem`; see `matching_pursuit`."""
    goals = [layer.delta_NC.T @ layer.features_NE * goal_scale for layer in layers]
    b = sum_of([layer.dot_N(goal) for layer, goal in zip(layers, goals, strict=True)])
    streams = [_Stream.of(layer, dtype) for layer in layers]
    like = b[:0].to(dtype)
    rows = large(like, k, len(b))  # <g_s, g_i> for the picks s
    b_M, rows_KM, change_M = view(b), view(rows), view(torch.empty_like(b, dtype=dtype))
    picked_K, solver = np.zeros(k, dtype=np.int64), NonNegativeLeastSquares(k, lam)
    barred_M = np.zeros_like(change_M)  # -inf for picks
    # The correlations at some earlier weights; later ones follow from the Gram rows and the change of the weights.
    base_M, base_w_K = b_M.astype(change_M.dtype), np.zeros(k)
    correlations_M = base_M.copy()
    for t in range(k):
        picked_K[t] = pick = int(correlations_M.argmax())
        barred_M[pick] = -np.inf
        streams[0].gram_row(pick, rows_KM[t])
        for stream in streams[1:]:
            stream.gram_row(pick, change_M)
            rows_KM[t] += change_M
        w_T = solver.add(rows_KM[t, picked_K[: t + 1]], float(b_M[pick]))
        if (t + 1) % refresh == 0:
            base_w_K[: t + 1] = w_T = solver.refine()
            picks_T, weights_T1 = torch.from_numpy(picked_K[: t + 1]), torch.from_numpy(w_T)[:, None]
            rests = [goal - _weighted_sum(each, picks_T, weights_T1) for each, goal in zip(layers, goals, strict=True)]
            base_M = view(sum_of([each.dot(rest.to(dtype)) for each, rest in zip(streams, rests, strict=True)]))
            np.add(base_M, barred_M, out=correlations_M)
            continue
        product((base_w_K[: t + 1] - w_T).astype(change_M.dtype), rows_KM[: t + 1], change_M)
        np.add(base_M, change_M, out=correlations_M)
        correlations_M += barred_M
    return torch.from_numpy(picked_K), torch.from_numpy(solver.refine())


def _weighted_sum(layer: LastLayer, picks_T: Tensor, w_T1: Tensor) -> Tensor:
    """sum_t w_t g_t (C, E)."""
    return (layer.delta_NC[picks_T] * w_T1).T @ layer.features_NE[picks_T]


@dataclass(frozen=True)
class _Stream:
    """`LastLayer` with the samples last: products with it stream through memory."""

    delta_CM: View
    features_EM: View
    along_M: View
    """For a product."""

    @classmethod
    def of(cls, layer: LastLayer, dtype: torch.dtype) -> _Stream:
        """In `dtype`."""
        delta_CM, features_EM = (features_first(each.to(dtype)) for each in (layer.delta_NC, layer.features_NE))
        return cls(view(delta_CM), view(features_EM), view(torch.empty_like(delta_CM[0])))

    def gram_row(self, pick: int, out_M: View) -> None:
        """out = <g_s, g_i> for the sample s."""
        product(self.delta_CM[:, pick].copy(), self.delta_CM, self.along_M)
        product(self.features_EM[:, pick].copy(), self.features_EM, out_M)
        out_M *= self.along_M

    def dot(self, matrix_CE: Tensor) -> Tensor:
        """<g_i, B> (M,)."""
        products_CM = matrix_CE @ torch.from_numpy(self.features_EM)
        return products_CM.mul_(torch.from_numpy(self.delta_CM)).sum(0)
