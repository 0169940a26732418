"""RaPTr: train random subnetworks that grow in stages to the full network (Panigrahi et al., ICLR 2025).

Only a block that adds to its input can be skipped: then its output is its input. Which blocks a step skips is a
function of (seed, epoch, step): a resumed training and every process of a shared one draw the same.

Shape legend: D blocks that may be skipped, S steps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lipt.data.augmentation import Augment
from lipt.data.images import ImageSet
from lipt.errors import UsageError
from lipt.rng import uniform
from lipt.training.distributed import alone
from lipt.training.flops import CountFlops
from lipt.training.forward import recalibrate_batchnorm
from lipt.training.precision import Precision


@dataclass(frozen=True, kw_only=True)
class RaptrSchedule:
    """The schedule of the subnetworks."""

    keep: tuple[float, ...]
    """For each stage, the probability p that a block runs. All stages have the same number of steps."""
    fixed_first: int = 0
    """This many of the first blocks that could be skipped always run."""
    fixed_last: int = 0
    rescale: Literal["inverse", "inverse_sqrt"] = "inverse"
    """The output that a block adds to its input is multiplied by 1/p (then its mean is the same as in the full network)
    or by 1/sqrt(p) (then its mean square is)."""

    def choose(self, skippable: list[str]) -> list[str]:
        """The blocks that steps may skip, of all that can be skipped, in the order of the network.

        Raises:
            UsageError: there is none.
        """
        chosen = skippable[self.fixed_first : max(0, len(skippable) - self.fixed_last)]
        if not chosen:
            raise UsageError(
                f"raptr: the network has {len(skippable)} blocks that can be skipped; "
                f"fixed_first {self.fixed_first} and fixed_last {self.fixed_last} leave none",
                "lower them; if there is no such block, set raptr: null or use another model",
            )
        return chosen

    def keep_at(self, share_S: Tensor) -> Tensor:
        """p after these shares of all steps, float64 (S,)."""
        stages = len(self.keep)
        return torch.tensor(self.keep, dtype=torch.float64)[(share_S * stages).long().clamp(max=stages - 1)]

    def draw(self, count: int, seed: int, epoch: int, steps_S: Tensor, share_S: Tensor) -> Tensor:
        """Which of `count` blocks run, bool (S, D), in these steps of an epoch, after these shares of all steps."""
        return uniform(steps_S, count, seed, "raptr", epoch) < self.keep_at(share_S)[:, None]

    def factor(self, p: float) -> float:
        """The factor of the output of a block that runs."""
        return 1 / p if self.rescale == "inverse" else p**-0.5

    def skipped_images(
        self, blocks: Sequence[str], seed: int, epochs: int, sizes: Sequence[int], steps: int | None
    ) -> dict[str, int]:
        """For each block the number of images that will skip it, in epochs of batches of these sizes.

        Args:
            steps: steps of the whole training, if the last epoch ends early; None: it does not.
        """
        total, skipped_D = steps or epochs * len(sizes), torch.zeros(len(blocks), dtype=torch.int64)
        for epoch in range(epochs):
            sizes_S = torch.tensor(sizes[: total - epoch * len(sizes)])
            steps_S = torch.arange(len(sizes_S))
            share_S = (epoch * len(sizes) + steps_S.double()) / total
            runs_SD = self.draw(len(blocks), seed, epoch, steps_S, share_S)
            skipped_D += (~runs_SD * sizes_S[:, None]).sum(0)
        return dict(zip(blocks, skipped_D.tolist(), strict=True))


class Subnetworks:
    """The subnetworks of `model`; without `raptr`, always the full network.

    Args:
        seed: of the training.

    Raises:
        UsageError: no block may be skipped.
    """

    def __init__(self, model: nn.Module, raptr: RaptrSchedule | None, *, seed: int) -> None:
        self.model, self.raptr, self.seed = model, raptr, seed
        self.blocks = raptr.choose(skippable_blocks(model)) if raptr else []

    @contextmanager
    def drawn(self, epoch: int, step: int, share: float) -> Iterator[list[str]]:
        """Inside the block, the model is the subnetwork of this step. Gives the names of the skipped blocks."""
        if self.raptr is None:
            yield []
            return
        share_S = torch.tensor([share], dtype=torch.float64)
        p = float(self.raptr.keep_at(share_S))
        (runs_D,) = self.raptr.draw(len(self.blocks), self.seed, epoch, torch.tensor([step]), share_S).tolist()
        skipped = [name for name, runs in zip(self.blocks, runs_D, strict=True) if not runs]
        kept = [name for name, runs in zip(self.blocks, runs_D, strict=True) if runs]
        with without(self.model, skipped), _rescaled(self.model, kept, self.raptr.factor(p)):
            yield skipped


def branch_ends(block: nn.Module) -> tuple[str, ...]:
    """Names of the modules whose outputs `block` adds to its input; empty if it cannot be skipped.

    Our blocks, and a user's, say so in an attribute of this name. torchvision's residual blocks are known.
    """
    resnet = sys.modules.get("torchvision.models.resnet")  # a network that has these blocks has imported it
    if resnet is not None and isinstance(block, resnet.BasicBlock | resnet.Bottleneck):
        last = "bn3" if isinstance(block, resnet.Bottleneck) else "bn2"
        return (last,) if block.downsample is None else ()
    named = getattr(block, "branch_ends", ())
    return (named,) if isinstance(named, str) else tuple(named)


def skippable_blocks(model: nn.Module) -> list[str]:
    """Names of the blocks that can be skipped, in the order of the network.

    Raises:
        UsageError: a block names a module that it does not have, or lies in another one: it would be skipped twice.
    """
    blocks = {name: block for name, block in model.named_modules() if branch_ends(block)}
    for name, block in blocks.items():
        if outer := next((other for other in blocks if name.startswith(f"{other}.")), None):
            raise UsageError(f"raptr: block {name} lies in block {outer}", "remove the branch_ends of one of them")
        modules = dict(block.named_modules())
        if absent := [end for end in branch_ends(block) if end not in modules]:
            kind = type(block).__name__
            raise UsageError(f"raptr: {name} has no module {absent[0]!r}", f"correct the branch_ends of {kind}")
    return list(blocks)


@contextmanager
def without(model: nn.Module, blocks: Sequence[str]) -> Iterator[None]:
    """Inside the block, these blocks of the model give back their input and compute nothing."""
    modules = [model.get_submodule(name) for name in blocks]
    for module in modules:
        vars(module)["forward"] = _identity  # found before the method of the class
    try:
        yield
    finally:
        for module in modules:
            del vars(module)["forward"]


def _identity(x: Tensor, *_others: object, **_named: object) -> Tensor:
    """A block may get more than its input, such as a mask."""
    return x


@contextmanager
def _rescaled(model: nn.Module, blocks: Sequence[str], factor: float) -> Iterator[None]:
    """Inside the block, the output that these blocks add to their input is multiplied by `factor`."""
    with ExitStack() as hooks:
        for name in blocks if factor != 1 else ():
            block = model.get_submodule(name)
            for end in branch_ends(block):
                handle = block.get_submodule(end).register_forward_hook(partial(_multiply, factor))
                hooks.callback(handle.remove)
        yield


def _multiply(factor: float, _module: nn.Module, _inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    return output * factor


def block_flops(model: nn.Module, blocks: Sequence[str], shape: tuple[int, int, int]) -> dict[str, int]:
    """FLOPs (forward + backward) of these blocks, per image of this shape."""
    modes = {module: module.training for module in model.modules()}
    inputs: dict[str, Tensor] = {}
    with ExitStack() as hooks:
        for name in blocks:
            handle = model.get_submodule(name).register_forward_pre_hook(partial(_remember, inputs, name))
            hooks.callback(handle.remove)
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape, device=next(model.parameters()).device))
    known: dict[object, int] = {}
    counts: dict[str, int] = {}
    for name in blocks:
        block, x = model.get_submodule(name), inputs[name]
        form = type(block), x.shape, tuple(parameter.shape for parameter in block.parameters())
        if form not in known:
            with torch.enable_grad(), CountFlops() as counted:
                block(x.clone().requires_grad_()).sum().backward()
            known[form] = counted.total
        counts[name] = known[form]
    model.zero_grad(set_to_none=True)
    for module, mode in modes.items():
        module.training = mode
    return counts


def _remember(inputs: dict[str, Tensor], name: str, _module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
    inputs[name] = arguments[0]


def saved_flops(model: nn.Module, skipped: Mapping[str, int], shape: tuple[int, int, int]) -> int:
    """FLOPs that a training saved by skipping blocks.

    Args:
        skipped: name of a block -> number of images that skipped it.
    """
    return sum(skipped[name] * flops for name, flops in block_flops(model, list(skipped), shape).items())


#: Number of training images from which BatchNorm statistics are computed anew, and images per batch.
_RECALIBRATED, _BATCH = 2048, 128


def recalibrate(
    model: nn.Module,
    images: ImageSet,
    *,
    augment: Augment,
    seed: int,
    device: torch.device,
    precision: Precision,
) -> int:
    """Compute the BatchNorm statistics of the full network; those of the training mix its subnetworks.

    Only the process that stores or evaluates the model needs to call this.

    Args:
        augment: as in the training. Statistics of images without it gave lower accuracies (docs/results).

    Returns:
        The number of images that were forwarded; 0 if the network has no BatchNorm.
    """
    if not has_batchnorm(model):
        return 0
    count = recalibration_images(len(images))
    part = images.subset(torch.arange(count))
    with alone(model):
        recalibrate_batchnorm(
            model, part, device=device, precision=precision, batch_size=_BATCH, augment=augment, seed=seed
        )
    return count


def has_batchnorm(model: nn.Module) -> bool:
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def recalibration_images(n: int) -> int:
    """How many of n images `recalibrate` forwards: full batches, because BatchNorm cannot train on a single image."""
    return min(n, max(_BATCH, min(n, _RECALIBRATED) // _BATCH * _BATCH))
