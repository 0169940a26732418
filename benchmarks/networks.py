"""Networks that only the experiments train."""

from torch import nn


def convnet(num_classes: int) -> nn.Module:
    """Plain convolutions without shortcuts: three times 32 filters of 3 x 3, instance normalisation, ReLU and average
    pooling. The usual network of dataset distillation (Gidaris & Komodakis 2018), but a quarter as wide.
    For images whose side is a multiple of 8.
    """
    width = 32
    blocks = [
        layer
        for channels in (3, width, width)
        for layer in (
            nn.Conv2d(channels, width, 3, padding=1),
            nn.GroupNorm(width, width),  # one channel a group: instance normalisation
            nn.ReLU(),
            nn.AvgPool2d(2),
        )
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, num_classes))
