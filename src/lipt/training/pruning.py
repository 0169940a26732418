"""One-shot pruning of convolution and linear weights; biases, BatchNorm and frozen weights are never pruned."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from lipt.rng import generator, global_seed

PruningMethod = Literal["magnitude", "random", "snip", "none"]


def prunable(model: nn.Module) -> dict[str, Tensor]:
    """The weights that pruning may zero, by name: those that are trained, and weights of several layers only once."""
    layers = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
    return {name: weight for name, weight in model.named_parameters() if name in layers and weight.requires_grad}


def draw_density(low: float, high: float, *, seed: int) -> float:
    """The density of a worker, drawn from U[low, high]."""
    return low + (high - low) * float(torch.rand((), generator=generator(seed, "density")))


@torch.no_grad()
def prune(
    model: nn.Module,
    method: PruningMethod,
    density: float,
    *,
    seed: int,
    scope: Literal["global", "layer"] = "global",
    loss: Callable[[], Tensor] | None = None,
) -> float:
    """Keep the share `density` of the weights with the highest saliency and set the others to zero, in place.

    Args:
        method: `magnitude` |w| (one-shot magnitude pruning), `random`, `snip` |w dL/dw| (Lee et al. 2019, eq. 5),
            `none`.
        density: share kept, in (0, 1].
        scope: one threshold for the whole model, or one per layer.
        loss: for snip, the loss of one batch as a function of the model.

    Returns:
        The resulting density: the share of the prunable weights that is not zero; 1 if there are none.
    """
    weights = prunable(model)
    if not weights:
        return 1.0
    if method != "none":
        saliency = _saliency(model, weights, method, seed, loss)
        groups = [list(weights)] if scope == "global" else [[name] for name in weights]
        for names in groups:
            flat = torch.cat([saliency[name].flatten() for name in names])
            dropped = len(flat) - round(density * len(flat))
            mask = torch.ones_like(flat)
            mask[flat.argsort(stable=True)[:dropped]] = 0  # exact count, even if saliencies are equal
            for name, part in zip(names, mask.split([weights[name].numel() for name in names]), strict=True):
                weights[name].mul_(part.view_as(weights[name]))
    total = sum(weight.numel() for weight in weights.values())
    return sum(int(weight.count_nonzero()) for weight in weights.values()) / total


def _saliency(
    model: nn.Module, weights: dict[str, Tensor], method: PruningMethod, seed: int, loss: Callable[[], Tensor] | None
) -> dict[str, Tensor]:
    if method == "magnitude":
        return {name: weight.abs() for name, weight in weights.items()}
    if method == "random":
        rng = generator(seed, "prune")
        return {name: torch.rand(weight.shape, generator=rng).to(weight.device) for name, weight in weights.items()}
    if loss is None:
        raise ValueError("snip needs the loss of a batch")
    before = [buffer.clone() for buffer in model.buffers()]
    with torch.enable_grad(), global_seed(seed, "snip"):  # layers such as Dropout draw
        # Zero for weights that take no part in the loss.
        gradients = torch.autograd.grad(loss(), list(weights.values()), allow_unused=True, materialize_grads=True)
    for buffer, value in zip(model.buffers(), before, strict=True):
        buffer.copy_(value)  # a forward pass in train mode moves BatchNorm's statistics
    return {
        name: (weight * gradient).abs() for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
    }
