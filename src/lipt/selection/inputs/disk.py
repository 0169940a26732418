"""Room for the rows of a scoring pass, in memory or in .npy files."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor

from lipt.errors import RunError, UsageError

#: The names that a scoring pass gives to its files.
_OF_A_PASS = re.compile(r"labels\.npy|(logits|features)(-\d+)?\.npy")
#: Their names until the pass has ended.
_UNFINISHED = re.compile(r"\.(labels|logits|features)(-\d+)?\.npy\.[0-9a-f]{32}")


class Rows:
    """Makes tensors in memory, or memory-mapped in files that get their names at the end (`rows_in`)."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.unfinished: dict[Path, np.memmap[tuple[int, ...], np.dtype[np.generic]]] = {}
        self.temporary: dict[Path, int] = {}
        """Each with a descriptor that holds a lock: a file without one was left by a process that was killed."""

    def new(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, *, suffix: str = "") -> Tensor:
        """A tensor without contents."""
        if self.folder is None or 0 in shape:
            return torch.empty(shape, dtype=dtype, device="cpu")
        path = self.folder / f"{name}{suffix}.npy"
        temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        kind = np.int64 if dtype == torch.int64 else np.float32
        with _writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.temporary[temporary] = _locked(temporary)
            mapped = np.lib.format.open_memmap(temporary, mode="w+", dtype=kind, shape=shape)
            self.unfinished[path] = mapped
            if hasattr(os, "posix_fallocate"):  # writing to a page for which the disk has no room kills the process
                with open(temporary, "r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, mapped.offset + mapped.nbytes)
        return torch.from_numpy(mapped)

    def finish(self) -> None:
        """Give the files their names, and delete what an earlier pass over other models left."""
        for path, mapped in self.unfinished.items():
            with _writing(path.parent):
                mapped.flush()
                os.replace(str(mapped.filename), path)
        if self.folder is not None:
            with _writing(self.folder):
                for path in self.folder.iterdir():
                    if _OF_A_PASS.fullmatch(path.name) and path not in self.unfinished:
                        path.unlink()


@contextmanager
def rows_in(folder: str | os.PathLike[str] | None) -> Iterator[Rows]:
    """Rows in files of the folder, which get their names when everything is written; on an error they are deleted.

    The files of a pass that was killed are deleted first.

    Raises:
        UsageError: it cannot be the name of a folder.
        RunError: the folder cannot be written.
    """
    if not isinstance(folder, (str, os.PathLike, NoneType)):
        raise UsageError(f"to={folder!r} is no name of a folder", "name one, such as outputs")
    rows = Rows(None if folder is None else Path(folder))
    if rows.folder is not None and rows.folder.is_dir():
        with _writing(rows.folder):
            _delete_leftovers(rows.folder)
    try:
        yield rows
        rows.finish()
    finally:
        for path, descriptor in rows.temporary.items():
            os.close(descriptor)
            with suppress(OSError):
                path.unlink()


def _locked(path: Path) -> int:
    """The descriptor of a new file, with a lock on it. Another pass may see the file before the lock and delete it as a
    leftover: then it is made again.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        with suppress(OSError):  # a file system without locks: then leftovers stay, too
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            return descriptor
        os.close(descriptor)


def _delete_leftovers(folder: Path) -> None:
    for path in folder.iterdir():
        if _UNFINISHED.fullmatch(path.name):
            with suppress(OSError), open(path, "rb") as file:  # OSError: a process still writes it
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "free space, or choose another folder"
        raise RunError(f"cannot write {folder}: {error.strerror or error}", remedy) from None
