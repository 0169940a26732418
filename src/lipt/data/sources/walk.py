"""The image files below class folders: links are followed, and what is no image is counted."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from lipt.data.sources.base import check_name
from lipt.data.sources.layout import ancestors, existing, images_below, is_image
from lipt.errors import RunError

_LONGEST_SUFFIX = 12  # of those that are counted apart


class Walk:
    """Finds the image files of class after class in a fixed order; `left_out` counts what lies between them.

    Each folder is read once: a link to a folder above, or to one that the class has already, is left out.

    Args:
        top: the folder of the source; paths are relative to it.
        roots: the folders that hold the class folders.
    """

    def __init__(self, top: Path, roots: Iterable[Path], left_out: Counter[str]) -> None:
        self._top = top
        self._left_out = left_out
        places = {os.path.realpath(path) for path in (top, *roots)}
        self._owners = dict.fromkeys(ancestors(top) | places, "")  # real path -> class folder
        for place in sorted(places):
            for name in os.listdir(place):
                if is_image(name):
                    left_out["images outside of class folders"] += 1
                elif name.startswith("."):
                    self._pass_over(os.path.join(place, name), file_kind="")

    def images(self, folder: Path) -> Iterator[tuple[str, os.stat_result]]:
        """Relative path and `os.stat` of each image file of a class.

        Raises:
            RunError: a link leads nowhere, a name is no UTF-8, or a folder belongs to another class or split as well.
        """
        pending = [str(folder)]
        while pending:
            current = pending.pop()
            if not self._is_new(current, str(folder)):
                continue
            folders: list[str] = []
            for name in sorted(os.listdir(current)):
                path = os.path.join(current, name)
                if name.startswith("."):
                    self._pass_over(path, file_kind="hidden files")
                elif stat.S_ISDIR((found := existing(path)).st_mode):
                    folders.append(path)
                elif kind := _kind(name, found):
                    self._left_out[kind] += 1
                else:
                    yield self._relative(path), found
            pending.extend(reversed(folders))

    def _pass_over(self, hidden: str, *, file_kind: str) -> None:
        if os.path.isdir(hidden):
            if count := sum(1 for _ in images_below(Path(hidden))):
                self._left_out["images in hidden folders"] += count
        elif file_kind:
            self._left_out[file_kind] += 1

    def _is_new(self, current: str, owner: str) -> bool:
        real = os.path.realpath(current)
        if real not in self._owners:
            self._owners[real] = owner
            return True
        if self._owners[real] not in ("", owner):
            raise RunError(
                f"{owner} and {self._owners[real]} share the folder {real}",
                "give each class and split images of its own: remove one of the links",
            )
        self._left_out["links to folders above or read before"] += 1
        return False

    def _relative(self, path: str) -> str:
        relative = os.path.relpath(path, self._top)
        check_name(relative, str(self._top))
        return relative


def _kind(name: str, found: os.stat_result) -> str:
    """What a file is left out as; empty for an image."""
    if is_image(name):
        return "" if stat.S_ISREG(found.st_mode) else "non-regular files"
    suffix = os.path.splitext(name)[1].lower()
    return f"{suffix} files" if 1 < len(suffix) <= _LONGEST_SUFFIX else "files without a suffix"
