"""What a source of labelled images offers to the ingest."""

from __future__ import annotations

import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from lipt.errors import RunError

Labels = npt.NDArray[np.int64]

IMAGE_SUFFIXES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".ppm", ".pgm", ".pbm", ".pnm", ".bmp", ".tif", ".tiff", ".webp", ".gif"
)  # fmt: skip


def is_folder(path: str | os.PathLike[str]) -> bool:
    """As `Path.is_dir`; but what must not be looked at is an error, whatever the version of Python.

    Raises:
        PermissionError: it cannot be told.
    """
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


class Source(ABC):
    """Labelled images with random access; `read` may be called from several threads.

    Attributes:
        name: short name, becomes the dataset's.
        classes: class names, in label order; every class has an image in every split.
        splits: `train` and possibly `test`, each the (N,) int64 labels of its images.
        names: the same splits, each the N names of its images in the source, with forward slashes: a path relative to
            the folder, TAR/KEY.EXT, or a number below the data set's name. No two are equal.
    """

    name: str
    classes: Sequence[str]
    splits: Mapping[str, Labels]
    names: Mapping[str, Sequence[str]]

    @abstractmethod
    def read(self, split: str, i: int) -> tuple[bytes, str]:
        """Image file `i` of a split and its extension, `jpg` or `png`; it can be decoded.

        Raises:
            RunError: the image is unreadable.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the contents change, not with the place they lie in; cheap (no image is read)."""


def check_classes(labels: Mapping[str, Labels], classes: Sequence[str], where: str) -> None:
    """Every class has an image in every split.

    Raises:
        RunError: one has not.
    """
    for split, labels_N in labels.items():
        missing = np.flatnonzero(np.bincount(labels_N, minlength=len(classes)) == 0)
        if len(missing):
            names = ", ".join(repr(classes[label]) for label in missing[:5])
            remedy = "add images of it, or remove the class everywhere"
            raise RunError(f"{where}: split {split!r} has no image of class {names}", remedy)


def digest_lines(lines: Iterable[str]) -> str:
    """sha256 (hex) over text lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()
