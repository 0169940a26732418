"""Notices probabilities that are handed over as logits.

Softmax outputs read as logits would give every sample nearly the same error, and so a selection close to random.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lipt.errors import UsageError

#: The check reads this many rows or more, evenly spread. That takes microseconds, even from a memory-mapped file.
_SAMPLED = 128
#: Rounding in half precision moves a sum by less than this.
_SUM = 0.01
#: The sum of probabilities that are rounded to two decimals is off by at most this for each class,
_ROUNDED = 0.005
#: and is hardly ever off by more than this: with many classes the bound alone would exclude nothing, not even zeros.
_ROUNDED_AT_MOST = 0.1


def refuse_probabilities(logits_NC: Tensor, whose: str) -> None:
    """Raise UsageError if the logits are probabilities or percentages.

    All sampled rows must agree. Rows that add up to 1 or 100 without a negative number do not occur by chance, so one
    row is enough. Rounding makes the sum inexact. Then all numbers must also be multiples of 0.01 (of 1 for
    percentages). Outputs of a sigmoid are not noticed: numbers between 0 and 1 can be logits, or a first try with
    random numbers.

    Args:
        whose: logits, as the message names them.
    """
    rows_BC = logits_NC[:: max(1, len(logits_NC) // _SAMPLED)]
    if not rows_BC.numel() or rows_BC.shape[1] < 2 or not float(rows_BC.min()) >= 0:
        return
    if _adds_to(1, rows_BC):
        raise UsageError(
            f"the logits of {whose} are probabilities: none is negative, each row adds to 1",
            "hand over the outputs before the softmax, or log(probabilities + 1e-12)",
        )
    if _adds_to(100, rows_BC):
        raise UsageError(
            f"the logits of {whose} are percentages: none is negative, each row adds to 100",
            "hand over the outputs before the softmax, or log(percentages / 100 + 1e-12)",
        )


def _adds_to(whole: float, rows_BC: Tensor) -> bool:
    """Whether every row adds up to `whole`, or would if its numbers were not rounded to a hundredth of it."""
    off = float((rows_BC.sum(1, dtype=torch.float64) / whole - 1).abs().max())
    if off < _SUM:
        return True
    if not off < _SUM + min(_ROUNDED * rows_BC.shape[1], _ROUNDED_AT_MOST):
        return False
    hundredths_BC = rows_BC.double() * (100 / whole)
    inexact = min(100 * torch.finfo(rows_BC.dtype).eps, 0.1)  # bfloat16 cannot tell
    return float((hundredths_BC - hundredths_BC.round()).abs().max()) < inexact
