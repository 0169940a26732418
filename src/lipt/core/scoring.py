"""One forward pass over the candidates: all that the selection algorithms need of a model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from lipt.core.nets import logits_and_features
from lipt.core.selection import Outputs
from lipt.core.training import ImageSet, evaluation_batch, forward_batches


@torch.no_grad()
def score(
    model: nn.Module,
    images: ImageSet,
    *,
    device: torch.device,
    batch_size: int | None = None,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> Outputs:
    """Logits (N, C) and penultimate features (N, D), float32 on the CPU; eval mode, clean view.

    The result does not depend on `batch_size` beyond float32 rounding: nothing is averaged over a batch.
    """
    model.eval()
    logits, features, done = [], [], 0
    for x, _ in forward_batches(images, batch_size or evaluation_batch(device), device):
        logits_BC, features_BD = logits_and_features(model, x)
        logits.append(logits_BC.float().cpu())
        features.append(features_BD.float().cpu())
        done += len(x)
        advance(done, len(images))
    return Outputs(logits_NC=torch.cat(logits), features_ND=torch.cat(features))


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
