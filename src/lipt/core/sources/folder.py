"""A tree of image files with one folder per class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lipt.core.decoding import checked_image
from lipt.core.sources.base import IMAGE_SUFFIXES, Source, check_classes, digest_lines, is_folder
from lipt.errors import RunError, UsageError

_TEST_NAMES = ("test", "val", "valid")


class FolderSource(Source):
    """FOLDER/train/CLASS/... with FOLDER/test|val|valid/CLASS/..., or FOLDER/CLASS/... without a test split.

    Files are found at any depth below CLASS; hidden ones and those without an image suffix are passed over.

    Raises:
        UsageError: FOLDER is no folder.
        PermissionError: a folder must not be read.
        RunError: no classes or no images, or a class is missing or empty in a split.
    """

    def __init__(self, folder: Path) -> None:
        if not is_folder(folder):
            raise UsageError(f"{folder} is not a folder", "name a folder with one sub-folder of images per class")
        self.name = folder.resolve().name
        self._folder = folder
        roots = _split_folders(folder)
        classes = {split: _class_names(root) for split, root in roots.items()}
        self.classes = classes["train"]
        for name in sorted(set(self.classes) ^ set(classes.get("test", self.classes))):
            there, absent = ("train", "test") if name in self.classes else ("test", "train")
            raise RunError(
                f"{roots[absent]}: no folder for class {name!r}, which {roots[there]} has",
                "add the folder with images of the class, or remove the class from both",
            )
        self._files: dict[str, list[tuple[str, int]]] = {}  # relative path and bytes
        self.splits = {}
        for split, root in roots.items():
            found = [(label, file) for label, name in enumerate(self.classes) for file in _images(folder, root / name)]
            self.splits[split] = np.array([label for label, _ in found], dtype=np.int64)
            self._files[split] = [file for _, file in found]
        self.names = {split: [path.replace(os.sep, "/") for path, _ in files] for split, files in self._files.items()}
        if not any(self._files.values()):
            raise RunError(f"{folder}: no images", f"put files ({' '.join(IMAGE_SUFFIXES)}) into the class folders")
        check_classes(self.splits, self.classes, str(folder))

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        path = self._folder / self._files[split][i][0]
        try:
            data = path.read_bytes()
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}", "restore the file, then ingest again") from error
        return checked_image(data, str(path))

    def fingerprint(self) -> str:
        return digest_lines(f"{path}\t{size}" for files in self._files.values() for path, size in files)


def _split_folders(folder: Path) -> dict[str, Path]:
    """The folder of each split; ImageNet's unlabelled `test` has no class folders, its `val` has."""
    if not is_folder(folder / "train"):
        return {"train": folder}
    candidates = [folder / name for name in _TEST_NAMES if is_folder(folder / name)]
    labelled = [path for path in candidates if _sub_folders(path)]
    if candidates and not labelled:
        raise RunError(f"{candidates[0]}: no class folders", "sort its images into one folder per class, or remove it")
    return {"train": folder / "train"} | ({"test": labelled[0]} if labelled else {})


def _sub_folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def _class_names(folder: Path) -> list[str]:
    names = _sub_folders(folder)
    if not names:
        remedy = "sort the images into one folder per class; tars are named by a glob: 'wds:FOLDER/*.tar'"
        raise RunError(f"{folder}: no class folders", remedy)
    return names


def _images(top: Path, folder: Path) -> Iterator[tuple[str, int]]:
    """(path relative to `top`, bytes) of the image files below `folder`, in a fixed order."""
    for current, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        folders.sort()
        for name in sorted(names):
            if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith("."):
                path = os.path.join(current, name)
                yield os.path.relpath(path, top), os.path.getsize(path)


def _raise(error: OSError) -> None:
    """A folder that cannot be listed must not pass for an empty one."""
    raise error
