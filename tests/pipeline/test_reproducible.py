"""Stages compute reproducibly on a CPU; what is around them is left as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lipt.runtime.attempt import Attempt
from lipt.stages.ingest import ingest
from lipt.stages.initialise import initialise
from tests.tiny import demo_stage, tiny_context


@pytest.mark.parametrize("fails", [False, True])
def test_only_while_a_stage_runs(tmp_path: Path, fails: bool) -> None:
    ctx, seen = tiny_context(tmp_path), []

    def body(_attempt: Attempt) -> dict[str, Any]:
        seen.append(torch.are_deterministic_algorithms_enabled())
        if fails:
            raise ValueError
        return {}

    assert ctx.device.type == "cpu"
    assert not torch.are_deterministic_algorithms_enabled()
    for _ in range(2):
        try:
            demo_stage(ctx.workspace, body).make()
        except ValueError:
            assert fails
    assert seen == ([True] * 2 if fails else [True])
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_interrupted_theta_star_keeps_what_it_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trajectory is a file of the artifact, from which subsets are selected."""
    changes = {"initialise": {"epochs": 3}, "train": {"checkpoint_s": 0}}
    straight, again = (tiny_context(tmp_path / name, changes) for name in ("straight", "interrupted"))
    whole, dataset = initialise(straight, ingest(straight).make()).make(), ingest(again).make()
    save = Attempt.save_checkpoint

    def interrupted(self: Attempt, data: bytes) -> None:
        save(self, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(Attempt, "save_checkpoint", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            initialise(again, dataset).make()
    assert initialise(again, dataset).make() == whole


def test_a_checkpoint_waits_for_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    monkeypatch.setattr(Attempt, "save_checkpoint", lambda _self, data: saved.append(len(data)))
    for seconds in (0, 3600):
        changes = {"initialise": {"epochs": 3}, "train": {"checkpoint_s": seconds}}
        ctx = tiny_context(tmp_path / str(seconds), changes)
        initialise(ctx, ingest(ctx).make()).make()
        assert len(saved) == 2  # after the first two of three epochs, and never again
