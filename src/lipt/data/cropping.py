"""Crops of images of any size, decoded for one use: a random crop for training, the centre for evaluation.

A JPEG is decoded at 1/2, 1/4 or 1/8 of its size (libjpeg's scaled decoding) if the crop still has `side` pixels then.
Shape legend: H, W pixels.
"""

import math
import random
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import simplejpeg
import torch
import torch.nn.functional as F
from torch import Tensor

from lipt.data.decoding import Pixels, is_plain, open_stored, to_rgb

_AREA, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # Szegedy et al. 2015, as in torchvision
_RESIZE = 256 / 224  # evaluation: the shorter side becomes 256 pixels for a crop of 224

_MARGIN = 16  # rows decoded below a box: colours are interpolated across rows
_BASELINE, _FRAMES = 0xC0, {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers in a JPEG


class Box(NamedTuple):
    """A part of an image, in whole pixels."""

    left: int
    top: int
    width: int
    height: int


def random_box(width: int, height: int, rng: random.Random) -> Box:
    """RandomResizedCrop's box: 8 to 100 % of the area, aspect ratio 3:4 to 4:3; the centre if ten draws do not fit."""
    for _ in range(10):
        area = width * height * rng.uniform(*_AREA)
        ratio = math.exp(rng.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return Box(rng.randint(0, width - w), rng.randint(0, height - h), w, h)
    return _centre(width, height, min(width, round(height * _RATIO[1])), min(height, round(width / _RATIO[0])))


def centre_box(width: int, height: int) -> Box:
    """The box of the central 224 x 224 pixels after the shorter side is resized to 256."""
    side = max(1, round(min(width, height) / _RESIZE))
    return _centre(width, height, side, side)


def _centre(width: int, height: int, w: int, h: int) -> Box:
    return Box((width - w) // 2, (height - h) // 2, w, h)


@dataclass(frozen=True, kw_only=True)
class Crops:
    """Decodes crops: random ones with a seed, else the centre."""

    side: int
    """Of the result, in pixels."""
    flip: bool
    """Mirror half of the random crops."""

    def decode(self, data: bytes, name: str, seed: int | None) -> Tensor:
        """A crop of a stored JPEG or PNG file, resized (bilinear, antialiased): uint8 (3, side, side), channels last.

        Raises:
            RunError: the image cannot be decoded; the message names `name`.
        """
        rng = None if seed is None else random.Random(seed)
        with open_stored(data, name) as image:
            is_plain_jpeg = image.format == "JPEG" and is_plain(image, data)
            if not is_plain_jpeg:
                image = to_rgb(image)
            box = random_box(*image.size, rng) if rng else centre_box(*image.size)
            by = _reduction(box, self.side) if is_plain_jpeg else 1
            pixels_HW3 = _decode_part(data, *image.size, box, by) if is_plain_jpeg else np.array(image)
            if pixels_HW3 is None:  # Pillow reads what it let into the chunk store
                by, pixels_HW3 = 1, np.array(to_rgb(image))
        width, height = round(box.width / by), round(box.height / by)
        left = min(round(box.left / by), pixels_HW3.shape[1] - width)
        top = min(round(box.top / by), pixels_HW3.shape[0] - height)
        # Channels last in memory, without gaps: torch resizes this layout 1.4 to 3 times faster than others.
        crop_HW3 = torch.from_numpy(np.ascontiguousarray(pixels_HW3[top : top + height, left : left + width]))
        size = self.side, self.side
        crop_3SS = F.interpolate(crop_HW3[None].permute(0, 3, 1, 2), size, mode="bilinear", antialias=True)[0]
        return crop_3SS.flip(2) if rng and self.flip and rng.random() < 0.5 else crop_3SS


def _reduction(box: Box, side: int) -> int:
    return next((by for by in (8, 4, 2) if min(box.width, box.height) >= by * side), 1)


def _decode_part(data: bytes, width: int, height: int, box: Box, by: int) -> Pixels | None:
    """The same pixels as Pillow, in 3/4 of its time and in parallel threads; rows below the box may be missing.

    None: simplejpeg refuses the file, for example for a warning about its header.
    """
    rows = min(height, box.top + box.height + _MARGIN)
    try:
        shown = _first_rows(data, rows)
        pixels_HW3: Pixels = simplejpeg.decode_jpeg(
            shown,
            "RGB",
            # The smallest of libjpeg's scales is used, eighths, that gives both: too few rows would allow another one.
            min_width=math.ceil(width / by),
            min_height=math.ceil((height if shown is data else rows) / by),
            strict=False,  # as for Pillow, superfluous bytes are no error
        )
    except (ValueError, LookupError):
        return None
    return pixels_HW3


def _first_rows(data: bytes, rows: int) -> bytes:
    """A baseline JPEG whose header announces fewer rows, so that decoding ends there; other JPEGs unchanged."""
    at = 2
    while data[at + 1] not in _FRAMES:
        if data[at] != 0xFF:  # stray bytes: Pillow skips them
            return data
        is_filled = data[at + 1] == 0xFF  # any number of such bytes may come before a marker
        at += 1 if is_filled else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return data[: at + 5] + rows.to_bytes(2, "big") + data[at + 7 :] if data[at + 1] == _BASELINE else data
