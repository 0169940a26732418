"""What the stage `merge` looks at and reads: images, by its FLOPs, and jigsaws."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lipt.flow.dag import merge_jigsaws, prepare, train_jigsaws
from lipt.runtime.attempt import Attempt
from lipt.runtime.network import WEIGHTS
from lipt.stages.pretrain import DELTA
from lipt.training.flops import flops_per_image
from lipt.training.networks import build_model
from tests.tiny import tiny_context


def test_it_recalibrates_on_as_many_images_as_configured(tmp_path: Path) -> None:
    """Each time it recalibrates; how often does not depend on the number of images."""
    ctx = tiny_context(tmp_path, {"pretrain": {"passes": 1}})
    prepared = prepare(ctx)
    jigsaws = list(train_jigsaws(ctx, prepared, range(3))[0].values())
    forward, _ = flops_per_image(build_model("resnet18", num_classes=10, seed=0, width=4), (3, 8, 8))
    images = []
    for count in (8, 24, 1000):
        merge = {"method": "uniform", "batchnorm": "recalibrated", "recalibration_images": count}
        own = tiny_context(tmp_path, {"pretrain": {"passes": 1}, "merge": merge})
        images.append(own.workspace.cost(merge_jigsaws(own, prepared, jigsaws)).flops / forward)
    calls = (images[1] - images[0]) / 16
    assert calls >= 1
    assert calls == round(calls)
    assert images[2] - images[1] == 8 * calls  # a shard has 32


@pytest.mark.parametrize(("room", "reads"), [(3, [1, 1, 1]), (1.5, [1, 3, 3]), (0, [3, 3, 3])])
def test_jigsaws_that_do_not_fit_into_memory_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: float, reads: list[int]
) -> None:
    """For the evaluation of each, for the average of all, and for the soup, which the first one starts."""
    ctx = tiny_context(tmp_path, {"pretrain": {"passes": 1}, "merge": {"fallback": False}})
    prepared = prepare(ctx)
    jigsaws = list(train_jigsaws(ctx, prepared, range(3))[0].values())
    whole = merge_jigsaws(ctx, prepared, jigsaws)
    read = Counter[str]()
    original = Attempt.read

    def counted(attempt: Attempt, artifact: Any, name: str, **how: Any) -> bytes:
        if name == DELTA:
            read[artifact.ref] += 1
        return original(attempt, artifact, name, **how)

    monkeypatch.setattr(Attempt, "read", counted)
    size = max(found.files[DELTA].num_bytes for found in jigsaws)
    monkeypatch.setattr("lipt.stages.merge.held_bytes", lambda _config: room * size)
    ctx.workspace.store.delete(f"{whole.ref}/artifact.json")
    again = merge_jigsaws(ctx, prepared, jigsaws)
    assert again.files[WEIGHTS] == whole.files[WEIGHTS]
    assert sorted(read.values()) == reads
