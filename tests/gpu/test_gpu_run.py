"""Whole runs on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lipt.flow.compare import run_with_baseline
from tests.tiny import tiny_context


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": "fp32"},
        {"data": {"resident_mb": 0}},
        {"score": {"model": "trajectory", "runs": 1, "epochs": 4}, "select": {"algorithm": "dual"}},
        {"select": {"algorithm": "gradmatch"}},
        {"select": {"algorithm": "glister"}},
        {"train": {"draw": "infobatch"}},
        {"train": {"raptr": {"keep": [0.5, 1.0]}}},
        {"initialise": {"raptr": {"keep": [0.5, 1.0]}}},
        {"merge": {"method": "uniform"}},
        {"model": {"name": "torchvision.resnet18", "width": None}, "data": {"image_size": 32}},
    ],
    ids=str,
)
def test_a_run_ends_with_a_report(tmp_path: Path, changes: dict[str, Any]) -> None:
    document = run_with_baseline(tiny_context(tmp_path / "workspace", {"device": "cuda"} | changes))
    assert document is not None
    assert [row.role for row in document.rows] == ["selected", "random"]
    assert all(0 <= row.accuracy[0] <= 1 for row in document.rows)
    assert torch.cuda.get_device_name() in str(document)


def test_the_digits_are_learnt(tmp_path: Path) -> None:
    changes = {"device": "cuda", "select": {"algorithm": "stratified", "fraction": 0.5}, "train": {"epochs": 20}}
    document = run_with_baseline(tiny_context(tmp_path / "workspace", changes))
    assert document is not None
    assert document.rows[0].accuracy[0] > 0.8
