"""GradMatch: orthogonal matching pursuit on factored gradients, with exact non-negative weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from lipt.core.selection.gradients import LastLayer, as_float, last_layers
from lipt.core.selection.nnls import GrowingNonNegativeLeastSquares
from lipt.core.selection.task import Group, Picks, Task, per_group, register, require

#: Steps between two exact computations of the residual: with it, float32 picks in the order of float64.
REFRESH = 32


@register("gradmatch", models=1)
def gradmatch(task: Task, *, lam: float = 0.5, target: Literal["sum", "mean"] = "sum") -> Picks:
    """Weighted samples whose gradients add up to that of their group (Killamsetty et al. ICML 2021, eq. 5, Algorithm
    2).

    Minimises |sum_S w_i g_i - b|^2 + lam |w|^2 over w >= 0 greedily. Always k distinct samples: one whose best weight
    is zero stays chosen with weight 0. A group whose weights all vanish (no gradient at all) gets weights 1.

    Args:
        lam: ridge on the weights, in units of a squared gradient norm.
        target: b is the `sum` (weights near n / k) or the `mean` (weights near 1 / k) of the group's gradients.
    """
    require(lam >= 0, f"gradmatch: lam must not be negative, not {lam}")

    dtype = as_float(task.candidates.outputs[0].logits_NC[:0]).dtype

    def pick(group: Group) -> tuple[Tensor, Tensor]:
        exact = last_layers(task.candidates, group.members_M, torch.float64)
        goal_scale = 1.0 if target == "sum" else 1 / len(group.members_M)
        order_K, weights_K = matching_pursuit(exact, dtype, group.budget, lam, goal_scale)
        return order_K, weights_K if weights_K.any() else torch.ones_like(weights_K)

    return per_group(task, pick)


def matching_pursuit(
    exact: Sequence[LastLayer], dtype: torch.dtype, k: int, lam: float, goal_scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Orthogonal matching pursuit with non-negative weights towards b = goal_scale * sum of all gradients.

    Each step picks the candidate most correlated with the residual, argmax <g_i, b - sum_S w_s g_s>, then solves for
    all weights. O(k M (C + E) + M k^2 / 2) time, O(M k) memory. The many products run in `dtype`; goal, weights and,
    every `REFRESH` steps, the residual come from the float64 gradients `exact`.

    Returns:
        Positions (k,) in order of pick, and their weights (k,).
    """
    layers = [layer.to(dtype) for layer in exact]
    goals = [layer.sum_CE() * goal_scale for layer in exact]
    b_M = _correlations(exact, goals)
    rows_KM = layers[0].delta_NC.new_empty(k, len(b_M))  # <g_s, g_i> for the picks s
    picked_K = torch.empty(k, dtype=torch.int64, device=b_M.device)
    weights = GrowingNonNegativeLeastSquares(k, lam)
    barred_M = torch.zeros_like(rows_KM[0])  # -inf for picks
    # The correlations at some earlier weights; later ones follow from the Gram rows and the change of the weights.
    base_M, base_w_K = b_M.to(rows_KM), torch.zeros(k, dtype=torch.float64)
    correlations_M = base_M
    for t in range(k):
        best = (correlations_M + barred_M).argmax()
        picked_K[t], barred_M[best] = best, -torch.inf
        first, *others = [layer.gram_BN(best[None])[0] for layer in layers]
        rows_KM[t] = sum(others, first)
        w_T = weights.add(rows_KM[t, picked_K[: t + 1]].double().cpu(), float(b_M[best]))
        if (t + 1) % REFRESH == 0:
            base_w_K[: t + 1] = w_T
            residuals = [
                goal_CE - layer.weighted_sum_CE(picked_K[: t + 1], w_T.to(b_M))
                for layer, goal_CE in zip(exact, goals, strict=True)
            ]
            base_M = _correlations(layers, [residual_CE.to(rows_KM) for residual_CE in residuals])
        correlations_M = torch.addmv(base_M, rows_KM[: t + 1].T, (w_T - base_w_K[: t + 1]).to(rows_KM), alpha=-1)
    return picked_K, weights.w_K.to(b_M)


def _correlations(layers: Sequence[LastLayer], matrices: Sequence[Tensor]) -> Tensor:
    """<g_i, B> (M,) for one gradient-shaped matrix per model."""
    first, *others = [layer.dot_N(matrix_CE) for layer, matrix_CE in zip(layers, matrices, strict=True)]
    return sum(others, first)
