"""A network for LiPT: images, float32 (B, 3, H, W), to logits (B, num_classes)."""

from torch import Tensor, nn


class Small(nn.Module):
    """Two convolutions; the last linear layer gives the logits."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def small(num_classes: int) -> nn.Module:
    """What `model.name: my_networks:small` calls."""
    return Small(num_classes)
