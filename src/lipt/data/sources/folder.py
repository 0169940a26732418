"""A tree of image files with one folder per class."""

import os
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np

from lipt.data.decoding import image_to_store
from lipt.data.sources.base import (
    Source,
    besides,
    describe_left_out,
    digest_lines,
    digest_sample,
    is_folder,
    unreadable,
)
from lipt.data.sources.image_tree import ClassFiles, find_splits, image_folders, loose_files, visible_folders
from lipt.data.sources.names import IMAGE_SUFFIXES, check_name, check_spellings
from lipt.errors import UsageError, printable


class FolderSource(Source, format="imagefolder"):
    """FOLDER/train/CLASS/... with FOLDER/test|val|.../CLASS/..., or FOLDER/CLASS/... without a test split.

    Images may lie at any depth below CLASS. Hidden files and files without an image suffix are counted in `left_out`.

    Raises:
        UsageError: FOLDER is not a folder, there are no classes or no images, a class is missing in a split or has two
            spellings, or a folder could be a split or a class.
        PermissionError: a folder cannot be read.
        RunError: a link is broken.
    """

    def __init__(self, spec: str) -> None:
        folder = Path(spec)
        if not is_folder(folder):
            raise UsageError(f"{folder} is not a folder", "name a folder with one sub-folder of images per class")
        self.name = printable(folder.resolve().name)
        self._folder = folder
        self.left_out = Counter[str]()
        roots = find_splits(folder, self.left_out)
        classes = {split: _class_names(root) for split, root in roots.items()}
        check_spellings(chain.from_iterable(classes.values()), str(folder))
        self.classes = classes["train"]
        _check_depth(roots["train"], self.classes)
        for name in sorted(set(self.classes) ^ set(classes.get("test", self.classes))):
            there, absent = ("train", "test") if name in self.classes else ("test", "train")
            raise UsageError(
                f"{roots[absent]}: no folder for class {name!r}, which {roots[there]} has",
                "add the folder with images of the class, or remove the class from both",
            )
        self._files: dict[str, list[tuple[str, int, int]]] = {}  # relative path, bytes, time of modification (ns)
        self.splits = {}
        files = ClassFiles(folder, roots.values(), self.left_out)
        for split, root in roots.items():
            found = [(label, *file) for label, name in enumerate(self.classes) for file in files.of(root / name)]
            self.splits[split] = np.array([label for label, *_ in found], dtype=np.int64)
            self._files[split] = [(path, size, time) for _, path, size, time in found]
        self.sizes = {
            split: np.array([size for _, size, _ in files], dtype=np.int64) for split, files in self._files.items()
        }
        self.names = {split: [path.replace(os.sep, "/") for path, *_ in files] for split, files in self._files.items()}
        if not any(self._files.values()):
            remedy = f"put files ({' '.join(IMAGE_SUFFIXES)}) into the class folders"
            raise UsageError(f"{folder}: no images{besides(self.left_out)}", remedy)
        if roots["train"] == folder:  # the user knows of no split
            self._check_each_class()

    def _check_each_class(self) -> None:
        """
        Raises:
            UsageError: a class folder holds no image.
        """
        counts_C = np.bincount(self.splits["train"], minlength=len(self.classes))
        empty = [str(self._folder / self.classes[int(label)]) for label in np.flatnonzero(counts_C == 0)]
        if empty:
            also = f"; {len(empty) - 1:,} more class folders hold none" if len(empty) > 1 else ""
            remedy = "delete the folder, or put images into it"
            others = f" (left out in {self._folder}: {describe_left_out(self.left_out)})" if self.left_out else ""
            raise UsageError(f"{empty[0]} holds no image{others}{also}", remedy)

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        path = self._folder / self._files[split][i][0]
        try:
            data = path.read_bytes()
        except OSError as error:
            raise unreadable(str(path), error) from error
        return image_to_store(data, str(path))

    def fingerprint(self) -> str:
        files = [file for files in self._files.values() for file in files]
        sample = digest_sample([(self._folder / path, 0) for path, *_ in files])
        return digest_lines([*("\t".join(map(str, file)) for file in files), sample])

    def overlaps(self, folder: Path) -> bool:
        mine, other = self._folder.resolve(), folder.resolve()
        return other.is_relative_to(mine) or mine.is_relative_to(other)


def _class_names(folder: Path) -> list[str]:
    names = visible_folders(folder)
    if not names:
        found = describe_left_out(loose_files(folder))
        there = f"it holds {found}" if found else "it is empty"
        raise UsageError(
            f"{folder}: no class folders; {there}",
            "sort the images into one folder per class: docs/reference/sources.md does so from a table of labels; tars "
            "are named by a glob: 'wds:FOLDER/*.tar'",
        )
    for name in names:
        check_name(name, str(folder))
    return names


def _check_depth(folder: Path, classes: list[str]) -> None:
    """
    Raises:
        UsageError: the only class contains several folders of images, as in an archive that was unpacked into a folder.
    """
    if len(classes) == 1:
        inner = list(image_folders(folder / classes[0]))
        if len(inner) > 1:
            raise UsageError(
                f"{folder}: only one class, {classes[0]!r}, with {len(inner):,} folders of images in it: "
                f"{', '.join(inner[:3])}{', ...' if len(inner) > 3 else ''}",
                f"if these are the classes or splits, use {folder / classes[0]}; else add images of a second class",
            )
