"""WebDataset tars: `KEY.jpg|png|...` beside `KEY.cls`."""

from __future__ import annotations

import glob
import json
import os
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lipt.core.decoding import checked_image
from lipt.core.sources.base import IMAGE_SUFFIXES, Source, check_classes, digest_lines, is_folder
from lipt.errors import RunError, UsageError


class _Entry(NamedTuple):
    tar: str
    key: str
    suffix: str
    offset: int
    size: int
    label: int


class TarSource(Source):
    """Uncompressed tars with integer labels; one pass over the headers, then random access.

    Tars whose names begin with `test` or `val` are the test split if there are others. Class names come from
    `classes.txt` (one a line) or `classes.json` (a list) beside the tars, else they are the integers.

    Raises:
        UsageError: nothing matches the pattern.
        PermissionError: a tar or its folder must not be read.
        RunError: a damaged or compressed tar, a sample without image or label, a label without class or images.
    """

    def __init__(self, pattern: str) -> None:
        tars = sorted(glob.glob(pattern))
        if not tars:
            if is_folder(folder := Path(pattern).parent):
                os.listdir(folder)  # what must not be listed is another error than what is not there
            raise UsageError(f"{pattern}: no such tar", "name a tar or a glob of tars, such as 'wds:FOLDER/*.tar'")
        folder = Path(tars[0]).parent
        self.name = folder.resolve().name
        self._entries: dict[str, list[_Entry]] = {}
        is_test = [os.path.basename(tar).startswith(("test", "val")) for tar in tars]
        for tar, test in zip(tars, is_test, strict=True):
            split = "test" if test and not all(is_test) else "train"
            self._entries.setdefault(split, []).extend(_scan(tar))
        self.splits = {
            split: np.array([entry.label for entry in entries], dtype=np.int64)
            for split, entries in sorted(self._entries.items(), reverse=True)  # train first
        }
        top = os.path.commonpath([os.path.dirname(os.path.abspath(tar)) for tar in tars])
        self.names = {
            split: [
                f"{os.path.relpath(entry.tar, top)}/{entry.key}.{entry.suffix}".replace(os.sep, "/")
                for entry in self._entries[split]
            ]
            for split in self.splits
        }
        highest = max((int(labels.max()) for labels in self.splits.values() if len(labels)), default=-1)
        if highest < 0:
            raise RunError(f"{pattern}: no images", "check that the tars hold KEY.jpg or KEY.png beside KEY.cls")
        self.classes = _class_names(folder) or [str(label) for label in range(highest + 1)]
        if highest >= len(self.classes):
            raise RunError(
                f"{pattern}: label {highest} for {len(self.classes)} classes", f"complete the class list in {folder}"
            )
        check_classes(self.splits, self.classes, pattern)

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        entry = self._entries[split][i]
        try:
            with open(entry.tar, "rb") as file:
                file.seek(entry.offset)
                data = file.read(entry.size)
        except OSError as error:
            raise RunError(f"{entry.tar}: {error.strerror}", "restore the tar, then ingest again") from error
        return checked_image(data, f"{entry.tar}: {entry.key}")

    def fingerprint(self) -> str:
        return digest_lines(
            f"{os.path.basename(entry.tar)}\t{entry.key}\t{entry.size}\t{entry.label}"
            for split in self.splits
            for entry in self._entries[split]
        )


def _scan(path: str) -> list[_Entry]:
    """The samples of one tar, in its order."""
    images: dict[str, tuple[str, int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                folder, name = os.path.split(member.name)
                stem, _, suffix = name.partition(".")  # the convention: a key ends at the first dot
                key = os.path.join(folder, stem)
                if not member.isreg():
                    continue
                if suffix == "cls":
                    labels[key] = _label(tar, member, path)
                elif f".{suffix.lower()}" in IMAGE_SUFFIXES:
                    images[key] = (suffix, member.offset_data, member.size)
    except PermissionError:
        raise
    except (tarfile.TarError, OSError) as error:
        raise RunError(f"{path}: no readable uncompressed tar: {error}", "unpack or replace the tar") from error
    for key in images.keys() ^ labels.keys():
        lacks = "label (KEY.cls)" if key in images else "image (KEY.jpg or KEY.png)"
        raise RunError(f"{path}: sample {key!r} has no {lacks}", "complete or remove the sample")
    return [_Entry(path, key, *place, labels[key]) for key, place in images.items()]


def _label(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> int:
    content = tar.extractfile(member)
    text = content.read(32) if content is not None else b""
    if not text.strip().isdigit():
        raise RunError(f"{path}: {member.name} holds {text!r}", "a .cls file holds one integer from 0 on")
    return int(text)


def _class_names(folder: Path) -> list[str]:
    """Names from the list beside the tars; empty when there is none."""
    if (folder / "classes.txt").is_file():
        return [line.strip() for line in (folder / "classes.txt").read_text().splitlines() if line.strip()]
    file = folder / "classes.json"
    if not file.is_file():
        return []
    try:
        names = json.loads(file.read_text())
    except ValueError as error:
        raise RunError(f"{file}: {error}", 'write a JSON list of names: ["cat", "dog"]') from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RunError(f"{file}: not a list of names", 'write a JSON list of names: ["cat", "dog"]')
    return names
