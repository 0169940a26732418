"""Stores of objects, a folder (`file://`) or a bucket (`s3://`). Every byte that is read or written is counted."""

import os
from collections.abc import Mapping

from lipt.adapters.store.base import Kind, MissingObjectError, Store, StoreError, Traffic
from lipt.adapters.store.dataset import DatasetFiles
from lipt.adapters.store.file import FileStore
from lipt.errors import UsageError, did_you_mean

__all__ = ["DatasetFiles", "Kind", "MissingObjectError", "Store", "StoreError", "Traffic", "open_store"]


def open_store(uri: str, *, like: Store | None = None, environment: Mapping[str, str] = os.environ) -> Store:
    """The store at `uri`: a plain path, `file:///abs/path` or `s3://bucket/prefix`; nothing is contacted yet.

    Args:
        like: a store whose connection is used if both are buckets.
        environment: names the endpoint and the credentials of a bucket otherwise; by default that of this process.

    Raises:
        UsageError: unknown scheme, empty or malformed location, or a variable of the S3 settings is missing.
    """
    if not uri:  # FileStore would take it for the current folder
        raise UsageError("the address of a folder or bucket is empty", "name it; . is the current folder")
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return FileStore(uri)
    if scheme == "file":
        if not rest.startswith("/"):
            raise UsageError(f"{uri}: a file URI needs an absolute path", "write file:///abs/path or a plain path")
        return FileStore(rest)
    if scheme == "s3":
        from lipt.adapters.store.s3 import S3Store  # minio takes 100 ms to import

        return like.elsewhere(rest) if isinstance(like, S3Store) else S3Store.from_environment(rest, environment)
    raise UsageError(f"{uri}: unknown scheme {scheme!r}", did_you_mean(scheme, ("file", "s3")))
