"""Which folders of an image tree are splits and which are classes."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lipt.data.sources.base import IMAGE_SUFFIXES, TEST_NAMES, TRAIN_NAMES
from lipt.errors import RunError


def find_splits(folder: Path, left_out: Counter[str]) -> dict[str, Path]:
    """The folder of each split, `train` and possibly `test`; images of other folders are counted in `left_out`.

    `FOLDER/train` is a split if it holds folders of images and, where other folders with images lie beside it, a test
    split has the same classes. ImageNet's unlabelled `test` has no class folders, its `val` has.

    Raises:
        RunError: a folder can be both a split and a class, or a split has no class folders.
    """
    names = visible_folders(folder)
    if not any(name.lower() in (*TRAIN_NAMES, *TEST_NAMES) for name in names):
        return {"train": folder}
    train = [name for name in names if name.lower() in TRAIN_NAMES]
    tests = sorted((name for name in names if name.lower() in TEST_NAMES), key=_rank)
    others = [name for name in names if name not in (*train, *tests) and has_images(folder / name)]
    splits = [name for name in (*train, *tests) if any(map(has_images, _paths(folder / name)))]
    if not splits and (others or not train):
        return {"train": folder}  # classes that are called like splits
    if len(train) != 1 and splits:
        raise RunError(
            f"{folder}: {splits[0]}/ holds folders of images, as a split does, but {_which(train)}",
            "put the classes of the training data into train/; if it is a class, rename it",
        )
    classes = set(visible_folders(folder / train[0]))
    labelled = [name for name in tests if classes & set(visible_folders(folder / name))]
    if others and not (labelled and train[0] in splits):
        raise RunError(
            f"{folder}: {splits[0]}/ holds folders of images, and beside it is {others[0]}/: is it a split or a class?",
            f"if it is a split, move {', '.join(others)} elsewhere; if it is a class, rename it",
        )
    if not classes or not tests:
        return {"train": folder / train[0]}
    if not labelled:
        remedy = "sort its images into one folder per class, named as in train/, or remove it"
        raise RunError(f"{folder / tests[0]}: no class folders", remedy)
    _count_unused(folder, others, "", left_out)
    _count_unused(
        folder, [name for name in tests if name != labelled[0]], f" ({labelled[0]}/ is the test split)", left_out
    )
    return {"train": folder / train[0], "test": folder / labelled[0]}


def _count_unused(folder: Path, names: list[str], why: str, left_out: Counter[str]) -> None:
    for name in names:
        if count := sum(1 for _ in images_below(folder / name)):
            left_out[f"images in {name}/{why}"] = count


def visible_folders(folder: Path) -> list[str]:
    """Names of the folders in a folder, without a leading dot, sorted.

    Raises:
        RunError: a link leads nowhere: it may have been one to a folder.
    """
    names = (name for name in sorted(os.listdir(folder)) if not name.startswith("."))
    return [name for name in names if stat.S_ISDIR(existing(os.path.join(folder, name)).st_mode)]


def existing(path: str) -> os.stat_result:
    """`os.stat` of what a path, or the link there, leads to.

    Raises:
        RunError: a link leads nowhere, or to itself.
    """
    try:
        return os.stat(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP) or not os.path.islink(path):
            raise
        remedy = "restore what it leads to, or remove the link"
        raise RunError(f"{path}: a symbolic link to {os.readlink(path)}, where nothing is", remedy) from error


def is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")


def images_below(folder: Path) -> Iterator[str]:
    """Paths of files with an image suffix at any depth; each folder once, however many links lead to it."""
    seen = ancestors(folder)
    for current, folders, names in os.walk(folder, onerror=reraise, followlinks=True):
        real = os.path.realpath(current)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (os.path.join(current, name) for name in names if is_image(name))


def ancestors(folder: Path) -> set[str]:
    """The folders that `folder` lies in: a link to one of them closes a circle."""
    return {str(parent) for parent in folder.resolve().parents}


def has_images(folder: Path) -> bool:
    return next(images_below(folder), None) is not None


def reraise(error: OSError) -> None:
    """A folder that cannot be listed must not pass for an empty one."""
    raise error


def _paths(folder: Path) -> list[Path]:
    return [folder / name for name in visible_folders(folder)]


def _rank(name: str) -> tuple[int, str]:
    return TEST_NAMES.index(name.lower()), name


def _which(train: list[str]) -> str:
    return f"there are {' and '.join(f'{name}/' for name in train)}" if train else "there is no train/"
