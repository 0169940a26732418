"""Files that others see whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

TEMPORARY = ".lipt-tmp-"
"""Unfinished files have names with this prefix."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, and the folders above it that are missing. An earlier file stays until the new one is on the disk.

    A writer that fails leaves nothing behind, one that is killed at most a file whose name begins with `TEMPORARY`.
    """
    temporary = path.parent / f"{TEMPORARY}{uuid4().hex}"
    try:
        with _opened(temporary) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # otherwise a power loss could leave an empty file under the new name
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def remove_with_folders(path: Path, root: Path) -> None:
    """Remove a file, and the folders between it and `root` that become empty."""
    path.unlink()
    with suppress(OSError):  # not empty, or another process removed it
        for folder in path.parents:
            if folder == root:
                break
            folder.rmdir()


def _opened(path: Path, tries: int = 20) -> BinaryIO:
    """Create a file, and the folders above it that are missing. If `remove_with_folders` takes them away, try again.

    `mkdir` finds the folder missing, or in its way and then gone: it raises FileNotFoundError or FileExistsError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "xb")
    except (FileNotFoundError, FileExistsError):
        if not tries:
            raise
        return _opened(path, tries - 1)


def _sync_folder(folder: Path) -> None:
    """Make the rename survive a power loss, if the file system can do this."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
