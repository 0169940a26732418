"""Names of files, folders, splits and classes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from lipt.errors import RunError, UsageError

IMAGE_SUFFIXES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".ppm", ".pgm", ".pbm", ".pnm", ".bmp", ".tif", ".tiff", ".webp", ".gif"
)  # fmt: skip

TRAIN_NAMES = ("train", "training")
TEST_NAMES = ("test", "testing", "val", "valid", "validation", "eval", "evaluation", "dev")
"""Names of folders and tars of a split, in upper or lower case. If several test splits exist, the first one counts."""


def check_spellings(names: Iterable[str], where: str) -> None:
    """Check that no two class names look alike: a letter with an accent may be one character or two.

    Raises:
        UsageError: two do; the message contains both spellings.
    """
    spelled: dict[str, str] = {}
    for name in names:
        other = spelled.setdefault(as_one_spelling(name), name)
        if other != name:
            raise UsageError(
                f"{where}: class {name!r} is spelled in two ways that look alike: {other!a} and {name!a}",
                "rename one like the other: macOS and its archives often write an accent as a second character",
            )


def as_one_spelling(name: str) -> str:
    """The name with each accented letter as one character (Unicode NFC), to compare it with others."""
    return unicodedata.normalize("NFC", name)


def split_word(name: str) -> str:
    """The word by which a name belongs to a split, such as `validation` in `photos-validation-07.tar`, or "".

    A word of the training split counts before others: `train-val` is training data.
    """
    words = re.findall("[a-z]+", name.lower())
    return next((word for names in (TRAIN_NAMES, TEST_NAMES) for word in words if word in names), "")


def check_name(name: str, where: str) -> None:
    """Check that the name of an image or class fits on one line of a text file.

    Raises:
        RunError: it does not.
    """
    is_one_line = "".join(name.splitlines()) == name
    if not is_one_line or any("\ud800" <= character <= "\udfff" for character in name):  # bytes that are not UTF-8
        raise RunError(f"{where}: the name {name!r} is not UTF-8 on one line", "rename the file")
