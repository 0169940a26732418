"""WebDataset tars: `KEY.jpg|png|...` beside `KEY.cls`."""

import glob
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lipt.data.decoding import image_to_store
from lipt.data.sources.base import Labels, Source, besides, digest_lines, digest_sample, is_folder
from lipt.data.sources.names import TEST_NAMES, check_name, split_word
from lipt.data.sources.tarscan import TarSample, scan
from lipt.errors import RunError, UsageError, printable

#: Begins a `data.source` that is a tar, or a glob of tars.
TAR_PREFIX = "wds:"


class TarSource(Source, format="webdataset"):
    """Uncompressed tars with integer labels: one pass over the headers, then random access.

    A tar with `test`, `val` or the like as a word of its name belongs to the test split, if there are other tars; if
    its name has no word of a split, that of its folder counts. Class names come from `classes.txt` (one per line) or
    `classes.json` (a list) beside the tars or their folders, else they are the integers.

    Raises:
        UsageError: nothing matches the pattern, there are no images, a label is no number or has no class, or the list
            of classes cannot be used.
        PermissionError: a tar or its folder cannot be read.
        RunError: a tar is damaged or compressed, or a sample has no image or no label.
    """

    def __init__(self, spec: str) -> None:
        pattern = spec.removeprefix(TAR_PREFIX)
        tars = [pattern] if os.path.isfile(pattern) else sorted(glob.glob(pattern))
        if not tars:
            if is_folder(folder := Path(pattern).parent):
                os.listdir(folder)  # raises PermissionError, rather than "no such tar", if it cannot be listed
            braces = "; write [0-9] or * in place of braces" if "{" in pattern else ""
            remedy = f"name a tar or a glob of tars, such as 'wds:FOLDER/*.tar'{braces}"
            raise UsageError(f"{pattern}: no such tar", remedy)
        if inner := next(filter(is_folder, tars), ""):
            raise UsageError(f"{Path(inner)} is a folder, not a tar", f"name the tars in it: 'wds:{Path(inner)}/*.tar'")
        self._pattern, self._tars = pattern, tars
        folder = Path(tars[0]).parent
        top = os.path.commonpath([os.path.dirname(os.path.abspath(tar)) for tar in tars])
        self.name = printable(Path(top).resolve().name)
        self.left_out = Counter[str]()
        self._entries = {
            split: [entry for tar in chosen for entry in _scan(tar, self.left_out)]
            for split, chosen in _by_split(tars, top, self.left_out).items()
        }
        self.sizes = {
            split: np.array([entry.size for entry in entries], dtype=np.int64)
            for split, entries in self._entries.items()
        }
        self.splits = {
            split: np.array([entry.label for entry in entries], dtype=np.int64)
            for split, entries in self._entries.items()
        }
        self.names = {
            split: [
                f"{os.path.relpath(entry.tar, top)}/{entry.key}.{entry.suffix}".replace(os.sep, "/")
                for entry in self._entries[split]
            ]
            for split in self.splits
        }
        if not any(self._entries.values()):
            raise UsageError(
                f"{pattern}: no images{besides(self.left_out)}",
                "check that the tars hold KEY.jpg or KEY.png beside KEY.cls; KEY ends at the first dot of a name",
            )
        self.classes = _class_names(Path(top)) or _class_names(folder) or _numbers(self.splits, pattern)
        _check_labels(self.splits, self.classes, pattern, folder)

    @classmethod
    def recognises(cls, spec: str) -> bool:
        return spec.startswith(TAR_PREFIX) or spec.lower().endswith(".tar")

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        entry = self._entries[split][i]
        try:
            with open(entry.tar, "rb") as file:
                file.seek(entry.offset)
                data = file.read(entry.size)
        except OSError as error:
            raise RunError(f"{entry.tar}: {error.strerror}", "restore the tar, then ingest again") from error
        if len(data) < entry.size:
            raise RunError(f"{entry.tar}: cut since it was looked through, in {entry.key}", "ingest again")
        return image_to_store(data, f"{entry.tar}: {entry.key}")

    def fingerprint(self) -> str:
        entries = [entry for split in self.splits for entry in self._entries[split]]
        files = {tar: os.stat(tar) for tar in dict.fromkeys(entry.tar for entry in entries)}
        return digest_lines(
            [
                *self.classes,
                *(f"{os.path.basename(tar)}\t{found.st_size}\t{found.st_mtime_ns}" for tar, found in files.items()),
                *(f"{split}\t{name}" for split in self.splits for name in self.names[split]),
                *(f"{entry.offset}\t{entry.size}\t{entry.label}" for entry in entries),
                digest_sample([(entry.tar, entry.offset) for entry in entries]),
            ]
        )

    def overlaps(self, folder: Path) -> bool:
        folders = {Path(tar).resolve().parent for tar in self._tars}
        written, pattern = folder / "train-00000.tar", os.path.abspath(self._pattern)
        return folder.resolve() in folders or any(
            path.match(pattern) for path in (written.absolute(), written.resolve())
        )


def _scan(tar: str, left_out: Counter[str]) -> list[TarSample]:
    """The samples of a tar. One without samples is counted in `left_out`: its writer may have failed."""
    found = scan(tar, left_out)
    if not found:
        left_out["tars without images"] += 1
    return found


def _by_split(tars: list[str], top: str, left_out: Counter[str]) -> dict[str, list[str]]:
    """The tars of each split: a tar is test data if its name or folder says so, unless all tars would be."""
    named = {tar: _test_name(os.path.relpath(tar, top)) for tar in tars}
    test_names = sorted(set(named.values()) - {""}, key=TEST_NAMES.index)
    if not test_names or all(named.values()):
        return {"train": tars}
    for name in test_names[1:]:
        kind = f"tars called {name!r} (those called {test_names[0]!r} are the test split)"
        left_out[kind] = sum(other == name for other in named.values())
    return {
        "train": [tar for tar in tars if not named[tar]],
        "test": [tar for tar in tars if named[tar] == test_names[0]],
    }


def _test_name(tar: str) -> str:
    """The word that makes a tar test data, or "": of its name, else of the closest folder that names a split.

    Args:
        tar: its path below the folder that holds all tars. What lies above says nothing about a single one.
    """
    word = next(filter(None, map(split_word, reversed(Path(tar).parts))), "")
    return word if word in TEST_NAMES else ""


def _numbers(splits: Mapping[str, Labels], where: str) -> list[str]:
    """The labels as class names. Gaps are refused: otherwise a single wrong label could use up all memory."""
    present = np.unique(np.concatenate(list(splits.values())))
    if present[-1] >= len(present):
        missing = np.flatnonzero(present != np.arange(len(present)))[0]
        remedy = "number the classes 0, 1, 2, ... without gaps"
        raise UsageError(f"{where}: labels go up to {present[-1]}, but there is no image of class '{missing}'", remedy)
    return [str(label) for label in present]


def _check_labels(splits: Mapping[str, Labels], classes: Sequence[str], where: str, folder: Path) -> None:
    highest = max(int(labels_N.max(initial=0)) for labels_N in splits.values())
    if highest >= len(classes):
        named = f"{len(classes)} class{'es' * (len(classes) != 1)}"
        raise UsageError(f"{where}: label {highest} for {named}", f"complete the class list in {folder}")


def _class_names(folder: Path) -> list[str]:
    """Names from the list beside the tars; empty if there is no list."""
    for file, parse, form in (
        (folder / "classes.txt", _lines, "write one name per line, in UTF-8"),
        (folder / "classes.json", _json_list, 'write a JSON list of names: ["cat", "dog"]'),
    ):
        if not file.is_file():
            continue
        try:
            names = parse(file.read_text(encoding="utf-8-sig"))
            if not names:
                raise ValueError("names no class")
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{file}: {error}", form) from error
        for name in names:
            check_name(name, str(file))
        if doubled := [name for name, count in Counter(names).items() if count > 1]:
            raise UsageError(f"{file}: {doubled[0]!r} occurs twice", "give each class a different name")
        return names
    return []


def _lines(text: str) -> list[str]:
    names = [line.strip() for line in text.rstrip().splitlines()]
    if "" in names:
        raise ValueError(f"line {names.index('') + 1} is empty; it would shift the labels of the lines below")
    return names


def _json_list(text: str) -> list[str]:
    names = json.loads(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("not a list of names")
    return names
