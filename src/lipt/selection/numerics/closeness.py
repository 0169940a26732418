"""Squared distances of samples that are so close that inner products lose them to rounding."""

from __future__ import annotations

import torch
from torch import Tensor

#: |a|^2 + |b|^2 - 2 a.b is off by a few rounding errors of |a|^2 + |b|^2: it is not used below this multiple of one.
ROUNDINGS = 256


def blurred(square_norms_M: Tensor) -> Tensor:
    """Squared distances (M,) below which inner products of vectors with these squared norms have too few digits."""
    return square_norms_M * (ROUNDINGS * torch.finfo(square_norms_M.dtype).eps)


def squares_between(x_BD: Tensor, y_MD: Tensor) -> Tensor:
    """|x_b - y_m|^2 (B, M), summed over the differences: 0 for equal vectors, and symmetric. Slower than products."""
    return torch.cdist(x_BD, y_MD, compute_mode="donot_use_mm_for_euclid_dist").square_()
