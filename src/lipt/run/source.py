"""Images and what is made of them lie apart."""

from __future__ import annotations

from lipt.adapters.store import Store
from lipt.adapters.store.file import FileStore
from lipt.config import Data
from lipt.data.sources import Source, open_source
from lipt.errors import UsageError


def open_apart(data: Data, store: Store) -> Source:
    """The configured source, which must lie apart from where chunks of it are to be written.

    Raises:
        UsageError: it does not, or as `open_source`.
    """
    source = open_source(data.source, data.format)
    if isinstance(store, FileStore) and source.overlaps(store.root):
        raise UsageError(
            f"{store.root} and the images of {data.source} overlap: chunks would be mixed with images",
            "choose a destination, or a workspace, that is outside of the folder of the images",
        )
    return source
