"""A trained network as a program of its own (`torch.export`): it needs PyTorch, but neither LiPT nor its own code."""

from __future__ import annotations

import io
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lipt.data.augmentation import pixel_statistics
from lipt.errors import RunError, in_one_line
from lipt.training.precision import plain_layers


class _FromPixels(nn.Module):
    """Normalises images as training and evaluation do, then runs the network."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        mean, std = pixel_statistics(torch.device("cpu"))
        self.network = network
        self.register_buffer("mean", mean.clone())
        self.register_buffer("std", std.clone())

    def forward(self, images: Tensor) -> Tensor:
        """uint8 (N, 3, H, W) -> logits (N, C)."""
        normalised = images.contiguous(memory_format=torch.channels_last).float().sub(self.mean).div(self.std)
        logits: Tensor = self.network(normalised)
        return logits


def program(network: nn.Module, shape: tuple[int, int, int], files: Mapping[str, str]) -> bytes:
    """A file for `torch.export.load`: a function of N images, uint8 RGB (N, 3, H, W), that gives logits (N, C).

    Args:
        network: on the CPU; afterwards it is in eval mode and has plain layers.
        shape: (3, H, W) of the images.
        files: further texts of the file, by name.

    Raises:
        RunError: `torch.export` cannot trace the network.
    """
    whole = _FromPixels(plain_layers(network)).eval()
    example = torch.zeros(2, *shape, dtype=torch.uint8)  # two: torch takes a size of 1 for a constant
    try:
        with torch.no_grad():
            sizes = ({0: torch.export.Dim("N", min=1)},)
            traced = torch.export.export(whole, (example,), dynamic_shapes=sizes, strict=False)
    except Exception as error:  # of the network's own code, or one of torch's many kinds
        raise RunError(
            f"torch.export cannot trace the network: {in_one_line(error)}",
            "change what it names, or load weights.safetensors into the network itself",
        ) from None
    buffer = io.BytesIO()
    torch.export.save(traced, buffer, extra_files=dict(files))
    return buffer.getvalue()
