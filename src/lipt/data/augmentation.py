"""Augmentation: random views of an image batch for training, computed for the whole batch on the training device.

Shape legend: P images, H, W pixels, D random numbers per image; images are uint8 (P, 3, H, W).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from lipt.data.images import to_device
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
    """Shift by up to `padding` pixels (zero padding) and flip."""

    padding: int
    flip: bool

    def __call__(self, images: Tensor, rows_P: Tensor, seed: int, /) -> Tensor:
        draws_PD = uniform(rows_P, 3, seed, "standard")
        offsets_P2 = (draws_PD[:, :2] * (2 * self.padding + 1)).long()
        mirrored_P1 = (draws_PD[:, 2:] < 0.5) & self.flip
        return _view(images, torch.cat([offsets_P2, mirrored_P1], 1), self.padding)


def no_augmentation(images: Tensor, _rows_P: Tensor, _seed: int, /) -> Tensor:
    """The images themselves."""
    return images


def normalise(images: Tensor) -> Tensor:
    """uint8 (P, 3, H, W) to float32, channels last in memory: convolutions are 1.4x faster on CPU and GPU."""
    mean, std = pixel_statistics(images.device)
    # In place: a batch of photographs is larger than a cache.
    return images.contiguous(memory_format=torch.channels_last).float().sub_(mean).div_(std)


@cache
def pixel_statistics(device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the pixels (0 to 255), (3, 1, 1); copied to the device once: each copy waits."""
    return (
        torch.tensor(_MEAN, device=device).view(3, 1, 1) * 255,
        torch.tensor(_STD, device=device).view(3, 1, 1) * 255,
    )


def _view(images: Tensor, drawn_P3: Tensor, padding: int) -> Tensor:
    """The window of each zero-padded image at a row and a column, mirrored where the third number is 1."""
    device, (count, _, height, width) = images.device, images.shape
    top_P1, left_P1, mirrored_P1 = to_device(drawn_P3, device).split(1, dim=1)
    rows_PH = top_P1 + torch.arange(height, device=device)
    columns_PW = left_P1 + torch.arange(width, device=device)
    columns_PW = torch.where(mirrored_P1.bool(), columns_PW.flip(1), columns_PW)
    batch = torch.arange(count, device=device)[:, None, None]
    padded = F.pad(images, [padding] * 4)
    # Advanced indexing puts channels last.
    return padded[batch, :, rows_PH[:, :, None], columns_PW[:, None, :]].permute(0, 3, 1, 2)
