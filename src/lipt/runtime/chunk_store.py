"""Chunk stores: find the one that a configuration names, check it, write one."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack, suppress
from pathlib import Path

from lipt.adapters.store import DatasetFiles, Store
from lipt.config import Data
from lipt.data.chunks import MANIFEST, ChunkInfo, Manifest, thumbnails_are_of, thumbnails_folder, write_dataset
from lipt.data.sources import Source
from lipt.data.sources.base import describe_left_out
from lipt.errors import DamagedDataError, RunError, UsageError
from lipt.progress import Reporter
from lipt.runtime.lease import leased


def is_chunk_store(data: Data) -> bool:
    """Whether `data.source` names a data set that is already ingested."""
    if data.format != "auto":
        return data.format == "store"
    return "://" in data.source or os.path.isfile(Path(data.source) / MANIFEST)  # False if the folder grants no access


def find_thumbnails(store: Store, images: Manifest, side: int) -> Manifest:
    """The thumbnails of a chunk store.

    Args:
        images: the manifest of the chunk store.
        side: `data.thumbnails`.

    Raises:
        UsageError: there are none of that size.
        DamagedDataError: they are of another data set.
    """
    folder = thumbnails_folder(side)
    found = DatasetFiles(store).get(f"{folder}/{MANIFEST}")
    if found is None:
        raise UsageError(
            f"{store.uri} has no thumbnails of {side} pixels",
            f"ingest again into this place with `--thumbnails {side}`, or set data.thumbnails to null",
        )
    thumbnails = Manifest.from_json(found)
    if not thumbnails_are_of(thumbnails, images):
        raise DamagedDataError(
            f"the thumbnails in {store.uri}/{folder} belong to another data set",
            f"ingest again into this place with `--thumbnails {side}`",
        )
    return thumbnails


def check_complete(store: Store, manifest: Manifest) -> None:
    """
    Raises:
        DamagedDataError: chunks are missing or have another size; names the first and gives their number.
    """
    sizes = store.sizes()
    chunks = [chunk for split in manifest.splits.values() for chunk in split.chunks]
    if lacking := [chunk.file for chunk in chunks if sizes.get(chunk.file) != chunk.size]:
        wrong = "is missing" if lacking[0] not in sizes else "has another size than when it was written"
        raise DamagedDataError(
            f"{store.uri}/{lacking[0]} {wrong} ({len(lacking):,} of {len(chunks):,} chunks are damaged)",
            "restore them, or repeat the `lipt ingest` that wrote them",
        )


def write_apart(data: Data, store: Store, reporter: Reporter, source: Source) -> Manifest:
    """Write the chunks into a store that is no artifact of a workspace.

    Of two processes that do so, one waits. Otherwise the second would take what the first has just written for the
    remains of an interrupted call, and delete it.

    Args:
        source: the opened source that `data` names.
    """
    claim = leased(store.metered(), "lease", lambda text: reporter.note("ingest", text))
    with ExitStack() as stack:
        with suppress(RunError, UsageError):  # who may not write reads a finished store, or fails below
            stack.enter_context(claim)
        return write_chunks(data, store, reporter, "ingest", source)


def write_chunks(
    data: Data, store: Store, reporter: Reporter, label: str, source: Source, *, verify: bool = False
) -> Manifest:
    """Write the chunks into `store`. Continues an interrupted call and writes missing chunks again.

    Args:
        source: the opened source that `data` names.
        verify: also read the existing chunks, and replace damaged ones.
    """
    files = DatasetFiles(store)
    sizes = store.sizes()

    def present(chunk: ChunkInfo) -> bool:
        if sizes.get(chunk.file) != chunk.size:
            return False
        return not verify or hashlib.sha256(files.get(chunk.file) or b"").hexdigest() == chunk.sha256

    if source.left_out:
        reporter.alert(f"left out: {describe_left_out(source.left_out)}", label)
    return write_dataset(
        source,
        files.put,
        get=files.get,
        delete=files.delete,
        present=present,
        say=reporter.say,
        seed=data.shuffle_seed,
        chunk_bytes=round(data.chunk_mb * 1e6),
        thumbnails=data.thumbnails,
        test_fraction=data.test_fraction,
        progress=lambda done, total: reporter.advance(label, done, total, "images"),
    )


def drop_damaged_manifest(store: Store) -> None:
    """Delete the manifest if it is damaged, so that the chunks are written again."""
    data = DatasetFiles(store).get(MANIFEST)
    if data is not None:
        try:
            Manifest.from_json(data)
        except DamagedDataError:
            store.delete(MANIFEST)
