"""One forward pass over the candidates: all that the selection algorithms need of a model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lipt.core.nets import logits_and_features
from lipt.core.selection import Outputs
from lipt.core.selection.compressed import TopLogits
from lipt.core.training import ImageSet, evaluation_batch, forward_batches


@torch.no_grad()
def score(
    model: nn.Module,
    images: ImageSet,
    *,
    device: torch.device,
    batch_size: int | None = None,
    top_classes: int | None = None,
    dtype: torch.dtype = torch.float32,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> Outputs:
    """Logits (N, C) and penultimate features (N, D) on the CPU; eval mode, clean view.

    The result does not depend on `batch_size` beyond float32 rounding: nothing is averaged over a batch.

    Args:
        top_classes: keep the logits of the label and of so many other classes (`TopLogits`), where that is smaller.
        dtype: of the features, and of logits that are kept whole.
    """
    model.eval()
    rows, top, start = _Rows(len(images), dtype), [], 0
    for x, labels_B in forward_batches(images, batch_size or evaluation_batch(device), device):
        logits_BC, features_BD = (tensor_BX.float().cpu() for tensor_BX in logits_and_features(model, x))
        if top_classes and TopLogits.row_bytes(logits_BC.shape[1], top_classes) < logits_BC.shape[1] * dtype.itemsize:
            top.append(TopLogits.compress(logits_BC, labels_B.cpu(), top_classes))
        else:
            rows.put("logits", start, logits_BC)
        rows.put("features", start, features_BD)
        start += len(x)
        advance(start, len(images))
    return Outputs(logits_NC=TopLogits.cat(top) if top else rows.filled["logits"], features_ND=rows.filled["features"])


class _Rows:
    """Matrices that are filled batch by batch: memory for the whole once, not twice as when batches are joined."""

    def __init__(self, n: int, dtype: torch.dtype) -> None:
        self.n, self.dtype = n, dtype
        self.filled: dict[str, Tensor] = {}

    def put(self, name: str, start: int, batch_BX: Tensor) -> None:
        if name not in self.filled:
            self.filled[name] = torch.empty(self.n, batch_BX.shape[1], dtype=self.dtype)
        self.filled[name][start : start + len(batch_BX)] = batch_BX


@torch.no_grad()
def recalibrate_batchnorm(model: nn.Module, images: ImageSet, *, device: torch.device, batch_size: int = 128) -> None:
    """Replace all running statistics by averages over one pass in train mode (method.md section 3, point 5)."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [module.momentum for module in norms]
    for module in norms:
        module.reset_running_stats()
        module.momentum = None  # cumulative average instead of a moving one
    model.train()
    for x, _ in forward_batches(images, batch_size, device):
        model(x)
    for module, momentum in zip(norms, momenta, strict=True):
        module.momentum = momentum
    model.eval()
