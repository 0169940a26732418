"""Where candidates come from: handwritten digits, CIFAR, a folder of images, or WebDataset tars."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from lipt.data.sources.base import Source, is_folder
from lipt.data.sources.cifar import CifarSource
from lipt.data.sources.digits import DigitsSource
from lipt.data.sources.folder import FolderSource
from lipt.data.sources.tars import TarSource
from lipt.errors import RunError, UsageError, did_you_mean

__all__ = ["Listing", "Source", "open_source", "recognise"]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What is known of a source without its images."""

    fingerprint: str
    classes: tuple[str, ...]
    counts: dict[str, tuple[int, ...]]
    """Images of each class, by split."""
    size: tuple[int, int]
    """Height and width of the first image, in pixels."""

    @classmethod
    def of(cls, source: Source) -> Listing:
        counts = {
            split: tuple(np.bincount(labels_N, minlength=len(source.classes)).tolist())
            for split, labels_N in source.splits.items()
        }
        with Image.open(BytesIO(source.read("train", 0)[0])) as image:
            size = image.height, image.width
        return cls(fingerprint=source.fingerprint(), classes=tuple(source.classes), counts=counts, size=size)


_OPENERS: dict[str, Callable[[str], Source]] = {
    "digits": lambda _spec: DigitsSource(),
    "cifar10": lambda spec: CifarSource("cifar10", _folder(spec, "cifar10")),
    "cifar100": lambda spec: CifarSource("cifar100", _folder(spec, "cifar100")),
    "imagefolder": lambda spec: FolderSource(Path(spec)),
    "webdataset": lambda spec: TarSource(spec.removeprefix("wds:")),
}


def open_source(spec: str, format: str = "auto") -> Source:  # noqa: A002 - the name of the setting
    """The source that `spec` names.

    Args:
        spec: `digits`, `cifar10[:FOLDER]`, `cifar100[:FOLDER]`, `wds:GLOB`, a tar or a glob that ends in `.tar`,
            or the folder of an ImageFolder tree.
        format: `digits`, `cifar10`, `cifar100`, `imagefolder`, `webdataset`, or `auto`: decided by `spec`.

    Raises:
        UsageError: unknown format, nothing there.
        RunError: what is there is not usable, or must not be read.
        TransientError: CIFAR has to be downloaded and the network is out of reach.
    """
    if format not in ("auto", *_OPENERS):
        raise UsageError(f"unknown source format {format!r}", did_you_mean(format, ["auto", *_OPENERS]))
    if "\0" in spec:
        raise UsageError(f"{spec!r} is no path", "name a folder or a glob of tars")
    try:
        return _OPENERS[recognise(spec, format)](spec)
    except PermissionError as error:
        raise RunError(
            f"{error.filename}: permission denied", f"let user {os.geteuid()} read all folders and files of the data"
        ) from None
    except OSError as error:  # a link to itself, a name that is too long, a disk that fails
        remedy = "check the path, and that the disk can be read"
        raise RunError(f"{error.filename or spec}: {error.strerror}", remedy) from error


def recognise(spec: str, format: str = "auto") -> str:  # noqa: A002 - the name of the setting
    """The format of the source that `spec` names.

    Raises:
        UsageError: nothing there.
    """
    if format != "auto":
        return format
    head = spec.partition(":")[0]
    if spec == "digits" or head in ("cifar10", "cifar100"):
        return head
    if head == "wds" or spec.endswith(".tar"):
        return "webdataset"
    if not is_folder(spec):
        remedy = f"name a folder or {did_you_mean(spec, ['digits', 'cifar10', 'cifar100', 'wds:GLOB'])}"
        raise UsageError(f"{spec}: no such folder", remedy)
    return "imagefolder"


def _folder(spec: str, name: str) -> Path | None:
    """FOLDER of `NAME:FOLDER` or of a plain `FOLDER`; None for `NAME`."""
    folder = spec.removeprefix(name).removeprefix(":") if spec.partition(":")[0] == name else spec
    return Path(folder) if folder else None
