"""Ingest: write the images of a source into a chunk store, once.

    chunks/KEY    KEY depends on the source's fingerprint: a changed file makes a new artifact
    ingest/KEY    KEY depends on the digest of the chunks' contents: all other stages start from it

With `data.thumbnails` there is a second `ingest/KEY`, of the thumbnails. They lie in a folder beside their chunks.

If images were only copied or touched, they are read again, but the digest stays the same. No later stage is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lipt.adapters.store import DatasetFiles, open_store
from lipt.config import Data
from lipt.data.chunks import MANIFEST, Dataset, Manifest, thumbnails_folder
from lipt.data.sources import check_one_size, open_source
from lipt.runtime import Attempt, Context, Stage
from lipt.runtime.artifact import CHUNKS, COST, DAMAGED, MARKER, Artifact, File, key_of, owner_of
from lipt.runtime.chunk_store import (
    check_complete,
    drop_damaged_manifest,
    find_thumbnails,
    is_chunk_store,
    write_chunks,
)
from lipt.runtime.dataset import listing

_INGEST = "ingest"
#: The folder of the chunks, below an artifact.
_STORE = "store"
#: The key of the thumbnails in a summary, and of their size in settings.
_THUMBNAILS = "thumbnails"


def ingest(ctx: Context) -> Ingest:
    """The configured data as a chunk store: written into the workspace, or the existing one at `data.source`."""
    return Ingest(ctx)


@dataclass(frozen=True)
class Ingest:
    """Like a `Stage`, but it makes two artifacts: the data set's address is known only once the chunks are written."""

    ctx: Context

    def find(self) -> Artifact | None:
        """The data set; None if it was not ingested, or an image has changed since.

        Raises:
            LiptError: see `make`.
        """
        if is_chunk_store(self.ctx.config.data):
            return _stage(self.ctx, named_store(self.ctx.config.data)[0]).find()
        chunks = _chunks(self.ctx).find()
        return _datasets(chunks.summary)[0] if chunks else None

    def make(self) -> Artifact:
        """The data set; ingests it if it does not exist.

        Raises:
            UsageError: images and workspace overlap, or the chunk store that `data.source` names has no such
                thumbnails.
            DamagedDataError: files of that chunk store are missing.
        """
        ctx = self.ctx
        if is_chunk_store(ctx.config.data):
            named = named_store(ctx.config.data)
            for each in named:
                _place(ctx, each)
            made = [_stage(ctx, each).make() for each in named]
            return made[0]
        stage = _chunks(ctx)
        before = stage.find()
        if before and not ctx.dry_run and not _has_chunks(ctx, before):  # they belonged to another artifact; now lost
            ctx.workspace.store.delete(f"{stage.ref}/{MARKER}")
        written = stage.make()
        if not written.summary:  # a dry run on data that were never ingested
            return written
        is_new = written.ref not in ctx.workspace.reused
        datasets = _datasets(written.summary)
        for found in datasets:
            if not ctx.dry_run and (is_new or ctx.workspace.find(found.ref) is None):
                ctx.workspace.cost(written)  # raises if the cost file is damaged
                cost = ctx.workspace.store.read(f"{written.ref}/{COST}", kind="other")
                ctx.workspace.store.write(f"{found.ref}/{COST}", cost, kind="other")
                ctx.workspace.store.delete(f"{found.ref}/{DAMAGED}")
                ctx.workspace.store.write(f"{found.ref}/{MARKER}", found.to_json(), kind="other")
            _place(ctx, found)
            ctx.workspace.note(found, made=is_new)
        return datasets[0]


def named_store(data: Data) -> list[Artifact]:
    """The data set in the chunk store that `data.source` names, and its thumbnails if they are asked for.

    Raises:
        UsageError: there are no such thumbnails.
        DamagedDataError: files are missing or damaged.
    """
    store, side = open_store(data.source), data.thumbnails
    manifest = Dataset(DatasetFiles(store).read).manifest
    check_complete(store, manifest)
    summary = _summary(manifest, store.uri)
    if side is not None:
        small = find_thumbnails(store, manifest, side)
        check_complete(store.at(thumbnails_folder(side)), small)
        summary |= _with_thumbnails(small, store.uri, side)
    return _datasets(summary)


def _stage(ctx: Context, dataset: Artifact) -> Stage:
    """The stage that records a data set of an existing chunk store."""

    def body(_attempt: Attempt) -> dict[str, Any]:
        return dataset.summary

    label = _THUMBNAILS if _THUMBNAILS in dataset.settings else _INGEST
    return Stage(ctx=ctx, name=_INGEST, settings=dataset.settings, inputs=[], body=body, label=label)


def _chunks(ctx: Context) -> Stage:
    """The stage that writes the chunks; its summary holds their location."""
    data, found = ctx.config.data, listing(ctx)
    settings = {
        "fingerprint": found.fingerprint,
        "chunk_mb": data.chunk_mb,
        "shuffle_seed": data.shuffle_seed,
        # The default stands for any value where none has an effect.
        "test_fraction": Data().test_fraction if "test" in found.counts else data.test_fraction,
    }
    side = data.thumbnails
    if side is not None:
        settings["thumbnails"] = side

    def body(attempt: Attempt) -> dict[str, Any]:
        location, source = f"{attempt.ref}/{_STORE}", open_source(data.source, data.format)
        if data.image_size is None:  # found before all images are read
            check_one_size(source)
        store = attempt.open(location)
        drop_damaged_manifest(store)
        marked = attempt.store.size(f"{attempt.ref}/{DAMAGED}") is not None
        manifest = write_chunks(data, store, attempt.reporter, attempt.label, source, verify=marked)
        summary = _summary(manifest, location)
        if elsewhere := _same_elsewhere(ctx, manifest, attempt.ref):
            for file in (MANIFEST, *_files(manifest)):  # manifest first: without it, the rest is no data set
                store.delete(file)
            summary = elsewhere.summary
        if side is not None:
            small = find_thumbnails(attempt.open(location), manifest, side)
            summary = summary | _with_thumbnails(small, location, side)
        if sizes := store.sizes():
            attempt.files[f"{_STORE}/"] = File(sha256=manifest.digest, num_bytes=sum(sizes.values()))
        return summary | {"left_out": dict(source.left_out)}

    return Stage(ctx=ctx, name=CHUNKS, settings=settings, inputs=[], body=body, label=_INGEST)


def _datasets(summary: dict[str, Any]) -> list[Artifact]:
    """The `ingest` artifact of a data set, and that of its thumbnails if the summary names them."""
    images = {name: value for name, value in summary.items() if name != _THUMBNAILS}
    found = [_dataset({"digest": summary["digest"]}, images)]
    if thumbnails := summary.get(_THUMBNAILS):
        settings = {"digest": summary["digest"], _THUMBNAILS: thumbnails["side"]}
        found.append(_dataset(settings, thumbnails["summary"]))
    return found


def _dataset(settings: dict[str, Any], summary: dict[str, Any]) -> Artifact:
    key = key_of(_INGEST, settings, [])
    return Artifact(stage=_INGEST, key=key, inputs=(), settings=settings, files={}, summary=summary)


def _place(ctx: Context, dataset: Artifact) -> None:
    """Record the data set's location if it has moved."""
    if not ctx.dry_run and (ctx.workspace.find(dataset.ref) or dataset) != dataset:
        ctx.workspace.store.write(f"{dataset.ref}/{MARKER}", dataset.to_json(), kind="other")


def _same_elsewhere(ctx: Context, manifest: Manifest, ref: str) -> Artifact | None:
    """The same data set, if the workspace already holds its chunks in another artifact than `ref`."""
    found = ctx.workspace.find(_dataset({"digest": manifest.digest}, {}).ref)
    if found is None or owner_of(found) in (None, ref) or not _has_chunks(ctx, found):
        return None
    return found


def _has_chunks(ctx: Context, artifact: Artifact) -> bool:
    """Whether the chunks lie in the workspace and are complete."""
    owner = owner_of(artifact)
    return owner is not None and ctx.workspace.find(owner) is not None


def _files(manifest: Manifest) -> list[str]:
    """All but the manifest."""
    splits = manifest.splits.values()
    return [file for split in splits for file in (split.index.file, *(chunk.file for chunk in split.chunks))]


def _summary(manifest: Manifest, location: str) -> dict[str, Any]:
    return {
        "location": location,
        "digest": manifest.digest,
        "name": manifest.name,
        "classes": list(manifest.classes),
        "train": manifest.splits["train"].count,
        "test": manifest.splits["test"].count,
    }


def _with_thumbnails(manifest: Manifest, location: str, side: int) -> dict[str, Any]:
    """What the summary of a data set says of its thumbnails."""
    return {_THUMBNAILS: {"side": side, "summary": _summary(manifest, f"{location}/{thumbnails_folder(side)}")}}
