"""A small vision transformer (Dosovitskiy et al. 2021) for images from 4 to 64 pixels.

Shape legend: B batch, T patches, D width, H heads, C classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lipt.errors import UsageError

_PATCH, _LARGEST, _HEAD = 4, 64, 16
"""Side of a patch and of the largest image, in pixels; width of an attention head."""


class TransformerBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x)): layer norms come first (pre-LN; eq. 2 and 3)."""

    branch_ends = ("project", "shrink")

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // _HEAD
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x_BTD)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed_BTD = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x_BTD = x_BTD + self.project(mixed_BTD)
        change_BTD: Tensor = self.shrink(F.gelu(self.grow(self.norm2(x_BTD))))
        return x_BTD + change_BTD


class VisionTransformer(nn.Module):
    """Patches of 4 x 4 pixels, learned positions, pre-LN blocks, mean over the patches, one linear layer.

    Args:
        width: D, a multiple of 16.

    Raises:
        UsageError: the width is no multiple of 16.
    """

    def __init__(self, num_classes: int, width: int, depth: int) -> None:
        super().__init__()
        if width % _HEAD:
            raise UsageError(
                f"model.width: {width} cannot be divided into attention heads of {_HEAD}", f"use a multiple of {_HEAD}"
            )
        side = _LARGEST // _PATCH
        self.patches = nn.Conv2d(3, width, _PATCH, _PATCH)
        self.positions = nn.Parameter(torch.empty(side, side, width))
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.blocks = nn.Sequential(*[TransformerBlock(width) for _ in range(depth)])
        self.final_norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, num_classes)

    def check_size(self, height: int, width: int) -> None:
        """
        Raises:
            UsageError: images are larger than 64 pixels, or a side is no multiple of 4: the last patches would be
                missing.
        """
        if max(height, width) > _LARGEST:
            raise UsageError(
                f"vit_small takes images of up to {_LARGEST} pixels, not {max(height, width)}", "set data.image_size"
            )
        if height % _PATCH or width % _PATCH:
            raise UsageError(
                f"vit_small divides images into patches of {_PATCH} x {_PATCH} pixels, "
                f"which do not fill {width} x {height}",
                f"set data.image_size to a multiple of {_PATCH}",
            )

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, C) of images (B, 3, height, width).

        Raises:
            UsageError: as `check_size`.
        """
        self.check_size(*x.shape[2:])
        patches_BDhw: Tensor = self.patches(x)
        height, width = patches_BDhw.shape[2:]
        positions_TD = self.positions[:height, :width].flatten(0, 1)
        x_BTD = patches_BDhw.flatten(2).transpose(1, 2) + positions_TD
        logits: Tensor = self.classifier(self.final_norm(self.blocks(x_BTD)).mean(1))
        return logits
