"""The settings that a stage's address contains: those that can change its result, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lipt.runtime.artifact import Artifact
from lipt.runtime.stage import Stage
from lipt.stages.dispatch import dispatch
from lipt.stages.evaluate import evaluate
from lipt.stages.initialise import initialise
from lipt.stages.merge import merge
from tests.tiny import tiny_context

DATASET = Artifact(stage="ingest", key="0", inputs=(), settings={"digest": "0"}, files={}, summary={"train": 100})
JIGSAW = Artifact(stage="pretrain", key="0", inputs=(), settings={"index": 0}, files={}, summary={"density": 1.0})


def test_an_edited_network_is_another_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a run after the edit would report the results of the network before it."""
    keys = []
    for folder, channels in (("before", 8), ("after", 16), ("elsewhere", 16)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "edited_network.py").write_text(f"CHANNELS = {channels}\n")
        monkeypatch.chdir(tmp_path / folder)
        ctx = tiny_context(tmp_path, {"model": {"name": "edited_network:net", "width": None}})
        keys.append((initialise(ctx, DATASET).key, evaluate(ctx, DATASET, DATASET).key))
    before, after, elsewhere = keys
    assert not set(before) & set(after)
    assert elsewhere == after


def test_a_network_that_is_not_here_has_an_address(tmp_path: Path) -> None:
    """On the machine of a user who submits a run, it may only be in the image."""
    for name in ("no_such_module:net", "no.such.package:net", "sys:net", "__main__:net"):
        ctx = tiny_context(tmp_path, {"model": {"name": name, "width": None}})
        assert initialise(ctx, DATASET).settings["model"]["code"] is None, name


def dispatched(folder: Path, changes: dict[str, Any]) -> Stage:
    return dispatch(tiny_context(folder, changes), DATASET)


def test_shards_do_not_depend_on_how_images_are_shown(tmp_path: Path) -> None:
    """So that a swarm of a proxy stays, whatever images the network itself sees."""
    usual = dispatched(tmp_path, {}).key
    for data in ({"image_size": 16}, {"flip": True}, {"crop_padding": 2}, {"resident_mb": 0.0}):
        assert dispatched(tmp_path, {"data": data}).key == usual, data
    for changes in ({"data": {"validation_fraction": 0.2}}, {"seed": 1}, {"dispatch": {"batch_size": 16}}):
        assert dispatched(tmp_path, changes).key != usual, changes


def test_another_quorum_does_not_merge_again(tmp_path: Path) -> None:
    """It decides whether to merge. The jigsaws that arrived are inputs."""

    def merged(settings: dict[str, Any]) -> str:
        return merge(tiny_context(tmp_path, {"merge": settings}), DATASET, DATASET, DATASET, [JIGSAW]).key

    assert merged({"quorum": 1.0}) == merged({"quorum": 0.5})
    assert merged({"batchnorm": "averaged"}) != merged({"batchnorm": "best"})
