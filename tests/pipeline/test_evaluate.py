"""The evaluation on the test split."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lipt.flow.compare import run_with_baseline
from lipt.runtime.attempt import Attempt
from lipt.runtime.dataset import open_dataset
from lipt.stages import evaluate as stage
from lipt.stages.evaluate import evaluate
from lipt.stages.ingest import ingest
from lipt.stages.initialise import initialise
from tests.tiny import tiny_context


def test_rows_of_the_confusion_matrix_are_true_classes(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path)
    dataset = ingest(ctx).make()
    found = evaluate(ctx, dataset, initialise(ctx, dataset).make()).make().summary
    labels = open_dataset(Attempt(ctx=ctx, ref="test/0", label="test"), dataset).index("test").label
    confusion, counts = np.array(found["confusion"]), np.bincount(labels, minlength=10)
    assert confusion.sum(1).tolist() == counts.tolist()
    assert confusion.sum(0).tolist() != counts.tolist()  # after one epoch some classes are predicted too often
    assert found["accuracy"] == np.trace(confusion) / len(labels)
    assert found["images_per_class"] == counts.tolist()
    assert found["hits_per_class"] == np.diagonal(confusion).tolist()


def test_many_classes_take_no_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of ImageNet-21k would have 477 million entries. The report needs images and hits of each class."""
    monkeypatch.setattr(stage, "MAX_CONFUSION_CLASSES", 9)
    ctx = tiny_context(tmp_path)
    document = run_with_baseline(ctx)
    assert document is not None
    assert document.classes is not None
    stored = [json.loads(path.read_text())["summary"] for path in tmp_path.glob("evaluate/*/artifact.json")]
    assert len(stored) == 2
    assert not any("confusion" in each for each in stored)
    shown = [
        [round(each * count) for each, count in zip(of_row, document.classes.images, strict=True)]
        for of_row in document.classes.accuracy.values()
    ]
    assert sorted(shown) == sorted(each["hits_per_class"] for each in stored)
