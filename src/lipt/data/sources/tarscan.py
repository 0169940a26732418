"""Reads one WebDataset tar strictly: damage and duplicates are errors, with the byte where they are."""

import io
import os
import posixpath
import tarfile
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from lipt.data.sources.names import IMAGE_SUFFIXES, check_name
from lipt.errors import RunError, UsageError, printable

_BLOCK = tarfile.BLOCKSIZE
_MAX_PADDING = 2**20  # bytes; tar pads to 10 kB by default. More zeros mean a copy that was not finished
_MAX_LABEL = 2**31 - 1  # labels in the index are int32

_PACK = "pack the tar again with plain files: tar --dereference --hard-dereference, without --sparse"
_RESTORE = "replace the tar by a complete copy"
_JOINED = "if tars were joined with cat, name each of them or join them with tar --concatenate; else replace the tar"


class TarSample(NamedTuple):
    """One sample: offset and size in bytes of its image `KEY.SUFFIX` in the tar, and its label."""

    tar: str
    key: str
    suffix: str
    offset: int
    size: int
    label: int


class _File(io.BufferedReader):
    """A file that never reads beyond its end, so that a forged size in a header cannot use up the memory."""

    def __init__(self, path: str) -> None:
        raw = io.FileIO(path)
        self.length = os.fstat(raw.fileno()).st_size
        super().__init__(raw)

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self.length - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


def scan(path: str, left_out: Counter[str]) -> list[TarSample]:
    """The samples of one tar, in its order; members that are neither image nor label are counted by kind in `left_out`.

    Raises:
        PermissionError: the tar cannot be read.
        RunError: the tar is damaged, compressed or joined with another one, a sample is incomplete or occurs twice, or
            an image or label is a link.
        UsageError: a label is no number of a class.
    """
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, tarfile.TarInfo] = {}
    classes: dict[str, int] = {}
    others: dict[str, list[str]] = {}
    try:
        with _File(path) as file:
            for member in _members(file, path):
                if member.isdir():
                    continue
                key, suffix = _split(member.name)
                found = labels if suffix.lower() == "cls" else images if _is_image(suffix) else None
                if found is None or not posixpath.basename(key):
                    left_out[_kind(member, key, suffix)] += 1
                    others.setdefault(key, []).append(member.name)
                    continue
                _check(member, key, found, path)
                found[key] = member
                if found is labels:
                    classes[key] = _label(file, member, path)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise
        raise RunError(f"{path}: {error.strerror}", _RESTORE) from error
    for key in sorted(images.keys() ^ labels.keys())[:1]:
        lacks = "label (KEY.cls)" if key in images else "image (KEY.jpg or KEY.png)"
        beside = f"; beside it: {', '.join(others[key])}" if key in others else ""
        remedy = "add a file KEY.cls with the number of its class" if key in images else "add its image"
        raise RunError(f"{path}: sample {key!r} has no {lacks}{beside}", f"{remedy}, or remove the sample")
    return [
        TarSample(path, key, _split(image.name)[1], image.offset_data, image.size, classes[key])
        for key, image in images.items()
    ]


def _members(file: _File, path: str) -> Iterator[tarfile.TarInfo]:
    """All members. `tarfile` alone would take a damaged header, or the end of the file, for the end of the tar."""
    at = 0
    try:
        with tarfile.open(fileobj=file, mode="r:", encoding="utf-8") as tar:
            for member in tar:
                yield member
                if tar.offset > file.length:
                    raise RunError(f"{path}: cut at byte {file.length:,}, in {member.name}", _RESTORE)
                if tar.offset <= at:
                    raise tarfile.ReadError(f"{member.name} has a size below 0")
                at = tar.offset
    except (OSError, RunError):
        raise
    except Exception as error:  # tarfile raises TarError, ValueError, IndexError, RecursionError ... for damage
        if not at:
            raise RunError(f"{path}: not a readable uncompressed tar: {error}", "unpack or replace the tar") from error
        raise RunError(f"{path}: damaged at byte {at:,}: {error}", _RESTORE) from error
    _check_end(file, at, path)


def _check_end(file: _File, end: int, path: str) -> None:
    """Check that at least two blocks of zeros, and nothing else, follow byte `end`."""
    file.seek(end)
    tail = file.read(_MAX_PADDING)
    if rest := tail.lstrip(b"\0"):
        at = end + len(tail) - len(rest)
        if at < end + _BLOCK:
            raise RunError(f"{path}: damaged header at byte {end:,}", _RESTORE)
        raise RunError(f"{path}: the tar ends at byte {end:,}, but more follows at byte {at:,}", _JOINED)
    if len(tail) < 2 * _BLOCK:
        at = end + len(tail)
        raise RunError(f"{path}: cut at byte {at:,}: the end mark of a tar (two blocks of zeros) is missing", _RESTORE)
    if (more := file.length - end) > len(tail):
        raise RunError(f"{path}: the tar ends at byte {end:,}, but {more:,} bytes follow, more than padding", _RESTORE)


def _split(name: str) -> tuple[str, str]:
    """Key and suffix of a member: by convention a key ends at the first dot of the file name."""
    folder, base = posixpath.split(name)
    stem, _, suffix = base.partition(".")
    return posixpath.join(folder, stem), suffix


def _is_image(suffix: str) -> bool:
    return f".{suffix.lower()}" in IMAGE_SUFFIXES


def _kind(member: tarfile.TarInfo, key: str, suffix: str) -> str:
    if not posixpath.basename(key):
        return "hidden files"
    if not member.isreg():
        return "non-regular files"
    return f".{printable(suffix)} files" if suffix else "files without a suffix"


def _check(member: tarfile.TarInfo, key: str, found: dict[str, tarfile.TarInfo], path: str) -> None:
    """Check that an image or label is a plain file, the only one of its key, and that its name is UTF-8 on one line."""
    check_name(member.name, path)
    if not member.isreg() or member.issparse():
        raise RunError(f"{path}: {member.name} at byte {member.offset:,} is a link or sparse file", _PACK)
    if other := found.get(key):
        places = f"{other.name} at byte {other.offset:,}, {member.name} at byte {member.offset:,}"
        remedy = "give each sample a different key, with one image and one .cls"
        raise RunError(f"{path}: key {key!r} occurs twice: {places}", remedy)


def _label(file: _File, member: tarfile.TarInfo, path: str) -> int:
    file.seek(member.offset_data)
    text = file.read(min(member.size, 33))
    if len(text) > 32 or not text.strip().isdigit():
        raise UsageError(f"{path}: {member.name} contains {text!r}", "write one integer from 0 on into a .cls file")
    if int(text) > _MAX_LABEL:
        raise UsageError(f"{path}: {member.name} contains {int(text)}", "number the classes 0, 1, 2, ... without gaps")
    return int(text)
