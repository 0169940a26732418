"""Why a worker is lost is told whatever the store does."""

from __future__ import annotations

from pathlib import Path

import pytest

from lipt.errors import RunError
from lipt.pods.boxes import dispatch_box
from lipt.pods.workers import open_run, worker
from lipt.stages.pretrain import pretrain
from tests.tiny import tiny_context


def test_the_reason_is_this_pods_last_message_where_it_cannot_be_noted(tmp_path: Path) -> None:
    """A folder is where the note would be written: the store refuses it."""
    quick = {"initialise": {"epochs": 1}, "pretrain": {"lr": 1000, "passes": 20}, "dispatch": {"jigsaws": 2}}
    address = dispatch_box(tiny_context(tmp_path, quick).config, engine="argo", image="lipt:1")
    _, ctx, prepared = open_run(address)
    note = tmp_path / pretrain(ctx, *prepared.swarm, index=0).ref / "lost.json"
    (note / "full").mkdir(parents=True)
    with pytest.raises(RunError, match=r"pretrain\[0\]: the training loss is nan"):
        worker(address, "pretrain", [0])
    assert note.is_dir()
