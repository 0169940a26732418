"""The interface of a source of labelled images, and helpers for sources."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from lipt.data.sources.names import check_spellings
from lipt.errors import RunError, UsageError

Labels = npt.NDArray[np.int64]

_MAX_KINDS = 6  # of left-out files, in a message

#: How many files a fingerprint or a check reads, and how many bytes of each a fingerprint.
_SAMPLED, _HEAD = 64, 2**20


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Like `Path.is_dir`, but missing permissions are an error in every version of Python.

    Raises:
        PermissionError: a folder on the way to `path` cannot be read.
    """
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


FORMATS: dict[str, type[Source]] = {}
"""The values of `data.format`, each with its source."""


class Source(ABC):
    """Labelled images with random access; `read` may be called from several threads.

    A subclass that gives a format, as in `class DigitsSource(Source, format="digits")`, is registered under it.

    Attributes:
        name: short name of the data set.
        classes: class names, in label order.
        splits: `train` and possibly `test`, each the (N,) int64 labels of its images.
        names: for the same splits the names of the N images in the source, with forward slashes: a path relative to the
            folder, TAR/KEY.EXT, or a number below the name of the data set. No two are equal.
        left_out: how many files were found but not read, by kind.
        sizes: for the same splits the bytes of each image file; empty if nothing is known without reading them.
    """

    format: ClassVar[str]
    published: ClassVar[Listing | None] = None
    """The listing of a source that has to be downloaded, so that no download is needed to check a configuration, or to
    see that a run is up to date."""
    needs_files: ClassVar[bool] = True
    """False if `data.source` may be the bare name of the format: the images come with LiPT or are downloaded."""

    name: str
    classes: Sequence[str]
    splits: Mapping[str, Labels]
    names: Mapping[str, Sequence[str]]
    left_out: Mapping[str, int] = MappingProxyType({})
    sizes: Mapping[str, Labels] = MappingProxyType({})

    def __init_subclass__(cls, *, format: str = "") -> None:  # noqa: A002 - the name of the setting
        if format:
            cls.format = format
            FORMATS[format] = cls

    @abstractmethod
    def __init__(self, spec: str) -> None:
        """Find the images, without reading them.

        Args:
            spec: the value of `data.source`.

        Raises:
            UsageError: there is nothing at `spec`, or its classes and splits cannot be used.
            RunError: a file is damaged.
            OSError: a file cannot be read.
        """

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether `spec` names a source of this kind, if `data.format` is `auto`."""
        return False

    @classmethod
    def is_here(cls, _spec: str) -> bool:
        """Whether the images that `_spec` names can be read without a download."""
        return True

    @property
    def num_bytes(self) -> int:
        """Of all image files; 0 if nothing is known without reading them."""
        return sum(int(sizes_N.sum()) for sizes_N in self.sizes.values())

    @abstractmethod
    def read(self, split: str, i: int) -> tuple[bytes, str]:
        """Image file `i` of a split and its extension, `jpg` or `png`. The file can be decoded.

        Raises:
            RunError: the image is unreadable.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """A text that changes when the contents change, but not when they move; it reads at most 64 images.

        Files are compared by path, size and modification time, some also by their contents. A copy with new times has
        another fingerprint, but becomes the same data set.

        Raises:
            RunError: a file is unreadable.
        """

    def overlaps(self, folder: Path) -> bool:
        """Whether a file written into `folder` could be read as an image of the source, or replace one."""
        return False


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A source without its images."""

    fingerprint: str
    classes: tuple[str, ...]
    counts: dict[str, tuple[int, ...]]
    """Images of each class, by split."""
    size: tuple[int, int] | None
    """Height and width in pixels, as `_size` finds them."""

    @classmethod
    def of(cls, source: Source) -> Listing:
        counts = {
            split: tuple(np.bincount(labels_N, minlength=len(source.classes)).tolist())
            for split, labels_N in source.splits.items()
        }
        return cls(fingerprint=source.fingerprint(), classes=tuple(source.classes), counts=counts, size=_size(source))


def _size(source: Source) -> tuple[int, int] | None:
    """Height and width of the first readable of up to 64 training images, spread evenly. Ingestion names the others."""
    for i in spread(len(source.splits["train"])):
        with suppress(RunError), Image.open(BytesIO(source.read("train", i)[0])) as image:
            return image.height, image.width
    return None


def check_one_size(source: Source) -> None:
    """Look at up to 64 training images, spread evenly.

    Raises:
        UsageError: they have different sizes.
    """
    count = len(source.splits["train"])
    first: tuple[int, tuple[int, int]] | None = None
    for i in spread(count):
        with Image.open(BytesIO(source.read("train", i)[0])) as image:
            size = image.size
        if first is None:
            first = i, size
        elif size != first[1]:
            names = source.names["train"]
            told = [f"{names[j]} has {width}x{height} pixels" for j, (width, height) in (first, (i, size))]
            shorter = min(*first[1], *size)
            raise UsageError(
                f"{told[0]}, {told[1]}: without data.image_size, all images need one size",
                f"--set data.image_size={shorter} makes each image a square of {shorter} pixels; choose the number",
            )


def spread(count: int) -> list[int]:
    """Up to 64 of `count` positions, spread evenly."""
    return [int(i) for i in np.unique(np.linspace(0, count - 1, min(count, _SAMPLED)).astype(np.int64))]


def check_classes(source: Source, where: str) -> None:
    """Check that there are at least two classes, spelled in one way, and that each has an image in every split.

    Raises:
        UsageError: there is one class only, two are one name in two spellings, or a class has no image.
    """
    check_spellings(source.classes, where)
    if len(source.classes) < 2:
        remedy = "add images of a second class: a classifier of one class has nothing to learn"
        raise UsageError(f"{where}: only one class, {source.classes[0]!r}", remedy)
    for split, labels_N in source.splits.items():
        missing = np.flatnonzero(np.bincount(labels_N, minlength=len(source.classes)) == 0)
        if len(missing):
            names = ", ".join(repr(source.classes[label]) for label in missing[:5])
            remedy = "add images of it, or remove the class everywhere"
            raise UsageError(
                f"{where}: split {split!r} has no image of class {names}{besides(source.left_out)}", remedy
            )


def describe_left_out(left_out: Mapping[str, int]) -> str:
    """`40 .json files, 1 hidden file`: the most frequent kinds first."""
    kinds = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count:,} {_one(kind) if count == 1 else kind}" for kind, count in kinds[:_MAX_KINDS]]
    more = f" and {len(kinds) - _MAX_KINDS} other kinds" if len(kinds) > _MAX_KINDS else ""
    return ", ".join(parts) + more


def besides(left_out: Mapping[str, int]) -> str:
    """` (left out: 40 .json files)`, to end the message that images are missing; empty if nothing is left out."""
    return f" (left out: {describe_left_out(left_out)})" if left_out else ""


def _one(kind: str) -> str:
    return re.sub("(file|link|image|tar)s", r"\1", kind, count=1)


def digest_lines(lines: Iterable[str]) -> str:
    """sha256 (hex) over text lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def digest_sample(places: Sequence[tuple[str | os.PathLike[str], int]]) -> str:
    """sha256 (hex) over the first megabyte of up to 64 images, spread evenly.

    Args:
        places: for each image its file and its first byte in the file.

    Raises:
        RunError: a file is unreadable.
    """
    digest = hashlib.sha256()
    for i in spread(len(places)):
        path, offset = places[i]
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                digest.update(hashlib.sha256(file.read(_HEAD)).digest())
        except OSError as error:
            raise unreadable(str(path), error) from error
    return digest.hexdigest()


def unreadable(path: str, error: OSError) -> RunError:
    """The error for a file of the source that was there when the source was opened."""
    may_not = isinstance(error, PermissionError)
    remedy = f"let user {os.geteuid()} read it" if may_not else "restore the file, then ingest again"
    return RunError(f"{path}: {error.strerror}", remedy)
