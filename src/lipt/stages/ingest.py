"""Ingest: any source of images becomes a chunk store, once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from lipt.adapters.store import DatasetFiles, Store, open_store
from lipt.config import Data
from lipt.core.chunks import MANIFEST, ChunkInfo, Dataset, Manifest, write_dataset
from lipt.core.sources import Source, open_source
from lipt.core.sources.base import told
from lipt.errors import DamagedDataError
from lipt.progress import Reporter
from lipt.stages.context import Context
from lipt.stages.workspace import DAMAGED, Artifact, File, Step

#: Where the chunks lie, below an artifact.
_STORE = "store"


def ingest(ctx: Context) -> Artifact:
    """The configured data as a chunk store: written below the workspace, or found where `data.source` says it is.

    Raises:
        DamagedDataError: files of the one that `data.source` names are missing.
    """
    data = ctx.config.data
    if is_chunk_store(data):
        store = open_store(data.source)
        manifest = Dataset(DatasetFiles(store).read).manifest
        check_complete(store, manifest)
        return ctx.step("ingest", {"digest": manifest.digest}, [], lambda _step: _summary(manifest, store.uri))
    settings = {
        "fingerprint": ctx.listing().fingerprint,
        "chunk_mb": data.chunk_mb,
        "shuffle_seed": data.shuffle_seed,
        "test_fraction": data.test_fraction,
    }

    def body(step: Step) -> dict[str, Any]:
        location, source = f"{step.ref}/{_STORE}", open_source(data.source, data.format)
        store = step.open(location)
        _drop_damaged_manifest(store)
        marked = step.store.size(f"{step.ref}/{DAMAGED}") is not None
        manifest = write_chunks(data, store, step.reporter, step.label, source, verify=marked)
        step.files[f"{_STORE}/"] = File(sha256=manifest.digest, num_bytes=sum(store.sizes().values()))
        return _summary(manifest, location) | {"left_out": dict(source.left_out)}

    return ctx.step("ingest", settings, [], body)


def write_chunks(
    data: Data, store: Store, reporter: Reporter, label: str, source: Source | None = None, *, verify: bool = False
) -> Manifest:
    """Ingest the source, opened already or not, into `store`.

    Continues where an interrupted call stopped, and replaces chunks that are gone.

    Args:
        verify: read the chunks that are there, and replace damaged ones too.
    """
    files = DatasetFiles(store)
    sizes = store.sizes()

    def present(chunk: ChunkInfo) -> bool:
        if sizes.get(chunk.file) != chunk.size:
            return False
        return not verify or hashlib.sha256(files.get(chunk.file) or b"").hexdigest() == chunk.sha256

    source = source or open_source(data.source, data.format)
    if source.left_out:
        reporter.say(f"{label:<16} left out: {told(source.left_out)}")
    return write_dataset(
        source,
        files.put,
        get=files.get,
        delete=files.delete,
        present=present,
        seed=data.shuffle_seed,
        chunk_bytes=round(data.chunk_mb * 1e6),
        test_fraction=data.test_fraction,
        progress=lambda done, total: reporter.advance(label, done, total, "images"),
    )


def check_complete(store: Store, manifest: Manifest) -> None:
    """
    Raises:
        DamagedDataError: a chunk is missing, or has another size; names the first, and says how many there are.
    """
    sizes = store.sizes()
    chunks = [chunk for split in manifest.splits.values() for chunk in split.chunks]
    if lacking := [chunk.file for chunk in chunks if sizes.get(chunk.file) != chunk.size]:
        wrong = "is missing" if lacking[0] not in sizes else "is not as long as it was written"
        raise DamagedDataError(
            f"{store.uri}/{lacking[0]} {wrong} ({len(lacking):,} of {len(chunks):,} chunks are damaged)",
            "restore them, or run the same `lipt ingest` again",
        )


def _drop_damaged_manifest(store: Store) -> None:
    """Without it the chunks are written again."""
    data = DatasetFiles(store).get(MANIFEST)
    if data is not None:
        try:
            Manifest.from_json(data)
        except DamagedDataError:
            store.delete(MANIFEST)


def is_chunk_store(data: Data) -> bool:
    """Whether `data.source` names a data set that is ingested already."""
    if data.format != "auto":
        return data.format == "store"
    return "://" in data.source or (Path(data.source) / "manifest.json").is_file()


def _summary(manifest: Manifest, location: str) -> dict[str, Any]:
    return {
        "location": location,
        "digest": manifest.digest,
        "name": manifest.name,
        "classes": list(manifest.classes),
        "train": manifest.splits["train"].count,
        "test": manifest.splits["test"].count,
    }
