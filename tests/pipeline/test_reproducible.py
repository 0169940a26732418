"""Stages compute reproducibly on a CPU; what is around them is left as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lipt.runtime.attempt import Attempt
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
