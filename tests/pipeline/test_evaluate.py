"""The evaluation on the test split."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lipt.runtime.attempt import Attempt
from lipt.runtime.dataset import open_dataset
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
