"""Batches that a training could not take are found before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lipt.errors import UsageError
from lipt.flow.validation import check_run
from tests.tiny import tiny_context


def test_a_network_of_torchvision_cannot_train_on_batches_of_one(tmp_path: Path) -> None:
    model = {"name": "torchvision.resnet18", "width": None}
    ctx = tiny_context(tmp_path, {"model": model, "train": {"batch_size": 1}})
    with pytest.raises(UsageError, match=r"^train.batch_size is 1: torchvision.resnet18 cannot train on a single"):
        check_run(ctx)
