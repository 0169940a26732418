"""One forward pass over the candidates: all that the selection algorithms need of a model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lipt.data.images import ImageSet
from lipt.selection import Outputs
from lipt.selection.compressed import TopLogits
from lipt.selection.dataset import logits_and_features
from lipt.selection.rows import RowBuffer
from lipt.training.loop import evaluation_batch, forward_batches


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
    stored, num_classes, done = RowBuffer(len(images)), 0, 0
    for x, labels_B in forward_batches(images, batch_size or evaluation_batch(device), device):
        logits_BC, features_BD = (tensor_BX.float().cpu() for tensor_BX in logits_and_features(model, x))
        num_classes = logits_BC.shape[1]
        logits: Tensor | TopLogits = logits_BC.to(dtype)
        if top_classes and TopLogits.row_bytes(num_classes, top_classes) < num_classes * dtype.itemsize:
            logits = TopLogits.compress(logits_BC, labels_B.cpu(), top_classes)
        stored.put(done, Outputs(logits_NC=logits, features_ND=features_BD.to(dtype)).tensors())
        done += len(x)
        advance(done, len(images))
    return Outputs.of(stored.tensors, num_classes)


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
