"""A tiny learnable image set: class c is a bright block in corner c, plus noise."""

from __future__ import annotations

import torch

from lipt.core.images import ResidentImages


def blocks(n: int = 96, classes: int = 4, side: int = 8, seed: int = 0) -> ResidentImages:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    images = torch.randint(0, 120, (n, 3, side, side), generator=rng, dtype=torch.uint8)
    half = side // 2
    for index, label in enumerate(labels.tolist()):
        row, column = half * (label // 2 % 2), half * (label % 2)
        images[index, :, row : row + half, column : column + half] += 130
    return ResidentImages(images_NCHW=images, labels_N=labels)
