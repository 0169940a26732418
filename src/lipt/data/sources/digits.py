"""1,797 handwritten digits of 8x8 pixels, which come with the package (digits.LICENSE)."""

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image

from lipt.data.decoding import encode_png
from lipt.data.sources.base import Source


class DigitsSource(Source, format="digits"):
    """Grey PNGs; the original values 0..16 are scaled to 0..255."""

    name = "digits"
    needs_files = False

    def __init__(self, _spec: str) -> None:
        values_NV = np.loadtxt(Path(__file__).with_name("digits.csv.gz"), delimiter=",")
        self.classes = [str(digit) for digit in range(10)]
        self.splits = {"train": values_NV[:, -1].astype(np.int64)}
        self.names = {"train": [f"digits/{i:04d}.png" for i in range(len(values_NV))]}
        self._images_NHW = np.round(values_NV[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)

    @classmethod
    def recognises(cls, spec: str) -> bool:
        return spec == cls.format

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        return encode_png(Image.fromarray(self._images_NHW[i])), "png"

    def fingerprint(self) -> str:
        return hashlib.sha256(self._images_NHW.tobytes() + self.splits["train"].tobytes()).hexdigest()
