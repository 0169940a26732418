"""Last-layer gradients in factored form; the full matrices are never formed.

For logits z and penultimate features h the gradient of one sample's cross-entropy with respect to the classifier
(weight and bias) is the outer product g = delta (x) h~, with delta = softmax(z) - onehot(y) in R^C and h~ = [h, 1] in
R^E. So
  <g_i, g_j> = (delta_i . delta_j) (h~_i . h~_j),   |g_i| = |delta_i| |h~_i|,   sum_i g_i = Delta^T H~  (C x E),
and n (C + E) numbers replace n C E. Gradients are those of the per-sample loss, so nothing depends on the batch size of
the scoring pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lipt.selection.arrays import view
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.outputs import Outputs
from lipt.selection.numerics.blocks import as_slice
from lipt.selection.numerics.closeness import squares_between
from lipt.selection.numerics.norms import add_up, as_float, few, lengths, lift, row_sums, smallest


@dataclass(frozen=True)
class LastLayer:
    """Per-sample gradients g_i = delta_i (x) h~_i of one model's classifier layer."""

    delta_NC: Tensor
    features_NE: Tensor

    def gram_BN(self, rows_B: Tensor, start: int = 0) -> Tensor:
        """<g_b, g_i> of the samples `rows_B` with all samples from `start` on."""
        delta_NC, features_NE = self.delta_NC, self.features_NE
        return (delta_NC[rows_B] @ delta_NC[start:].T).mul_(features_NE[rows_B] @ features_NE[start:].T)

    def square_norms_N(self) -> Tensor:
        """|g_i|^2."""
        return self.delta_NC.square().sum(1) * self.features_NE.square().sum(1)

    def squares_RC(self, rows_R: Tensor, columns_C: Tensor) -> Tensor:
        """|g_r - g_c|^2 of the samples `rows_R` and `columns_C`, with all digits even if the two are close."""
        r, c = self.rows(rows_R), self.rows(columns_C)
        delta_RC = squares_between(r.delta_NC, c.delta_NC)
        features_RC = squares_between(r.features_NE, c.features_NE)
        # Equal samples must have equal norms to the last bit.
        u_R1, v_C = row_sums(r.delta_NC.square())[:, None], row_sums(c.delta_NC.square())
        s_R1, t_C = row_sums(r.features_NE.square())[:, None], row_sums(c.features_NE.square())
        # In exact arithmetic it is u s + v t - 2 (delta_r . delta_c) (h~_r . h~_c); here every term is small.
        twice_RC = delta_RC * (s_R1 + t_C) + features_RC * (u_R1 + v_C) - delta_RC * features_RC
        return twice_RC.add_((u_R1 - v_C) * (s_R1 - t_C)).clamp_min_(0).div_(2)

    def dot_N(self, matrix_CE: Tensor) -> Tensor:
        """<g_i, B> = delta_i^T B h~_i for a gradient-shaped matrix B."""
        return (matrix_CE @ self.features_NE.T).mul_(self.delta_NC.T).sum(0)

    def rows(self, rows_S: Tensor) -> LastLayer:
        """The gradients of the samples `rows_S`."""
        return LastLayer(self.delta_NC[rows_S], self.features_NE[rows_S])


def precision(outputs: Iterable[Outputs]) -> torch.dtype:
    """The precision of gradients: float64 if the logits or features of any model are float64, else float32."""
    found = {dtype for each in outputs for dtype in (each.logits_NC.dtype, each.features_ND.dtype)}
    return torch.float64 if torch.float64 in found else torch.float32


def probabilities(logits_NC: Tensor) -> Tensor:
    """softmax(z) (N, C). Each row is bitwise independent of the others."""
    z_NC = as_float(logits_NC)
    if not z_NC.is_cpu or not few(z_NC):
        return z_NC.softmax(1)  # vectorised within a row
    p_CN = _exponentials(z_NC)
    p_CN /= add_up(p_CN)
    return torch.from_numpy(p_CN).T


def _exponentials(z_NC: Tensor) -> npt.NDArray[np.floating]:
    """exp(z - max z) (C, N), on the CPU."""
    e_CN = z_NC.numpy(force=True).T.copy()
    e_CN -= e_CN.max(0)
    np.exp(e_CN, out=e_CN)
    return e_CN


def error_vectors(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """delta (N, C) = softmax(z) - onehot(y), the gradient of the cross-entropy with respect to the logits."""
    delta_NC = probabilities(logits_NC)
    # p_y - 1 is minus the sum of the other probabilities. That sum keeps its digits where p_y rounds to 1.
    row, column = delta_NC.stride()
    flat_X = view(delta_NC.as_strided((delta_NC.numel(),), (1,)))
    own_N = view(torch.arange(len(labels_N), device=labels_N.device)) * row + view(labels_N) * column
    flat_X[own_N] = 0
    flat_X[own_N] = view(-row_sums(delta_NC))
    return delta_NC


def error_norms(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """|delta_i| (N,), as the `lengths` of the error vectors."""
    z_NC = as_float(logits_NC)
    if not z_NC.is_cpu or not few(z_NC):
        return lengths(error_vectors(z_NC, labels_N))
    # With e = exp(z - max z), delta is e_c of the other classes and minus their sum, all divided by the sum of all.
    # So no probability is computed, and nothing is subtracted.
    e_CN, y_N = _exponentials(z_NC), labels_N.numpy()
    e_X, own_N = e_CN.reshape(-1), y_N * len(y_N) + np.arange(len(y_N))
    all_N = e_X.take(own_N)
    e_X[own_N] = 0
    others_N = add_up(e_CN)
    all_N += others_N
    others_N *= others_N
    e_CN *= e_CN
    others_N += add_up(e_CN)
    norms_N = torch.from_numpy(np.sqrt(others_N, out=others_N))
    others_N /= all_N
    if len(norms_N) and others_N.min() < smallest(z_NC.dtype):  # squares underflowed
        small_S = (norms_N < smallest(z_NC.dtype)).nonzero().flatten()
        norms_N[small_S] = lengths(error_vectors(z_NC[small_S], labels_N[small_S]))
    return norms_N


def with_bias(features_ND: Tensor) -> Tensor:
    """h~ (N, E) = [h, 1]."""
    features_ND = as_float(features_ND)
    return torch.cat([features_ND, features_ND.new_ones(len(features_ND), 1)], dim=1)


def last_layers(
    candidates: Candidates, rows_M: Tensor, dtype: torch.dtype | None = None, device: torch.device | None = None
) -> list[LastLayer]:
    """Gradients of the samples `rows_M`, one entry per model, divided by sqrt(R): together one long gradient.

    Computed in `dtype`, on `device`; None = the `precision` of the outputs, and their device.
    """
    dtype, device = dtype or precision(candidates.outputs), device or candidates.labels_N.device
    labels_M = candidates.labels_N[rows_M].to(device)
    scale = len(candidates.outputs) ** -0.5
    layers = [
        LastLayer(
            error_vectors(each.logits(rows_M).to(device).to(dtype), labels_M).contiguous(),
            with_bias(each.features_ND[rows_M].to(device).to(dtype)),
        )
        for each in candidates.outputs
    ]
    return layers if scale == 1 else [LastLayer(layer.delta_NC * scale, layer.features_NE) for layer in layers]


def squarable_layers(layers: Sequence[LastLayer]) -> tuple[list[LastLayer], float]:
    """The gradients times a power of two, and that power: not 1 only if their squares would underflow."""
    factor = lift([layer.delta_NC for layer in layers])
    if factor == 1:
        return list(layers), factor
    return [LastLayer(layer.delta_NC * factor, layer.features_NE) for layer in layers], factor


def joint_features(outputs: Sequence[Outputs], rows_M: Tensor | slice) -> Tensor:
    """Features (M, R D) of the samples `rows_M`: all models concatenated, divided by sqrt(R).

    Float32 or float64. Do not change it in place: it may be the stored tensor.
    """
    if isinstance(rows_M, Tensor):
        rows_M = as_slice(rows_M)
    parts = [as_float(each.features_ND[rows_M]) for each in outputs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1) / len(parts) ** 0.5
