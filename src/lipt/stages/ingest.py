"""Ingest: write the images of a source into a chunk store, once.

    chunks/KEY    KEY depends on the source's fingerprint: a changed file makes a new artifact
    ingest/KEY    KEY depends on the digest of the chunks' contents: all other stages start from it

With `data.thumbnails` there is a second `ingest/KEY`, of the thumbnails. They lie in a folder beside their chunks.

If images were only copied or touched, they are read again, but the digest stays the same. No later stage is repeated.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lipt.adapters.store import DatasetFiles, Store, open_store
from lipt.config import Data
from lipt.data.chunks import MANIFEST, ChunkInfo, Dataset, Manifest, thumbnails_are_of, thumbnails_folder, write_dataset
from lipt.data.sources import Source, check_one_size, open_source
from lipt.data.sources.base import describe_left_out
from lipt.errors import DamagedDataError, RunError, UsageError
from lipt.progress import Reporter
from lipt.runtime import Attempt, Context, Stage
from lipt.runtime.artifact import CHUNKS, COST, DAMAGED, MARKER, Artifact, File, key_of, owner_of
from lipt.runtime.dataset import check_complete, listing
from lipt.runtime.lease import leased

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
        _drop_damaged_manifest(store)
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


def write_apart(data: Data, store: Store, reporter: Reporter, source: Source) -> Manifest:
    """Write the chunks into a store that is no artifact of a workspace.

    Of two processes that do so, one waits. Otherwise the second would take what the first has just written for the
    remains of an interrupted call, and delete it.

    Args:
        source: the opened source that `data` names.
    """
    claim = leased(store.metered(), "lease", lambda text: reporter.note(_INGEST, text))
    with ExitStack() as stack:
        with suppress(RunError, UsageError):  # who may not write reads a finished store, or fails below
            stack.enter_context(claim)
        return write_chunks(data, store, reporter, _INGEST, source)


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
        reporter.note(label, f"left out: {describe_left_out(source.left_out)}")
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


def _drop_damaged_manifest(store: Store) -> None:
    """Delete the manifest if it is damaged, so that the chunks are written again."""
    data = DatasetFiles(store).get(MANIFEST)
    if data is not None:
        try:
            Manifest.from_json(data)
        except DamagedDataError:
            store.delete(MANIFEST)


def is_chunk_store(data: Data) -> bool:
    """Whether `data.source` names a data set that is already ingested."""
    if data.format != "auto":
        return data.format == "store"
    return "://" in data.source or (Path(data.source) / MANIFEST).is_file()


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
