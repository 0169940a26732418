"""How many images the stage `merge` looks at, by its FLOPs."""

from __future__ import annotations

from pathlib import Path

from lipt.flow.dag import merge_jigsaws, prepare, train_jigsaws
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
