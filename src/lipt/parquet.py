"""Parquet files that lie in memory."""

from __future__ import annotations

import pyarrow as pa


def parquet_source(data: bytes) -> pa.BufferReader:
    """The file for `pyarrow.parquet` to read: a copy of the data in Arrow's own memory.

    Arrow's threads may hold the source a moment longer than the call that reads. If it belongs to Python, and Python
    ends in this moment, they abort the process.
    """
    copy = pa.BufferOutputStream()
    copy.write(data)
    return pa.BufferReader(copy.getvalue())
