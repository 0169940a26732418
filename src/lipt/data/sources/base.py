"""What a source of labelled images offers to the ingest."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from lipt.errors import RunError

Labels = npt.NDArray[np.int64]

IMAGE_SUFFIXES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".ppm", ".pgm", ".pbm", ".pnm", ".bmp", ".tif", ".tiff", ".webp", ".gif"
)  # fmt: skip

_KINDS = 6  # told of what is left out

TRAIN_NAMES = ("train", "training")
TEST_NAMES = ("test", "testing", "val", "valid", "validation", "eval", "evaluation", "dev")
"""What folders and tars of a split are called, in upper or lower case; the first of several is the test split."""

#: How many files a fingerprint reads, and how many bytes of each.
_SAMPLED, _HEAD = 64, 2**20


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
        left_out: what lies among the images and is not read: kind -> how many.
    """

    name: str
    classes: Sequence[str]
    splits: Mapping[str, Labels]
    names: Mapping[str, Sequence[str]]
    left_out: Mapping[str, int] = MappingProxyType({})

    @abstractmethod
    def read(self, split: str, i: int) -> tuple[bytes, str]:
        """Image file `i` of a split and its extension, `jpg` or `png`; it can be decoded.

        Raises:
            RunError: the image is unreadable.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the contents change, not with the place they lie in; cheap (at most 64 images are read).

        Files are told by path, size and time of modification, some of them by their contents as well. So a copy with
        new times has another fingerprint, and becomes the same dataset.

        Raises:
            RunError: a file is unreadable.
        """

    def overlaps(self, folder: Path) -> bool:
        """Whether files written into `folder` could be taken for images of the source, or replace some."""
        return False


def check_classes(
    labels: Mapping[str, Labels], classes: Sequence[str], where: str, left_out: Mapping[str, int] | None = None
) -> None:
    """There are several classes, and every class has an image in every split.

    Raises:
        RunError: there is one class, or one has no image.
    """
    if len(classes) < 2:
        remedy = "add images of a second class: a classifier of one class has nothing to learn"
        raise RunError(f"{where}: only one class, {classes[0]!r}", remedy)
    for split, labels_N in labels.items():
        missing = np.flatnonzero(np.bincount(labels_N, minlength=len(classes)) == 0)
        if len(missing):
            names = ", ".join(repr(classes[label]) for label in missing[:5])
            remedy = "add images of it, or remove the class everywhere"
            there = f" (left out: {describe_left_out(left_out)})" if left_out else ""
            raise RunError(f"{where}: split {split!r} has no image of class {names}{there}", remedy)


def describe_left_out(left_out: Mapping[str, int]) -> str:
    """`40 .json files, 1 hidden file`: the most frequent kinds first."""
    kinds = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count:,} {_one(kind) if count == 1 else kind}" for kind, count in kinds]
    return ", ".join(parts[:_KINDS]) + (f" and {len(parts) - _KINDS} other kinds" if len(parts) > _KINDS else "")


def _one(kind: str) -> str:
    return re.sub("(file|link|image|tar)s", r"\1", kind, count=1)


def check_name(name: str, where: str) -> None:
    """A name of an image or class can be written into a text file, on a line.

    Raises:
        RunError: it cannot.
    """
    if "\n" in name or any("\ud800" <= character <= "\udfff" for character in name):  # bytes that are no UTF-8
        raise RunError(f"{where}: the name {name!r} is not UTF-8 on one line", "rename the file")


def digest_lines(lines: Iterable[str]) -> str:
    """sha256 (hex) over text lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def digest_sample(places: Sequence[tuple[str | os.PathLike[str], int]]) -> str:
    """sha256 (hex) over the beginnings of up to 64 images, spread evenly.

    Args:
        places: file, and where in it the image begins.

    Raises:
        RunError: a file is unreadable.
    """
    digest = hashlib.sha256()
    for i in np.unique(np.linspace(0, len(places) - 1, min(len(places), _SAMPLED)).astype(np.int64)):
        path, offset = places[i]
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                digest.update(hashlib.sha256(file.read(_HEAD)).digest())
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}", "restore the file, then ingest again") from error
    return digest.hexdigest()
