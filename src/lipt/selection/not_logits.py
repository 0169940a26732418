"""Notices probabilities that are handed over as logits.

Softmax outputs read as logits would give every sample nearly the same error, and so a selection close to random.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lipt.errors import UsageError

#: At least so many rows are looked at, evenly spread over all. They cost microseconds, also in a memory-mapped file.
_SAMPLED = 128
#: Fewer rows could lie between 0 and 1 by chance.
_FEWEST = 32
#: Rounding in half precision moves a sum by less than this.
_SUM = 0.01
#: The sum of probabilities that are rounded to two decimals is off by at most this for each class,
_ROUNDED = 0.005
#: and is hardly ever off by more than this: with many classes the bound alone would exclude nothing, not even zeros.
_ROUNDED_AT_MOST = 0.1
#: How close to 0 and to 1 outputs of a sigmoid come.
_END = 0.05


def refuse_probabilities(logits_NC: Tensor, whose: str) -> None:
    """Raise UsageError if the logits are probabilities, percentages, or outputs of a sigmoid.

    All sampled rows must agree. Real logits pass:

    - Rows that add up to 1 or 100 without a negative number do not occur by chance, so one row is enough. Rounding
      makes the sum inexact. Then all numbers must also be multiples of 0.01 (of 1 for percentages).
    - Numbers between 0 and 1 can be logits: a network of two classes with strong weight decay may give 0.3 to 0.7 for
      all samples, a network that starts with a layer of zeros gives zeros, and cosines of CLIP are 0.1 to 0.4. So they
      must also come close to both ends, without passing either. Outputs of a sigmoid that was hardly trained are
      therefore not noticed. An alarm that is false after all has a way out: softmax ignores a constant that is added.

    Args:
        whose: logits, as the message names them.
    """
    rows_BC = logits_NC[:: max(1, len(logits_NC) // _SAMPLED)]
    if not rows_BC.numel() or rows_BC.shape[1] < 2 or not (least := float(rows_BC.min())) >= 0:
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
    if len(rows_BC) >= _FEWEST and least < _END and 1 - _END < float(rows_BC.max()) <= 1:
        raise UsageError(
            f"the logits of {whose} look like outputs of a sigmoid: they fill the range from 0 to 1",
            "hand over the outputs before the sigmoid, or torch.logit(outputs, 1e-6); "
            "if they are logits, subtract 1 from all of them: that changes no selection",
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
