"""Objects as files below a folder."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from lipt.adapters.store.base import Kind, Store, Stored, StoreError, Traffic
from lipt.files import TEMPORARY, remove_with_folders, write_whole

# "No such object" for the object API: also a folder of that name, or a parent that is a file.
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free space or choose another location, then run the same command again",
    errno.EDQUOT: "the quota is used up: free space or choose another location, then run the same command again",
    errno.EACCES: "grant this user access to the folder, or choose another location",
    errno.EPERM: "grant this user access to the folder, or choose another location",
    errno.EROFS: "the file system is read-only: choose another location",
    errno.ENAMETOOLONG: "use shorter names",
    errno.ENOTDIR: "a part of this path is a file, not a folder: choose another location",
    errno.EEXIST: "a part of this path is a file, not a folder: choose another location",
}


class FileStore(Store):
    """A folder; it is created by the first write.

    A write goes to a temporary name in the same folder, is flushed to the disk and then renamed. So a killed or failed
    writer leaves at most a `.lipt-tmp-*` file, which only `leftovers` lists. A delete also removes the
    folders that become empty, so folders exist only as long as they hold objects.

    Raises:
        StoreError: the path is a file.
    """

    def __init__(self, path: str | Path, traffic: Traffic | None = None) -> None:
        self.root = Path(path).absolute()
        if os.path.isfile(self.root):  # unlike Path.is_file, False where this user may not look
            raise StoreError(f"{self.root} is a file, not a folder", "choose another location")
        super().__init__(f"file://{self.root}", traffic or Traffic())

    def _read(self, key: str, kind: Kind, start: int, length: int | None) -> bytes:
        self.traffic.count_request("read")
        with self._explained(key):
            try:
                with open(self.root / key, "rb") as file:
                    if start and length != 0 and start >= os.fstat(file.fileno()).st_size:
                        raise self._too_short(key, start, length)
                    file.seek(start)
                    data = file.read() if length is None else file.read(length)
            except _ABSENT:
                raise self._missing(key) from None
        self.traffic.count_read(kind, len(data))
        return data

    def _write(self, key: str, data: bytes) -> None:
        self.traffic.count_request("write")
        with self._explained(key):
            write_whole(self.root / key, data)

    def _size(self, key: str) -> int | None:
        self.traffic.count_request("size")
        path = self.root / key
        with self._explained(key):
            try:
                return path.stat().st_size if not path.is_dir() else None
            except _ABSENT:
                return None

    def _listing(self, prefix: str) -> dict[str, Stored]:
        self.traffic.count_request("list")
        # A prefix can end within a name: walk from the last complete folder in it.
        top = self.root / prefix.rpartition("/")[0]
        with self._explained(prefix):
            found: dict[str, Stored] = {}
            for path in list(_files_below(top)):
                key = path.relative_to(self.root).as_posix()
                if key.startswith(prefix) and not path.name.startswith(TEMPORARY):
                    with suppress(*_ABSENT):  # removed after it was listed
                        stat = path.stat()
                        found[key] = Stored(stat.st_size, stat.st_mtime)
        return found

    def _delete(self, key: str) -> None:
        self.traffic.count_request("delete")
        with self._explained(key), suppress(*_ABSENT):
            remove_with_folders(self.root / key, self.root)

    def leftovers(self, *, older_s: float) -> dict[str, int]:
        """Bytes of the unfinished files that killed writers left, by path.

        Args:
            older_s: younger ones are left out: their writers may still live.
        """
        found: dict[str, int] = {}
        with self._explained(""):
            for path in (path for path in _files_below(self.root) if path.name.startswith(TEMPORARY)):
                with suppress(*_ABSENT):  # renamed meanwhile
                    stat = path.stat()
                    if time.time() - stat.st_mtime >= older_s:
                        found[path.relative_to(self.root).as_posix()] = stat.st_size
        return dict(sorted(found.items()))

    def remove_leftover(self, path: str) -> None:
        """Remove one of `leftovers`; no error if there is none."""
        self._delete(path)

    def _sibling(self, uri: str, traffic: Traffic) -> Self:
        return type(self)(uri.removeprefix("file://"), traffic)

    @contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            remedy = _REMEDIES.get(error.errno or 0, "check the disk or mount, then run the same command again")
            raise StoreError(f"{self._uri_of(key)}: {error.strerror or error}", remedy) from error


def _files_below(top: Path) -> Iterator[Path]:
    """The files at any depth. A link to a folder counts as the folder: people move parts of a workspace to other disks.

    A link to a folder that it lies in is left out: below it everything would come again, without an end.
    """
    for current, folders, names in os.walk(top, onerror=_unless_absent, followlinks=True):
        if "lost+found" in folders:  # every ext4 volume has one, which only root may read
            folders.remove("lost+found")
        for folder in [each for each in folders if os.path.islink(os.path.join(current, each))]:
            if Path(current).resolve().is_relative_to(os.path.realpath(os.path.join(current, folder))):
                folders.remove(folder)
        yield from (Path(current, name) for name in names)


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, _ABSENT):
        raise error
