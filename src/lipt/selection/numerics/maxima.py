"""The highest of many scores or gains, the same whatever rounds differently from row to row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

#: Up to this number of scores, torch finds the highest faster than numpy.
FEW = 2**14
#: Gains whose relative difference is at most this are equal.
TIE = 1e-6


def highest(scores_M: Tensor, k: int) -> Tensor:
    """Positions of the k highest scores (all, if there are fewer), highest first; equal scores by lowest position."""
    n = len(scores_M)
    k = min(k, n)
    if not scores_M.is_cpu or k == 0 or (k == n and scores_M.dtype != torch.float32):
        return torch.sort(scores_M, descending=True, stable=True).indices[:k]
    scores, could_S = scores_M.numpy(), None
    if n <= FEW and k < n:
        top_T, at_T = scores_M.topk(k + 1)
        top, at_K = top_T.numpy(), at_T[:k]
        lower_K = top[1:] < top[:-1]
        if lower_K.all():  # no two are equal
            return at_K
        if lower_K[-1]:
            could_S = np.sort(at_K.numpy())
    if could_S is None:  # only these can be among the highest
        could_S = np.arange(n) if k == n else np.flatnonzero(scores >= np.partition(scores, n - k)[n - k])
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
