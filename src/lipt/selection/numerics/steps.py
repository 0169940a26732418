"""Operations of greedy steps on small arrays. On a CPU they run in numpy, which has less overhead per call.

`view` gives a numpy array for a tensor on a CPU and the tensor itself on a GPU. Operators, `minimum` and indexing by
the result of `leader` work for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from lipt.selection.arrays import View
from lipt.selection.numerics.maxima import TIE, best

#: A number; on a GPU a tensor (1,), so that the host does not wait for it.
Pick: TypeAlias = int | Tensor


def large(like: Tensor, *shape: int) -> Tensor:
    """An empty tensor. On a CPU numpy allocates it in large pages, which are faster to fill and read."""
    if not like.is_cpu:
        return like.new_empty(shape)
    return torch.from_numpy(np.empty(shape, dtype=like[:0].numpy().dtype))


def features_first(x_MD: Tensor) -> Tensor:
    """A contiguous copy (D, M), so that products with it read memory in order."""
    return large(x_MD, x_MD.shape[1], x_MD.shape[0]).copy_(x_MD.T)


def product(v_D: View, x_DM: View, out_M: View) -> None:
    """out = v x."""
    if isinstance(out_M, Tensor):
        torch.mv(x_DM.T, v_D.view(-1), out=out_M)
    else:
        np.dot(v_D, x_DM, out=out_M)


def minimum(a_M: View, b_M: View, out_M: View) -> None:
    """out = min(a, b)."""
    (torch if isinstance(out_M, Tensor) else np).minimum(a_M, b_M, out=out_M)


def places(mask_M: View) -> View:
    """Positions (S,) that are True. On a GPU the host waits for it."""
    return mask_M.nonzero(as_tuple=True)[0] if isinstance(mask_M, Tensor) else mask_M.nonzero()[0]


def leader(gains_M: View, scale_M: View | None = None) -> Pick:
    """`maxima.best` for both."""
    if isinstance(gains_M, Tensor):
        return best(gains_M, scale_M)
    at = int(gains_M.argmax())
    most = float(gains_M[at])
    slack = TIE * (abs(most) + (0.0 if scale_M is None else abs(float(scale_M[at]))))
    return int((gains_M >= most - slack).argmax())


def positions(picks: Sequence[Pick], device: torch.device) -> Tensor:
    """Picks as an int64 tensor (K,)."""
    if all(isinstance(pick, int) for pick in picks):
        return torch.tensor(picks, dtype=torch.int64, device=device)
    return torch.cat([torch.as_tensor(pick, device=device).view(1) for pick in picks])
