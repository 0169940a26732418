"""Batches and numbers of steps that a training could not take are found before anything runs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lipt.errors import UsageError
from lipt.flow.checks.validation import check_from_afar, check_run
from tests.tiny import tiny_context


def test_a_network_of_torchvision_cannot_train_on_batches_of_one(tmp_path: Path) -> None:
    model = {"name": "torchvision.resnet18", "width": None}
    ctx = tiny_context(tmp_path, {"model": model, "train": {"batch_size": 1}})
    with pytest.raises(UsageError, match=r"^train.batch_size is 1: torchvision.resnet18 cannot train on a single"):
        check_run(ctx)


def test_the_trainings_of_a_race_have_a_step_for_each_stage_of_raptr(tmp_path: Path) -> None:
    for rounds, first in (([0.1, 0.5], 3), ([0.15, 0.5], None)):
        ctx = tiny_context(tmp_path, {"select": {"race": {"rounds": rounds}}, "train": {"steps": 30, "raptr": {}}})
        with pytest.raises(UsageError) if first else nullcontext() as caught:
            check_run(ctx)
        if caught:
            assert f"or more; a training in the first round of the race has {first}" in caught.value.message


@pytest.mark.parametrize(
    ("rounds", "train", "message", "remedy"),
    [
        (
            [0.1, 0.11, 0.5],
            {"steps": 30},
            "0.1 and 0.11 of 30 steps are both 3 steps: a round would be repeated",
            "list only one of them, or raise train.steps",
        ),
        (
            [0.1, 0.99],
            {"steps": 30},
            "0.99 of 30 steps is 30 steps: the main training would repeat the last round",
            "raise train.steps, or lower the last round",
        ),
        (
            [0.1],
            {"epochs": 1, "batch_size": 1000},
            "0.1 of 1 step is 1 step: the main training would repeat the last round",
            "raise train.epochs, or lower the last round",
        ),
        ([0.1, 0.15, 0.98], {"steps": 30}, None, None),
    ],
)
def test_neither_a_round_of_a_race_nor_the_main_training_repeats_a_round(
    tmp_path: Path, rounds: list[float], train: dict[str, Any], message: str | None, remedy: str | None
) -> None:
    ctx = tiny_context(tmp_path, {"select": {"race": {"rounds": rounds}}, "train": train})
    with pytest.raises(UsageError) if message else nullcontext() as caught:
        check_run(ctx)
    if caught:
        assert (caught.value.message, caught.value.remedy) == (f"select.race.rounds: {message}", remedy)


def test_a_model_of_a_part_of_the_candidates_has_a_step_for_each_stage_of_raptr(tmp_path: Path) -> None:
    for batch_size, enough in ((128, False), (64, True)):  # of 258 of the 1,294 candidates
        score = {"model": "trajectory", "runs": 5, "disjoint": True, "epochs": 1}
        ctx = tiny_context(tmp_path, {"score": score, "initialise": {"batch_size": batch_size, "raptr": {}}})
        wrong = pytest.raises(UsageError, match=r"4 stages need as many steps or more; the training has 3")
        with nullcontext() if enough else wrong:
            check_run(ctx)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"batch_size": 2}}, r"processes: 3 cannot share a batch of 1 image \(train.batch_size is 2\)"),
        ({"initialise": {"batch_size": 2}}, r"processes: 3 .* of 2 images \(initialise.batch_size is 2\)"),
        ({"train": {"batch_size": 3}}, None),
        ({"initialise": {"batch_size": 2}, "score": {"model": "classic", "runs": 3}}, None),
        (
            {"train": {"batch_size": 4, "draw": "infobatch"}},
            r"processes: 3 cannot share a batch of 2 images \(train.batch_size is 4\)",
        ),
    ],
)
def test_each_process_has_an_image_of_each_batch(changes: dict[str, Any], message: str | None, tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, changes | {"processes": 3, "device": "cpu"})
    with pytest.raises(UsageError, match=message) if message else nullcontext():
        check_run(ctx)


def test_larger_batches_are_no_remedy_if_the_subset_is_smaller(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, {"processes": 200, "device": "cpu"})
    with pytest.raises(UsageError) as caught:
        check_run(ctx)
    assert "processes: 200 cannot share a batch of" in caught.value.message
    assert caught.value.remedy.split("; ")[0] == "lower processes"  # the second is of theta_*


@pytest.mark.parametrize("section", ["train", "initialise"])
def test_each_pod_of_a_training_has_an_image_of_each_batch(section: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"train": {"nodes": 5}, "select": {"algorithm": "el2n"}}
    changes[section] = changes.get(section, {}) | {"batch_size": 4}
    message = rf"train.nodes: 5 cannot share a batch of 3 images \({section}.batch_size is 4\)"
    here = tiny_context(tmp_path, changes)
    check_run(here)  # `lipt run` ignores it
    with pytest.raises(UsageError, match=message):
        check_run(replace(here, pods=lambda *_request: None))
    with pytest.raises(UsageError, match=message):
        check_from_afar(here.config)
