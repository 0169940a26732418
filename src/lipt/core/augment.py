"""Views of an image batch: what training, scoring and evaluation see.

Shape legend: B batch, H, W pixels; images are uint8 (B, 3, H, W) on the CPU or on the training device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lipt.core.rng import derive, generator, global_seed

#: uint8 batch and stream seed in, uint8 batch out.
Augment = Callable[[Tensor, int], Tensor]

# ImageNet's channel statistics. BatchNorm behind the first convolution absorbs what they miss on another data set, and
# constants spare every pod a pass over the data.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Standard:
    """Shift by up to `padding` pixels (zero padding) and flip; or RandomResizedCrop and flip when `resized`."""

    padding: int
    flip: bool
    resized: bool

    def __call__(self, images: Tensor, seed: int) -> Tensor:
        rng = generator(seed, "standard")
        if self.resized:
            images = _resized_crop(images, seed)
        elif self.padding:
            images = _shift(images, self.padding, rng)
        if self.flip:
            mirrored = torch.rand(len(images), generator=rng).to(images.device) < 0.5
            images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
        return images


@dataclass(frozen=True, kw_only=True)
class RandAugment:
    """RandAugment (Cubuk et al. 2020; torchvision's 14 operations), one draw per image, after `first` if given.

    On small images it replaces shift and flip; on ImageNet it follows RandomResizedCrop and flip (method.md section 2).
    """

    num_ops: int
    magnitude: int
    first: Augment | None = None

    def __call__(self, images: Tensor, seed: int) -> Tensor:
        from torchvision.transforms.v2 import RandAugment as Transform  # here: a slow import that --help need not pay

        if self.first is not None:
            images = self.first(images, seed)
        transform = Transform(num_ops=self.num_ops, magnitude=self.magnitude)
        with global_seed(seed, "randaugment"):
            return torch.stack([transform(image) for image in images])


def unchanged(images: Tensor, _seed: int) -> Tensor:
    """No augmentation: the clean view."""
    return images


def normalise(images: Tensor) -> Tensor:
    """uint8 (B, 3, H, W) to float32, channels last in memory (1.4x faster convolutions on CPU and GPU)."""
    mean = torch.tensor(_MEAN, device=images.device).view(3, 1, 1) * 255
    std = torch.tensor(_STD, device=images.device).view(3, 1, 1) * 255
    return ((images.float() - mean) / std).contiguous(memory_format=torch.channels_last)


def _shift(images: Tensor, padding: int, rng: torch.Generator) -> Tensor:
    B, _, H, W = images.shape
    padded = F.pad(images, [padding] * 4)
    offsets = torch.randint(0, 2 * padding + 1, (2, B), generator=rng).to(images.device)
    rows = (offsets[0, :, None] + torch.arange(H, device=images.device))[:, :, None]
    columns = (offsets[1, :, None] + torch.arange(W, device=images.device))[:, None, :]
    batch = torch.arange(B, device=images.device)[:, None, None]
    return padded[batch, :, rows, columns].permute(0, 3, 1, 2)  # advanced indexing puts channels last


def _resized_crop(images: Tensor, seed: int) -> Tensor:
    from torchvision.transforms.v2 import RandomResizedCrop

    transform = RandomResizedCrop(tuple(images.shape[2:]), antialias=True)
    with global_seed(seed, "crop"):
        return torch.stack([transform(image) for image in images])


def batch_seed(seed: int, epoch: int, step: int) -> int:
    """The stream of one batch: augmentation of a resumed epoch equals that of an uninterrupted one."""
    return derive(seed, "augment", epoch, step)
