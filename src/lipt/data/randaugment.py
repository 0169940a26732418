"""RandAugment (Cubuk et al. 2020) with torchvision's 14 operations, each computed for a whole batch at once.

The operations equal torchvision's pixel by pixel. They are written out here because the import of torchvision loads
torch's compiler: 6 s of CPU time in each worker pod, more than the training of a jigsaw.

Shape legend: P images, H, W pixels; images are uint8 (P, 3, H, W).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from lipt.data.images import to_device
from lipt.rng import uniform


@dataclass(frozen=True, kw_only=True)
class RandAugment:
    """`num_ops` operations per image, drawn at random; half of them get a negative magnitude.

    Args:
        magnitude: strength of the operations, 0 to 30.
    """

    num_ops: int
    magnitude: int

    def __call__(self, images: Tensor, rows_P: Tensor, seed: int, /) -> Tensor:
        images = images.clone()
        operations = operations_at(self.magnitude, *images.shape[2:])
        for number in range(self.num_ops):
            drawn_P2 = uniform(rows_P, 2, seed, "randaugment", number)
            kind_P = (drawn_P2[:, 0] * len(operations)).long()
            # Sorted on the CPU and copied once, so that the host does not wait for a GPU.
            choice_P = 2 * kind_P + (drawn_P2[:, 1] < 0.5)
            counts = choice_P.bincount(minlength=2 * len(operations)).tolist()
            parts = to_device(choice_P.argsort(stable=True), images.device).split(counts)
            for signs, positive, negative in zip(operations.values(), parts[::2], parts[1::2], strict=True):
                both = [positive, negative] if len(signs) == 2 else [torch.cat([positive, negative])]
                for which, operation in zip(both, signs, strict=True):
                    if len(which):
                        images[which] = operation(images[which])
        return images


Operation = Callable[[Tensor], Tensor]


@cache
def operations_at(magnitude: int, height: int, width: int) -> dict[str, tuple[Operation, ...]]:
    """The operations by torchvision's name: one, or one for each sign of the magnitude."""

    def level(highest: float, lowest: float = 0) -> float:
        return float(torch.linspace(lowest, highest, 31)[magnitude])

    def signed(operation: Callable[..., Tensor], value: float) -> tuple[Operation, ...]:
        return partial(operation, by=value), partial(operation, by=-value)

    return {
        "Identity": (lambda images: images,),
        "ShearX": signed(_shear_x, level(0.3)),
        "ShearY": signed(_shear_y, level(0.3)),
        "TranslateX": signed(_translate_x, level(150 / 331 * width)),
        "TranslateY": signed(_translate_y, level(150 / 331 * height)),
        "Rotate": signed(_rotate, level(30)),
        "Brightness": signed(_brightness, level(0.9)),
        "Color": signed(_color, level(0.9)),
        "Contrast": signed(_contrast, level(0.9)),
        "Sharpness": signed(_sharpness, level(0.9)),
        "Posterize": (partial(_posterize, bits=round(8 - magnitude / 7.5)),),
        "Solarize": (partial(_solarize, threshold=255 * level(0, 1)),),
        "AutoContrast": (_autocontrast,),
        "Equalize": (_equalize,),
    }


def _warp(images: Tensor, x: tuple[float, float, float], y: tuple[float, float, float]) -> Tensor:
    """Resample to the nearest pixel, zero outside: pixel p = (u, v, 1), from the centre, is read at (x . p, y . p)."""
    height, width = images.shape[2:]
    u_W = torch.linspace((1.0 - width) / 2, (width - 1.0) / 2, width, device=images.device)
    v_H = torch.linspace((1.0 - height) / 2, (height - 1.0) / 2, height, device=images.device)[:, None]
    source_x, source_y = (
        a / size * 2 * u_W + b / size * 2 * v_H + c / size * 2 for (a, b, c), size in ((x, width), (y, height))
    )
    grid = torch.stack([source_x, source_y], dim=2).expand(len(images), -1, -1, -1)
    return F.grid_sample(images.float(), grid, "nearest", "zeros", align_corners=False).to(torch.uint8)


def _shear_x(images: Tensor, by: float) -> Tensor:
    return _warp(images, (1, by, by * images.shape[2] / 2), (0, 1, 0))


def _shear_y(images: Tensor, by: float) -> Tensor:
    return _warp(images, (1, 0, 0), (by, 1, by * images.shape[3] / 2))


def _translate_x(images: Tensor, by: float) -> Tensor:
    return _warp(images, (1, 0, -int(by)), (0, 1, 0))


def _translate_y(images: Tensor, by: float) -> Tensor:
    return _warp(images, (1, 0, 0), (0, 1, -int(by)))


def _rotate(images: Tensor, by: float) -> Tensor:
    """Rotate by degrees, counter-clockwise."""
    sin, cos = math.sin(math.radians(by)), math.cos(math.radians(by))
    return _warp(images, (cos, -sin, 0), (sin, cos, 0))


def _blend(images: Tensor, other: Tensor, by: float) -> Tensor:
    """(1 + by) images - by other, cut to 0..255 and rounded down."""
    factor = 1.0 + by
    return images.mul(factor).add_(other, alpha=1.0 - factor).clamp_(0, 255).to(torch.uint8)


def _brightness(images: Tensor, by: float) -> Tensor:
    return images.mul(1.0 + by).clamp_(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.split(1, dim=1)
    grey: Tensor = red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114).floor_()
    return grey


def _color(images: Tensor, by: float) -> Tensor:
    return _blend(images, _grey(images), by)


def _contrast(images: Tensor, by: float) -> Tensor:
    return _blend(images, _grey(images).mean((1, 2, 3), keepdim=True), by)


def _sharpness(images: Tensor, by: float) -> Tensor:
    """Blends with a blurred image, except at the border."""
    if min(images.shape[2:]) <= 2:
        return images
    kernel = torch.full((3, 1, 3, 3), 1 / 13, device=images.device)
    kernel[:, :, 1, 1] = 5 / 13
    found = images.float()
    inside = found[:, :, 1:-1, 1:-1]
    blurred = F.conv2d(found, kernel, groups=3).round_()
    inside.add_(blurred.sub_(inside), alpha=1.0 - (1.0 + by))
    return found.clamp_(0, 255).to(torch.uint8)


def _posterize(images: Tensor, bits: int) -> Tensor:
    kept: Tensor = images & (256 - (1 << (8 - bits)))
    return kept


def _solarize(images: Tensor, threshold: float) -> Tensor:
    return torch.where(images >= threshold, 255 - images, images)


def _autocontrast(images: Tensor) -> Tensor:
    """Stretches each channel to 0..255; a channel of one value stays."""
    low, high = images.amin((2, 3), keepdim=True).float(), images.amax((2, 3), keepdim=True).float()
    scaled = ((images - low) / ((high - low) * (1 / 255))).clamp_(0, 255).to(torch.uint8)
    return torch.where(low == high, images, scaled)


def _equalize(images: Tensor) -> Tensor:
    """Pillow's histogram equalisation of each channel."""
    flat = images.flatten(2).long()
    histogram = torch.zeros(*flat.shape[:2], 256, dtype=torch.int64, device=images.device)
    histogram.scatter_add_(2, flat, torch.ones_like(flat))
    cumulated = histogram.cumsum(2)
    # All pixels but those of the highest value that occurs.
    others = flat.shape[2] - histogram.gather(2, cumulated.argmax(2, keepdim=True))
    step = others // 255
    table = ((cumulated + step // 2) // step.clamp(min=1)).clamp_(0, 255).roll(1, 2)
    table[:, :, 0] = 0
    return torch.where(step[..., None] == 0, images, table.gather(2, flat).view(images.shape).to(torch.uint8))
