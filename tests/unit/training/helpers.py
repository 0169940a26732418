"""A tiny learnable image set (class c is a bright block in corner c, plus noise), and a tiny net."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lipt.data.images import ResidentImages


def blocks(n: int = 96, classes: int = 4, side: int = 8, seed: int = 0) -> ResidentImages:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    images = torch.randint(0, 120, (n, 3, side, side), generator=rng, dtype=torch.uint8)
    half = side // 2
    for index, label in enumerate(labels.tolist()):
        row, column = half * (label // 2 % 2), half * (label % 2)
        images[index, :, row : row + half, column : column + half] += 130
    return ResidentImages(images_NCHW=images, labels_N=labels)


class Residual(nn.Module):
    """A user's block that RaPTr can skip."""

    branch_ends = ("norm",)

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.norm(self.conv(F.gelu(x)))
        return x + change


class Smooth(nn.Module):
    """BatchNorm between smooth layers, for 8x8 images: training does not amplify rounding.

    Where ReLUs switch and BatchNorm sees few values it does, a thousandfold within a few steps: two runs of the tiny
    ResNet that start 1e-7 apart end as far from each other as runs on one and on two processes.

    Args:
        residual: number of residual blocks before the classifier.
    """

    def __init__(self, num_classes: int, *, residual: int = 0) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.GELU(),
            nn.Conv2d(8, 8, 3),
            nn.BatchNorm2d(8),
            nn.GELU(),
        ]
        self.features = nn.Sequential(*layers, *[Residual(8) for _ in range(residual)])
        self.classifier = nn.Linear(8 * 16, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).flatten(1))
        return logits


def with_dropout(num_classes: int) -> nn.Module:
    """A network whose layers draw random numbers in train mode, before a BatchNorm layer too."""
    torch.manual_seed(0)
    drawn = [nn.Conv2d(3, 8, 3), nn.Dropout(0.5), nn.BatchNorm2d(8), nn.Flatten(), nn.Dropout(0.5)]
    return nn.Sequential(*drawn, nn.Linear(8 * 36, num_classes))


def smooth_residual(num_classes: int) -> Smooth:
    """The network `Smooth` with blocks that RaPTr can skip."""
    return Smooth(num_classes, residual=2)
