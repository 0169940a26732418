"""The smallest complete run: real digits, a ResNet-18 of width 4, three jigsaws, a few seconds."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lipt.adapters.store import Store
from lipt.config import Data, override, parse_config
from lipt.data.chunks import Manifest
from lipt.progress import Reporter
from lipt.runtime.artifact import Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.chunk_store import write_chunks
from lipt.runtime.context import Context
from lipt.runtime.dataset import open_apart
from lipt.runtime.stage import Stage
from lipt.runtime.workspace import Workspace

TINY: dict[str, Any] = {
    "name": "tiny",
    "device": "cpu",
    "data": {"source": "digits", "flip": False, "crop_padding": 1, "chunk_mb": 0.5},
    "model": {"name": "resnet18", "width": 4},
    "initialise": {"batch_size": 32},
    "dispatch": {"jigsaws": 3, "batch_size": 32},
    "pretrain": {"passes": 2},
    "merge": {"search_images": 64, "recalibration_images": 32},
    "select": {"algorithm": "ccs", "fraction": 0.1},
    "train": {"epochs": 4, "batch_size": 32},
}


def tiny_context(workspace: Path | str, changes: dict[str, Any] | None = None) -> Context:
    config = override(parse_config(TINY | {"workspace": str(workspace)}), changes or {})
    return Context.of(config)


def bare_context(workspace: Workspace, reporter: Reporter | None = None) -> Context:
    """For stages that look at no configuration."""
    return Context(config=parse_config(TINY), workspace=workspace, reporter=reporter or Reporter(io.StringIO()))


def write_store(data: Data, store: Store, reporter: Reporter | None = None) -> Manifest:
    """A chunk store of these data."""
    return write_chunks(data, store, reporter or Reporter(), "ingest", open_apart(data, store))


def demo_stage(
    workspace: Workspace,
    body: Callable[[Attempt], dict[str, Any]],
    *,
    name: str = "demo",
    settings: dict[str, Any] | None = None,
    inputs: Sequence[Artifact] = (),
) -> Stage:
    """A stage that does what `body` does."""
    context = bare_context(workspace)
    return Stage(ctx=context, name=name, settings=settings or {}, inputs=inputs, body=body, label=name)


def digests(workspace: Workspace) -> dict[str, bytes]:
    """The commit record of every artifact: files with sha256, inputs, settings, summary; everything but times."""
    return {
        key: workspace.store.read(key, kind="other") for key in workspace.store.list() if key.endswith("artifact.json")
    }


def file_digest(artifact: Artifact, name: str) -> str:
    return artifact.files[name].sha256
