"""CIFAR-10 and CIFAR-100, from torchvision's folder layout or by download."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal
from urllib.error import URLError

import numpy as np
from PIL import Image

from lipt.data.decoding import encode_png
from lipt.data.sources.base import Source
from lipt.errors import RunError, TransientError


class CifarSource(Source):
    """Lossless PNGs. The files are pickles: torchvision compares their md5 with its own list before it loads one.

    Args:
        name: which of the two.
        folder: holds `cifar-10-batches-py` or `cifar-100-python`, else they are downloaded to it; None: a cache folder.

    Raises:
        TransientError: a download is needed and fails.
        RunError: the files are damaged, or the folder cannot be written.
    """

    def __init__(self, name: Literal["cifar10", "cifar100"], folder: Path | None) -> None:
        from torchvision.datasets import CIFAR10, CIFAR100  # seconds to import

        self.name = name
        kind = CIFAR10 if name == "cifar10" else CIFAR100
        folder = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lipt" / name
        remedy = f"put {kind.filename} from {kind.url} into {folder}, or name a folder that has it: {name}:FOLDER"
        parts: dict[str, Any] = {}
        try:
            with redirect_stdout(sys.stderr):  # torchvision prints
                for split in ("train", "test"):
                    parts[split] = kind(root=str(folder), train=split == "train", download=True)
        except (URLError, HTTPException, ConnectionError, TimeoutError) as error:
            raise TransientError(f"{name}: cannot download {kind.url} ({error})", remedy) from error
        except (RuntimeError, OSError) as error:
            raise RunError(f"{folder}: no usable {name}: {error}", remedy) from error
        self.classes = list(parts["train"].classes)
        self.splits = {split: np.array(part.targets, dtype=np.int64) for split, part in parts.items()}
        self.names = {
            split: [f"{name}/{split}/{i:05d}.png" for i in range(len(labels))] for split, labels in self.splits.items()
        }
        self._images = {split: part.data for split, part in parts.items()}  # each (N, 32, 32, 3) uint8
        self._md5 = kind.tgz_md5

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        return encode_png(Image.fromarray(self._images[split][i])), "png"

    def fingerprint(self) -> str:
        return f"{self.name}-md5-{self._md5}"
