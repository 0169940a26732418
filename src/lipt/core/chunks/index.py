"""Where each sample lies: the index of a split, and the tar members that make up a sample."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lipt.errors import DamagedDataError

_BLOCK = 512  # tar pads headers and contents to this many bytes
END_OF_TAR = bytes(2 * _BLOCK)

_COLUMNS: dict[str, np.dtype[Any]] = {
    "chunk": np.dtype(np.int32),
    "offset": np.dtype(np.int64),
    "size": np.dtype(np.int32),
    "label": np.dtype(np.int32),
    "crc32": np.dtype(np.uint32),
}


@dataclass(frozen=True, eq=False)
class Index:
    """Row p describes the sample at position p of the split's global order.

    Attributes:
        chunk: (N,) int32, number of the tar.
        offset: (N,) int64, where the sample's members begin in it.
        size: (N,) int32, bytes of its members, headers and padding included.
        label: (N,) int32.
        crc32: (N,) uint32, over [offset, offset + size).
    """

    chunk: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    label: npt.NDArray[np.int32]
    crc32: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.chunk)

    @classmethod
    def from_rows(cls, rows: list[tuple[int, int, int, int, int]]) -> Index:
        """From (chunk, offset, size, label, crc32) per sample."""
        table = np.array(rows, dtype=np.int64).reshape(-1, len(_COLUMNS))
        return cls(*(table[:, column].astype(dtype) for column, dtype in enumerate(_COLUMNS.values())))

    @classmethod
    def concatenate(cls, parts: list[Index]) -> Index:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))

    def to_parquet(self, metadata: dict[str, str] | None = None) -> bytes:
        """The table as one parquet file; `metadata` goes into its schema."""
        table = pa.table({field.name: getattr(self, field.name) for field in fields(self)}, metadata=metadata)
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        return buffer.getvalue()

    @classmethod
    def from_parquet(cls, data: bytes, expected_sha256: str, name: str = "index") -> Index:
        """Parse the file `name` after checking that it is the one that was written.

        Raises:
            DamagedDataError: the digest does not fit.
        """
        if hashlib.sha256(data).hexdigest() != expected_sha256:
            remedy = "restore the file, or delete the dataset and ingest it again"
            raise DamagedDataError(f"{name}: the contents do not fit the sha256 in the manifest", remedy)
        return cls.from_table(pq.read_table(io.BytesIO(data)))

    @classmethod
    def from_table(cls, table: Any) -> Index:
        return cls(*(table[name].to_numpy().astype(dtype, copy=False) for name, dtype in _COLUMNS.items()))


def pack_sample(key: str, image: bytes, ext: str, label: int) -> bytes:
    """The tar members `KEY.EXT` and `KEY.cls`, headers and padding included; the same bytes on every machine."""
    return _member(f"{key}.{ext}", image) + _member(f"{key}.cls", str(label).encode())


def _member(name: str, content: bytes) -> bytes:
    info = tarfile.TarInfo(name)  # mtime 0, uid 0, gid 0, no user, mode 644
    info.size = len(content)
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % _BLOCK)


def unpack_image(span: memoryview) -> tuple[bytes, str]:
    """(image, extension) from a sample's bytes, whose crc32 was checked before."""
    name = bytes(span[:100]).rstrip(b"\0").decode()
    size = int(bytes(span[124:135]), 8)  # the header's size field: 11 octal digits
    return bytes(span[_BLOCK : _BLOCK + size]), name.rpartition(".")[2]
