"""Logits of many classes, compressed to the largest ones, with the exact error of every row.

With softmax(z) = p, a row keeps log p of its label and of the m likeliest other classes. The remaining probability r is
spread evenly over the other classes. With q the largest probability that is not kept,
  |p - p^|^2 <= q r <= r (1 - r) / m <= 1 / (4 m),
since m kept classes have at least q each. The error vector delta = p - onehot(y) changes by the same amount, and the
last-layer gradient delta (x) h~ by |p - p^| |h~|. Rounding to float16 adds relative errors of |log p| / 2048.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection.inputs.equality import ByContents
from lipt.selection.numerics.blocks import RowBuffer, row_blocks

_VALUES = torch.float16


@dataclass(frozen=True, kw_only=True, eq=False)
class TopLogits(ByContents):
    """Compressed logits (N, C): `[rows]` gives rows as float32 log-probabilities.

    Each sample keeps T = min(m + 1, C) classes.
    """

    num_classes: int
    classes_NT: Tensor
    """Int16, or int32 if there are too many classes: the label, then the others, likeliest first."""
    log_p_NT: Tensor
    """Float16, the log-probabilities of these classes; NaN for a sample whose logits were not finite."""
    log_rest_N: Tensor
    """Float16, the log-probability of each class that is not kept."""
    error_N: Tensor
    """Float32, an upper bound of |p - p^| that is tight up to float32 rounding."""

    def __post_init__(self) -> None:
        n, kept = self.classes_NT.shape
        shapes = (tuple(self.log_p_NT.shape), tuple(self.log_rest_N.shape), tuple(self.error_N.shape))
        if shapes != ((n, kept), (n,), (n,)) or kept > self.num_classes:
            raise UsageError(
                f"{kept} of {self.num_classes} classes of {n} samples are kept; got values of {shapes}",
                "hand over the tensors as `compress` made them, or compress the logits again",
            )

    @classmethod
    def compress(cls, logits_NC: Tensor, labels_N: Tensor, top: int) -> TopLogits:
        """Keep the label and the `top` likeliest other classes of every row, a block of rows at a time.

        Raises:
            UsageError: top < 1, or the numbers of labels and rows differ.
        """
        if top < 1:
            raise UsageError(f"at least 1 class must be kept besides the label, not {top}", "pass 1 or more")
        if len(labels_N) != len(logits_NC):
            raise UsageError(
                f"{len(labels_N)} labels for {len(logits_NC)} rows of logits", "hand over one label per row"
            )
        n, num_classes = logits_NC.shape
        compressed = RowBuffer(n)
        for block in row_blocks(n, 4 * num_classes):  # float64, twice
            part = _compress(logits_NC[block], labels_N[block], min(top + 1, num_classes))
            compressed.put(block.start, part.tensors())
        return cls.of(compressed.tensors, num_classes)

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], num_classes: int) -> TopLogits:
        """The inverse of `tensors`."""
        return cls(
            num_classes=num_classes,
            classes_NT=tensors["classes"],
            log_p_NT=tensors["log_p"],
            log_rest_N=tensors["log_rest"],
            error_N=tensors["error"],
        )

    def tensors(self) -> dict[str, Tensor]:
        """The stored tensors by name."""
        return {"classes": self.classes_NT, "log_p": self.log_p_NT, "log_rest": self.log_rest_N, "error": self.error_N}

    @classmethod
    def row_bytes(cls, num_classes: int, top: int) -> int:
        """The size of one row, in bytes."""
        return min(top + 1, num_classes) * (_class_ids(num_classes).itemsize + _VALUES.itemsize) + _VALUES.itemsize + 4

    def __len__(self) -> int:
        return len(self.classes_NT)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, C)."""
        return len(self), self.num_classes

    @property
    def dtype(self) -> torch.dtype:
        """Of the rows."""
        return torch.float32

    @property
    def device(self) -> torch.device:
        """Of all tensors."""
        return self.log_p_NT.device

    @property
    def nbytes(self) -> int:
        """The size of all tensors, in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Float32 log-probabilities (M, C); a row sums to 1 up to float16 rounding of its logarithms."""
        log_p_MT = self.log_p_NT[rows].float()
        log_rest_M1 = self.log_rest_N[rows].float()[:, None]
        return log_rest_M1.repeat(1, self.num_classes).scatter_(1, self.classes_NT[rows].long(), log_p_MT)


def _class_ids(num_classes: int) -> torch.dtype:
    return torch.int16 if num_classes <= 2**15 else torch.int32


def _compress(logits_BC: Tensor, labels_B: Tensor, kept: int) -> TopLogits:
    log_p_BC = logits_BC.double().log_softmax(1)
    num_classes = log_p_BC.shape[1]
    labels_B1 = labels_B[:, None]
    # An infinite value makes topk keep the label.
    classes_BT = log_p_BC.scatter(1, labels_B1, torch.inf).topk(kept, dim=1).indices
    log_left_B = log_p_BC.scatter(1, classes_BT, -torch.inf).logsumexp(1)
    log_rest_B = log_left_B - math.log(max(1, num_classes - kept))
    lowest = torch.finfo(_VALUES).min
    log_p_BT = log_p_BC.gather(1, classes_BT).clamp_min_(lowest)
    log_p_BT[~logits_BC.isfinite().all(1)] = torch.nan  # an infinite logit must not pass for a certain prediction
    top = TopLogits(
        num_classes=num_classes,
        classes_NT=classes_BT.to(_class_ids(num_classes)),
        log_p_NT=log_p_BT.to(_VALUES),
        log_rest_N=log_rest_B.clamp_min_(lowest).to(_VALUES),
        error_N=torch.zeros(len(log_p_BC), device=log_p_BC.device),
    )
    error_B = (log_p_BC.exp() - top[:].double().softmax(1)).norm(dim=1)
    # Stay an upper bound after the rounding of the probabilities and to float32.
    error_B = (error_B + 4 * torch.finfo(torch.float64).eps).float()
    return TopLogits.of(top.tensors() | {"error": error_B.nextafter(torch.full_like(error_B, torch.inf))}, num_classes)
