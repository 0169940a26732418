"""The highest of many scores or gains, the same whatever rounds differently from row to row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

#: Gains whose relative difference is at most this are equal.
TIE = 1e-6


def highest(scores_M: Tensor, k: int) -> Tensor:
    """Positions of the k highest scores (all, if there are fewer), highest first; equal scores by lowest position."""
    k = min(k, len(scores_M))
    if not scores_M.is_cpu or k == 0:
        return torch.sort(scores_M, descending=True, stable=True).indices[:k]
    scores = scores_M.numpy()
    could_S = np.flatnonzero(scores >= np.partition(scores, -k)[-k])  # only these can be among the highest
    if scores.dtype != np.float32:
        return torch.from_numpy(could_S[(-scores[could_S]).argsort(kind="stable")[:k]])
    # Sorting integers that encode score and position is several times as fast as a stable argsort.
    bits_S = (0 - scores[could_S]).view(np.int32)
    bits_S ^= (bits_S >> 31) & 0x7FFFFFFF
    keys_S = (bits_S.astype(np.int64) << 32) + could_S
    keys_S.sort()
    return torch.from_numpy(keys_S[:k] & 0xFFFFFFFF)


def best(gains_M: Tensor, scale_M: Tensor | None = None) -> Tensor:
    """Position (1,) of the highest gain; the lowest one among gains that are equal up to rounding.

    Equal samples have equal gains, but products round differently from row to row.

    Args:
        scale_M: magnitude of the terms whose difference a gain is; rounding errors are proportional to it.
    """
    most_1, at_1 = gains_M.max(0, keepdim=True)
    slack_1 = TIE * (most_1.abs() + (0.0 if scale_M is None else scale_M[at_1].abs()))
    return (gains_M >= most_1 - slack_1).int().argmax(keepdim=True)
