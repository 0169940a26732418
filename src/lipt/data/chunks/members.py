"""The tar members of a sample: its image and its label."""

from __future__ import annotations

import tarfile

from lipt.data.chunks.index import RESTORE
from lipt.errors import DamagedDataError

_BLOCK = 512  # tar pads headers and contents to this many bytes
END_OF_TAR = bytes(2 * _BLOCK)
_PNG = b"\x89PNG"


def pack_sample(key: str, image: bytes, ext: str, label: int) -> bytes:
    """The tar members `KEY.EXT` and `KEY.cls` with headers and padding; the same bytes on every machine."""
    return _member(f"{key}.{ext}", image) + _member(f"{key}.cls", str(label).encode())


def _member(name: str, content: bytes) -> bytes:
    info = tarfile.TarInfo(name)  # mtime 0, uid 0, gid 0, no user, mode 644
    info.size = len(content)
    header = info.tobuf(tarfile.USTAR_FORMAT, "utf-8")  # by default Python encodes the name as the locale says
    return header + content + bytes(-len(content) % _BLOCK)


def unpack_image(span: memoryview) -> tuple[bytes, str]:
    """(image, extension) from the bytes of a sample, whose crc32 the caller has checked.

    Raises:
        DamagedDataError: the bytes are neither a tar member nor a PNG file.
    """
    if span[:4] == _PNG:  # a thumbnail; the name in a tar header begins with a digit
        return bytes(span), "png"
    try:
        name = bytes(span[:100]).rstrip(b"\0").decode()
        size = int(bytes(span[124:135]), 8)  # the header's size field: 11 octal digits
    except ValueError as error:
        raise DamagedDataError(f"a sample is not a tar member: {error}", RESTORE) from None
    return bytes(span[_BLOCK : _BLOCK + size]), name.rpartition(".")[2]
