"""The smallest complete run: real digits, a ResNet-18 of width 4, three jigsaws, a few seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lipt.config import override, parse_config
from lipt.run.context import Context
from lipt.run.workspace import Artifact, Workspace

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


def digests(workspace: Workspace) -> dict[str, bytes]:
    """The commit record of every artifact: files with sha256, inputs, settings, summary; everything but times."""
    return {
        key: workspace.store.read(key, kind="other") for key in workspace.store.list() if key.endswith("artifact.json")
    }


def file_digest(artifact: Artifact, name: str) -> str:
    return artifact.files[name].sha256
