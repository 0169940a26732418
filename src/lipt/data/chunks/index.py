"""The index of a split, which says where each sample lies."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lipt.errors import DamagedDataError
from lipt.parquet import parquet_source

_SOURCE = "source"
#: What a user does about a damaged file.
RESTORE = "restore the file, or delete the data set and ingest it again"

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
        offset: (N,) int64, the first byte of the sample's members in the tar.
        size: (N,) int32, bytes of its members, headers and padding included.
        label: (N,) int32.
        crc32: (N,) uint32, over [offset, offset + size).
        source: (N,) strings, the name of each sample in the source; None if it was not read or does not exist.
    """

    chunk: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    label: npt.NDArray[np.int32]
    crc32: npt.NDArray[np.uint32]
    source: pa.ChunkedArray | None = None

    def __len__(self) -> int:
        return len(self.chunk)

    @classmethod
    def from_rows(cls, rows: list[tuple[int, int, int, int, int]], names: Sequence[str]) -> Index:
        """The index of samples, each given as (chunk, offset, size, label, crc32) and a name."""
        table = np.array(rows, dtype=np.int64).reshape(-1, len(_COLUMNS))
        columns = {name: table[:, column].astype(dtype) for column, (name, dtype) in enumerate(_COLUMNS.items())}
        return cls(**columns, source=pa.chunked_array([[_text(name) for name in names]], pa.string()))

    @classmethod
    def concatenate(cls, parts: list[Index]) -> Index:
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        names = [chunk for part in parts if part.source is not None for chunk in part.source.chunks]
        return cls(**columns, source=pa.chunked_array(names, pa.string()))

    def to_parquet(self, metadata: dict[str, str] | None = None) -> bytes:
        """The index as a parquet file; `metadata` is written into its schema."""
        table = pa.table({name: getattr(self, name) for name in _COLUMNS}, metadata=metadata)
        if self.source is not None:
            table = table.append_column(_SOURCE, self.source)
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd", use_dictionary=list(_COLUMNS))  # names differ
        return buffer.getvalue()

    @classmethod
    def from_parquet(cls, data: bytes, expected_sha256: str, name: str = "index") -> Index:
        """Check the digest of the file `name` and parse it, without the names of samples.

        Raises:
            DamagedDataError: the digest differs, or the file is not an index.
        """
        check_sha256(data, expected_sha256, name)
        return cls.from_table(read_table(data, name, list(_COLUMNS)), name)

    @classmethod
    def from_table(cls, table: Any, name: str) -> Index:
        """
        Raises:
            DamagedDataError: the table is not an index.
        """
        for column, dtype in _COLUMNS.items():
            kind = table.schema.field(column).type if table.schema.names.count(column) == 1 else None
            if kind != pa.from_numpy_dtype(dtype) or table[column].null_count:
                raise DamagedDataError(f"{name}: column {column} is {kind or 'missing'}, expected {dtype}", RESTORE)
        names = table[_SOURCE] if _SOURCE in table.schema.names else None
        return cls(**{column: table[column].to_numpy() for column in _COLUMNS}, source=names)


def read_names(data: bytes, expected_sha256: str, name: str) -> pa.ChunkedArray:
    """The names of the samples in an index file.

    Raises:
        DamagedDataError: as `Index.from_parquet`.
    """
    check_sha256(data, expected_sha256, name)
    table = read_table(data, name, [_SOURCE])
    if table.schema.names != [_SOURCE] or table[_SOURCE].type != pa.string() or table[_SOURCE].null_count:
        raise DamagedDataError(f"{name}: no column {_SOURCE} with a string for each sample", RESTORE)
    return table[_SOURCE]


def read_table(data: bytes, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The given columns of a parquet file, without those that it lacks; None = all columns.

    Raises:
        DamagedDataError: the file cannot be read.
    """
    with _parquet_errors(name):
        file = parquet_source(data)
        there = pq.read_schema(file).names
        return pq.read_table(file, columns=[column for column in columns or there if column in there])


@contextmanager
def _parquet_errors(name: str) -> Iterator[None]:
    """Turns errors of the parquet reader into a `DamagedDataError` that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise DamagedDataError(f"{name} is not a readable parquet file: {why}", RESTORE) from None


def check_sha256(data: bytes, expected: str, name: str) -> None:
    if hashlib.sha256(data).hexdigest() != expected:
        raise DamagedDataError(f"{name}: the sha256 differs from the one in the manifest", RESTORE)


def _text(name: str) -> str:
    """A file name as Unicode: bytes that are not UTF-8 become `\\xNN`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
