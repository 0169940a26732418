"""The settings that a stage's address contains: those that can change its result, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lipt.runtime.artifact import Artifact
from lipt.runtime.stage import Stage
from lipt.stages.dispatch import dispatch
from lipt.stages.merge import merge
from tests.tiny import tiny_context

DATASET = Artifact(stage="ingest", key="0", inputs=(), settings={"digest": "0"}, files={}, summary={"train": 100})
JIGSAW = Artifact(stage="pretrain", key="0", inputs=(), settings={"index": 0}, files={}, summary={"density": 1.0})


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
