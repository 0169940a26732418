"""Augmentation: random views of an image batch for training.

Shape legend: B batch, H, W pixels; images are uint8 (B, 3, H, W) on the CPU or on the training device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from lipt.rng import derive, generator, global_seed


@dataclass(frozen=True, kw_only=True)
class BatchPart:
    """The images of a batch that one process has, if several processes train on the batch together."""

    rows_P: Tensor
    """int64 (P,), positions of these images in the batch."""
    size: int
    """B, images in the whole batch."""

    @classmethod
    def whole(cls, size: int) -> BatchPart:
        return cls(rows_P=torch.arange(size), size=size)


class Augment(Protocol):
    """A random view of a batch."""

    def __call__(self, images: Tensor, seed: int, part: BatchPart | None = None, /) -> Tensor:
        """uint8 (P, 3, H, W) in and out.

        Args:
            seed: seed of this batch.
            part: says which images of the batch `images` are; None = all. The view of an image depends on its position
                in the batch, not on how the batch is divided.
        """
        ...


# ImageNet's channel statistics. On another data set, BatchNorm after the first convolution corrects the difference.
# With constants, no pod needs a pass over the data.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class StandardAugment:
    """Shift by up to `padding` pixels (zero padding) and flip; or RandomResizedCrop and flip when `resized`."""

    padding: int
    flip: bool
    resized: bool

    def __call__(self, images: Tensor, seed: int, part: BatchPart | None = None, /) -> Tensor:
        rng = generator(seed, "standard")
        part = part or BatchPart.whole(len(images))
        if self.resized:
            images = _resized_crop(images, seed, part)
        elif self.padding:
            images = _shift(images, self.padding, rng, part)
        if self.flip:
            mirrored = torch.rand(part.size, generator=rng)[part.rows_P].to(images.device) < 0.5
            images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
        return images


@dataclass(frozen=True, kw_only=True)
class RandAugment:
    """RandAugment (Cubuk et al. 2020; torchvision's 14 operations), drawn per image, after `first` if given."""

    num_ops: int
    magnitude: int
    first: Augment | None = None

    def __call__(self, images: Tensor, seed: int, part: BatchPart | None = None, /) -> Tensor:
        from torchvision.transforms.v2 import RandAugment as Transform  # here: a slow import, not needed for --help

        if part is not None:  # rare, as jigsaws train on one process: so blank images may stand for the others
            batch = images.new_zeros(part.size, *images.shape[1:])
            batch[part.rows_P] = images
            return self(batch, seed)[part.rows_P]
        if self.first is not None:
            images = self.first(images, seed)
        transform = Transform(num_ops=self.num_ops, magnitude=self.magnitude)
        with global_seed(seed, "randaugment"):
            return torch.stack([transform(image) for image in images])


def no_augmentation(images: Tensor, _seed: int, _part: BatchPart | None = None, /) -> Tensor:
    """The images themselves."""
    return images


def normalise(images: Tensor) -> Tensor:
    """uint8 (B, 3, H, W) to float32, channels last in memory: convolutions are 1.4x faster on CPU and GPU."""
    mean = torch.tensor(_MEAN, device=images.device).view(3, 1, 1) * 255
    std = torch.tensor(_STD, device=images.device).view(3, 1, 1) * 255
    return ((images.float() - mean) / std).contiguous(memory_format=torch.channels_last)


def _shift(images: Tensor, padding: int, rng: torch.Generator, part: BatchPart) -> Tensor:
    B, _, H, W = images.shape
    padded = F.pad(images, [padding] * 4)
    offsets = torch.randint(0, 2 * padding + 1, (2, part.size), generator=rng)[:, part.rows_P].to(images.device)
    rows = (offsets[0, :, None] + torch.arange(H, device=images.device))[:, :, None]
    columns = (offsets[1, :, None] + torch.arange(W, device=images.device))[:, None, :]
    batch = torch.arange(B, device=images.device)[:, None, None]
    return padded[batch, :, rows, columns].permute(0, 3, 1, 2)  # advanced indexing puts channels last


def _resized_crop(images: Tensor, seed: int, part: BatchPart) -> Tensor:
    from torchvision.transforms.v2 import RandomResizedCrop

    transform = RandomResizedCrop(tuple(images.shape[2:]), antialias=True)
    shape_only = images.new_empty(1).expand(images.shape[1:])
    with global_seed(seed, "crop"):  # draw for the whole batch: cheap compared with resizing one image
        crops = [transform.make_params([shape_only]) for _ in range(part.size)]
    views = [transform.transform(image, crops[row]) for image, row in zip(images, part.rows_P.tolist(), strict=True)]
    return torch.stack(views) if views else images


def batch_seed(seed: int, epoch: int, step: int) -> int:
    """The seed of one batch, so that a resumed epoch draws the same augmentation as an uninterrupted one."""
    return derive(seed, "augment", epoch, step)
