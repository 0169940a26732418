"""Augmentation: random views of an image batch for training, computed for the whole batch on the training device.

Shape legend: P images, H, W pixels, D random numbers per image; images are uint8 (P, 3, H, W).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from lipt.rng import uniform


class Augment(Protocol):
    """A random view of each image of a batch."""

    def __call__(self, images: Tensor, rows_P: Tensor, seed: int, /) -> Tensor:
        """uint8 (P, 3, H, W) in and out, on the device of `images`.

        Args:
            rows_P: int64 (P,) on the CPU, the row of each image in the image set.
            seed: seed of this epoch. The view of an image depends on the seed and its row alone, not on the batch, the
                device or the number of processes.
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

    def __call__(self, images: Tensor, rows_P: Tensor, seed: int, /) -> Tensor:
        draws_PD = uniform(rows_P, 3, seed, "standard")
        if self.resized:
            images = _resized_crop(images, uniform(rows_P, 2 * _CROP_ATTEMPTS + 2, seed, "crop"))
        padding = 0 if self.resized else self.padding
        offsets_P2 = (draws_PD[:, :2] * (2 * padding + 1)).long()
        return _view(images, offsets_P2, (draws_PD[:, 2] < 0.5) & self.flip, padding)


def no_augmentation(images: Tensor, _rows_P: Tensor, _seed: int, /) -> Tensor:
    """The images themselves."""
    return images


def normalise(images: Tensor) -> Tensor:
    """uint8 (P, 3, H, W) to float32, channels last in memory: convolutions are 1.4x faster on CPU and GPU."""
    mean, std = _statistics(images.device)
    return (images.contiguous(memory_format=torch.channels_last).float() - mean) / std


@cache
def _statistics(device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the pixels, (3, 1, 1); on the device once, since each copy to it would wait."""
    return (
        torch.tensor(_MEAN, device=device).view(3, 1, 1) * 255,
        torch.tensor(_STD, device=device).view(3, 1, 1) * 255,
    )


def _view(images: Tensor, offsets_P2: Tensor, mirrored_P: Tensor, padding: int) -> Tensor:
    """The window at `offsets_P2` of each zero-padded image, mirrored where `mirrored_P` says so."""
    device, (count, _, height, width) = images.device, images.shape
    top_P1, left_P1 = offsets_P2.to(device, non_blocking=True).split(1, dim=1)
    rows_PH = top_P1 + torch.arange(height, device=device)
    columns_PW = left_P1 + torch.arange(width, device=device)
    columns_PW = torch.where(mirrored_P.to(device, non_blocking=True)[:, None], columns_PW.flip(1), columns_PW)
    batch = torch.arange(count, device=device)[:, None, None]
    padded = F.pad(images, [padding] * 4)
    # Advanced indexing puts channels last.
    return padded[batch, :, rows_PH[:, :, None], columns_PW[:, None, :]].permute(0, 3, 1, 2)


#: Boxes that RandomResizedCrop draws before it takes the whole image, cut to an allowed aspect ratio.
_CROP_ATTEMPTS = 10


def crop_box(height: int, width: int, draws: list[float]) -> tuple[int, int, int, int]:
    """The box (top, left, height, width) of a RandomResizedCrop of .08-1 of the area and an aspect ratio of 3/4-4/3.

    Args:
        draws: 22 numbers in [0, 1): area and ratio of each attempt, then the position.
    """
    ratios = 3 / 4, 4 / 3
    for area, ratio in zip(draws[: 2 * _CROP_ATTEMPTS : 2], draws[1 : 2 * _CROP_ATTEMPTS : 2], strict=True):
        pixels = height * width * (0.08 + 0.92 * area)
        aspect = math.exp(math.log(ratios[0]) + ratio * (math.log(ratios[1]) - math.log(ratios[0])))
        w, h = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(draws[-2] * (height - h + 1)), int(draws[-1] * (width - w + 1)), h, w
    aspect = min(max(width / height, ratios[0]), ratios[1])
    w, h = min(width, round(height * aspect)), min(height, round(width / aspect))
    return (height - h) // 2, (width - w) // 2, h, w


def _resized_crop(images: Tensor, draws_PD: Tensor) -> Tensor:
    height, width = images.shape[2:]
    views = []
    for image, draws in zip(images, draws_PD.tolist(), strict=True):
        top, left, h, w = crop_box(height, width, draws)
        crop = image[None, :, top : top + h, left : left + w]
        views.append(F.interpolate(crop, [height, width], mode="bilinear", antialias=True))
    return torch.cat(views) if views else images
