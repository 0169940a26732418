"""Networks beside the default one run end to end, also on large images."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import nn

from lipt.flow.outcome import Outcome
from tests.pipeline.test_switches import run_tiny
from tests.tiny import tiny_context


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ImageFolder of JPEGs of different sizes: 3 classes, 40 training and 10 test images each."""
    root = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    for split, count in (("train", 40), ("test", 10)):
        for label in range(3):
            folder = root / split / f"class-{label}"
            folder.mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 120, (*rng.integers(66, 90, 2), 3), dtype=np.uint8)
                pixels[..., label] += 130
                Image.fromarray(pixels).save(folder / f"{index}.jpg")
    return root


def test_large_images_with_a_torchvision_model(folder: Path, photographs: Path) -> None:
    """Sizes differ, RandomResizedCrop, torchvision's ResNet: the same whether files stay in memory or are streamed."""
    outcomes = [
        run_tiny(
            folder,
            {
                "data": {
                    "source": str(photographs),
                    "image_size": 32,
                    "crop": "resized",
                    "flip": True,
                    "resident_mb": resident_mb,
                },
                "model": {"name": "torchvision.resnet18", "width": None},
                "dispatch": {"jigsaws": 2, "batch_size": 16},
                "pretrain": {"prune": "snip"},
                "select": {"fraction": 0.5},
                "train": {"epochs": 5, "batch_size": 16, "lr": 0.02, "random_baseline": False},
            },
        )
        for resident_mb in (100, 0)
    ]
    held, streamed = (outcome.trained for outcome in outcomes)
    assert held.evaluation.summary == streamed.evaluation.summary
    assert held.model.summary == streamed.model.summary
    assert held.model.files == streamed.model.files
    _learned(outcomes[0])
    assert held.evaluation.summary["images"] == 30
    read = [tiny_context(folder).workspace.cost(trained.model).read["data"] for trained in (held, streamed)]
    assert read[1] > 3 * read[0]


def own_network(num_classes: int) -> nn.Module:
    """A user's model, named `tests.pipeline.test_networks:own_network`."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, num_classes),
    )


def test_a_model_of_the_users_own(folder: Path) -> None:
    own = {"name": f"{__name__}:own_network", "width": None, "classifier": "5"}
    outcome = run_tiny(folder, {"model": own, "train": {"epochs": 12, "batch_size": 16}})
    assert outcome.merged is not None
    assert outcome.subset.summary["count"] == pytest.approx(0.1 * 1294, abs=6)
    _learned(outcome)


def test_wide_resnet(folder: Path) -> None:
    changes = {"model": {"name": "wrn28_10", "width": 4}, "merge": {"search_images": 32}, "train": {"epochs": 4}}
    outcome = run_tiny(folder, changes)
    assert outcome.merged is not None
    assert {step["index"] for step in outcome.merged.summary["steps"]} == {0, 1, 2}
    _learned(outcome)


def _learned(outcome: Outcome) -> None:
    """By how much it is better than chance depends on the type of processor; the loss falls on each."""
    losses = outcome.trained.model.summary["losses"]
    assert losses[-1] < losses[0]
    assert all(map(math.isfinite, losses))
