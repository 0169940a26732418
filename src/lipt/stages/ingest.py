"""Ingest: any source of images becomes a chunk store, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lipt.adapters.store import DatasetFiles, Store, open_store
from lipt.config import Data
from lipt.core.chunks import Dataset, Manifest, write_dataset
from lipt.core.sources import Source, open_source
from lipt.core.sources.base import told
from lipt.progress import Reporter
from lipt.stages.context import Context
from lipt.stages.workspace import Artifact, Step


def ingest(ctx: Context) -> Artifact:
    """The configured data as a chunk store: written below the workspace, or found where `data.source` says it is."""
    data = ctx.config.data
    if is_chunk_store(data):
        manifest = Dataset(DatasetFiles(open_store(data.source)).read).manifest
        return ctx.step(
            "ingest", {"digest": manifest.digest}, [], lambda _step: _summary(manifest, open_store(data.source).uri)
        )
    source = open_source(data.source, data.format)
    settings = {
        "fingerprint": source.fingerprint(),
        "chunk_mb": data.chunk_mb,
        "shuffle_seed": data.shuffle_seed,
        "test_fraction": data.test_fraction,
    }

    def body(step: Step) -> dict[str, Any]:
        location = f"{step.ref}/store"
        manifest = write_chunks(data, step.open(location), step.reporter, step.label, source)
        return _summary(manifest, location) | {"left_out": dict(source.left_out)}

    return ctx.step("ingest", settings, [], body)


def write_chunks(data: Data, store: Store, reporter: Reporter, label: str, source: Source | None = None) -> Manifest:
    """Ingest the source, opened already or not, into `store`; continues where an interrupted call stopped."""
    files = DatasetFiles(store)
    source = source or open_source(data.source, data.format)
    if source.left_out:
        reporter.say(f"{label:<16} left out: {told(source.left_out)}")
    return write_dataset(
        source,
        files.put,
        get=files.get,
        delete=files.delete,
        seed=data.shuffle_seed,
        chunk_bytes=round(data.chunk_mb * 1e6),
        test_fraction=data.test_fraction,
        progress=lambda done, total: reporter.advance(label, done, total, "images"),
    )


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
