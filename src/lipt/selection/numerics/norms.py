"""Row sums and norms. The result of a row is bitwise independent of the other rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from lipt.selection.arrays import View, of_view, view


def sum_of(terms: Iterable[Tensor]) -> Tensor:
    """The sum, in the given order. A single term is returned itself, without a copy."""
    return reduce(torch.add, terms)


def as_float(x: Tensor) -> Tensor:
    """Float64 unchanged; any other type as float32."""
    return x if x.dtype == torch.float64 else x.float()


def few(x_NC: Tensor) -> bool:
    """Whether rows are so short that columns are processed one by one, which is fast if columns are contiguous."""
    return 1 < x_NC.shape[1] < 16


def row_sums(x_NC: Tensor) -> Tensor:
    """The sum (N,) of each row. (Of a few contiguous columns, `Tensor.sum` rounds the last rows differently.)"""
    return of_view(add_up(view(x_NC.T))) if few(x_NC) else x_NC.sum(1)


def add_up(terms_CN: View) -> View:
    """The sum (N,) of two or more rows, from the first to the last. (For N = 1 numpy's `sum` takes another order.)"""
    if isinstance(terms_CN, np.ndarray) and terms_CN.flags.c_contiguous and terms_CN.shape[1] > 1:
        return terms_CN.sum(0)  # in the same order, and faster
    first_N, second_N, *others = terms_CN
    total_N = first_N + second_N
    for term_N in others:
        total_N += term_N
    return total_N


def lengths(x_MD: Tensor) -> Tensor:
    """|x_i| (M,), correct even if squares underflow; inf if they overflow."""
    lengths_M = _roots_of_squares(x_MD)
    return all_digits(lengths_M, lambda small_S: x_MD[small_S]) if x_MD.numel() else lengths_M


def _roots_of_squares(x_MD: Tensor) -> Tensor:
    if few(x_MD):
        with np.errstate(all="ignore"):
            columns_DM = view(x_MD.T)
            return of_view(add_up(columns_DM * columns_DM)).sqrt_()
    if x_MD.is_cpu:
        x = x_MD.contiguous().numpy(force=True)
        with np.errstate(all="ignore"):  # one dot product for each row
            return torch.from_numpy(np.sqrt(np.matmul(x[:, None], x[:, :, None])[:, 0, 0]))
    found: Tensor = torch.linalg.vector_norm(x_MD, dim=1)
    return found


def all_digits(lengths_M: Tensor, rows: Callable[[Tensor], Tensor]) -> Tensor:
    """The lengths, corrected in place where squares underflowed. `rows` returns those vectors by their positions.

    They are squared after a multiplication by a power of two, which is exact: rows of another scale have the same
    length but for this power, to the last digit. So equal gains stay equal.
    """
    if lengths_M.numel() and float(lengths_M.min()) < smallest(lengths_M.dtype):
        small_S = (lengths_M < smallest(lengths_M.dtype)).nonzero().flatten()
        rows_SD = rows(small_S)
        least = -1000 if lengths_M.dtype == torch.float64 else -100  # a higher power overflows
        power_S = torch.frexp(rows_SD.abs().amax(1))[1].clamp_min(least).to(lengths_M.dtype)
        lengths_M[small_S] = _roots_of_squares(rows_SD * (-power_S).exp2()[:, None]) * power_S.exp2()
    return lengths_M


def smallest(dtype: torch.dtype) -> float:
    """Squares of numbers below this lose digits."""
    return 1e-140 if dtype == torch.float64 else 1e-12


def lift(parts: Sequence[Tensor]) -> float:
    """1; if all values of all parts are so small that squares underflow, a power of two by which to multiply them."""
    most = max(float(torch.stack(part.aminmax()).abs().amax()) if part.numel() else 0.0 for part in parts)
    limit = 1000 if parts[0].dtype == torch.float64 else 100  # a higher power overflows
    return 2.0 ** min(limit, -math.frexp(most)[1]) if 0 < most < smallest(parts[0].dtype) else 1.0


def squarable(x_MD: Tensor) -> Tensor:
    """`x_MD`; if all values are so small that squares underflow, times a power of two, which is exact."""
    factor = lift([x_MD])
    return x_MD if factor == 1 else x_MD * factor
