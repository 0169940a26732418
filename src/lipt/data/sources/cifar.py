"""CIFAR-10 and CIFAR-100, from torchvision's folder layout or by download."""

import os
import sys
from contextlib import redirect_stdout
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
from PIL import Image

from lipt.data.decoding import encode_png
from lipt.data.sources.base import Listing, Source
from lipt.errors import RunError, TransientError


class _CifarSource(Source):
    """`cifar10`, `cifar10:FOLDER`, or FOLDER with `data.format: cifar10`; the images become lossless PNGs.

    FOLDER contains `cifar-10-batches-py` or `cifar-100-python`; otherwise they are downloaded into it, or into a cache
    folder if none is given. The files are pickles: torchvision checks their md5 before it loads them.

    Raises:
        TransientError: a download is needed and fails.
        RunError: the files are damaged, or the folder cannot be written.
    """

    needs_files = False

    def __init__(self, spec: str) -> None:
        import torchvision.datasets  # seconds to import

        self.name = name = self.format
        kind, folder = getattr(torchvision.datasets, name.upper()), self._folder(spec)
        remedy = f"put {kind.filename} from {kind.url} into {folder}, or name a folder that has it: {name}:FOLDER"
        parts: dict[str, Any] = {}
        try:
            with redirect_stdout(sys.stderr):  # torchvision prints
                for split in ("train", "test"):
                    parts[split] = kind(root=str(folder), train=split == "train", download=True)
        except (URLError, HTTPException, ConnectionError, TimeoutError) as error:
            raise TransientError(f"{name}: cannot download {kind.url} ({error})", remedy) from error
        except (RuntimeError, OSError) as error:
            raise RunError(f"{folder}: {name} cannot be read from here: {error}", remedy) from error
        self.classes = list(parts["train"].classes)
        self.splits = {split: np.array(part.targets, dtype=np.int64) for split, part in parts.items()}
        self.names = {
            split: [f"{name}/{split}/{i:05d}.png" for i in range(len(labels))] for split, labels in self.splits.items()
        }
        self._images = {split: part.data for split, part in parts.items()}  # each (N, 32, 32, 3) uint8

    @classmethod
    def recognises(cls, spec: str) -> bool:
        return spec.partition(":")[0] == cls.format

    @classmethod
    def is_here(cls, spec: str) -> bool:
        import torchvision.datasets

        try:
            getattr(torchvision.datasets, cls.format.upper())(root=str(cls._folder(spec)), download=False)
        except (RuntimeError, OSError):  # files are missing or damaged
            return False
        return True

    @classmethod
    def _folder(cls, spec: str) -> Path:
        path = spec.removeprefix(cls.format).removeprefix(":") if cls.recognises(spec) else spec
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lipt" / cls.format
        return Path(path) if path else cache

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        return encode_png(Image.fromarray(self._images[split][i])), "png"

    def fingerprint(self) -> str:
        assert self.published is not None
        return self.published.fingerprint


def _published(classes: int, md5: str) -> Listing:
    """
    Args:
        md5: of the published archive.
    """
    counts = {"train": (50_000 // classes,) * classes, "test": (10_000 // classes,) * classes}
    names = tuple(map(str, range(classes)))
    return Listing(fingerprint=f"cifar{classes}-md5-{md5}", classes=names, counts=counts, size=(32, 32))


class Cifar10Source(_CifarSource, format="cifar10"):
    """CIFAR-10."""

    published = _published(10, "c58f30108f718f92721af3b95e74349a")


class Cifar100Source(_CifarSource, format="cifar100"):
    """CIFAR-100."""

    published = _published(100, "eb9058c3a382ffc7106e4002c42a8d85")
