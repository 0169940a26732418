"""scikit-learn's 1,797 handwritten digits of 8x8 pixels: needs no download."""

from __future__ import annotations

import hashlib

import numpy as np
from PIL import Image

from lipt.core.decoding import encode_png
from lipt.core.sources.base import Source


class DigitsSource(Source):
    """Grey PNGs; the original values 0..16 are scaled to 0..255."""

    name = "digits"

    def __init__(self) -> None:
        from sklearn.datasets import load_digits  # half a second to import

        digits = load_digits()
        self.classes = [str(name) for name in digits.target_names]
        self.splits = {"train": digits.target.astype(np.int64)}
        self.names = {"train": [f"digits/{i:04d}.png" for i in range(len(digits.target))]}
        self._images_NHW = np.round(digits.images * (255 / 16)).astype(np.uint8)

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        return encode_png(Image.fromarray(self._images_NHW[i])), "png"

    def fingerprint(self) -> str:
        return hashlib.sha256(self._images_NHW.tobytes() + self.splits["train"].tobytes()).hexdigest()
