"""The section "What was done" says what the run did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lipt.flow.compare import run_with_baseline
from lipt.flow.reporting.done import _machines, _rule
from tests.tiny import tiny_context


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One workspace for all: the data set is ingested once."""
    return tmp_path_factory.mktemp("done")


def done(folder: Path, changes: dict[str, Any]) -> dict[str, str]:
    document = run_with_baseline(tiny_context(folder, changes))
    assert document is not None
    return document.done


def test_fresh_draws_from_a_random_subset_are_told_and_no_choice_is_asked_about(folder: Path) -> None:
    told = done(folder, {"select": {"algorithm": "stratified"}, "train": {"epochs": 2, "epoch_fraction": 0.02}})
    assert told["Question"] == (
        "If only 10 % of the training images are kept, drawn at random, and each epoch trains on a fresh 2 % of all "
        "images: how good does the network get?"
    )
    assert told["Training"].endswith("in 2 epochs. Each epoch draws 26 of the 129 kept images afresh.")


def test_a_run_with_raptr_says_which_share_of_the_blocks_ran_and_what_that_saved(folder: Path) -> None:
    raptr = {"keep": [0.5, 1.0], "fixed_first": 0, "fixed_last": 0}
    told = done(folder, {"select": {"algorithm": "random"}, "train": {"epochs": 4, "raptr": raptr}})
    assert (
        "ran a random part of the blocks that may be skipped: 50 %, 100 %, in stages of equal length."
        in told["Training"]
    )
    assert "of the FLOPs of the training. All methods of this run trained like this." in told["Training"]
    saved = float(told["Training"].split("That saved ")[1].split(" %")[0])
    assert 5 < saved < 25  # a half of the blocks in a half of the steps, less the new statistics of BatchNorm
    assert "does the choice matter" not in told["Question"]


def test_a_proxy_is_told_apart_from_the_network(folder: Path) -> None:
    score = {"model": "trajectory", "runs": 1, "epochs": 2, "proxy": {"width": 2}}
    told = done(folder, {"select": {"algorithm": "dual"}, "score": score, "train": {"epochs": 1}})
    assert told["Choice"].endswith("Another network (a proxy) stood in for the trained one: width 2.")
    assert told["Question"].endswith("how good does the network get, and does the choice matter?")


def test_a_proxy_of_another_kind_is_named(folder: Path) -> None:
    proxy = {"name": "vit_small", "width": 16, "image_size": 12}
    score = {"model": "trajectory", "runs": 1, "epochs": 2, "proxy": proxy}
    told = done(folder, {"select": {"algorithm": "dual"}, "score": score, "train": {"epochs": 1}})
    assert told["Choice"].endswith("the trained one: vit_small of width 16 and images of 12 pixels.")


def test_dual_is_said_to_prefer_easier_images_where_less_is_kept() -> None:
    assert _rule("dual", {"sampling": "beta"}, 0.1).endswith(
        "The smaller the share that is kept, the easier the images."
    )
    assert "at random" not in _rule("dual", {"sampling": "top"}, 0.1)


def test_how_many_hard_images_ccs_leaves_out_is_said() -> None:
    said = "It leaves out the hardest {}, then picks evenly from easy to hard images."
    assert _rule("ccs", {"beta": 0.2097}, 0.1) == said.format("21 %")
    assert _rule("ccs", {"beta": 0.5}, 0.9) == said.format("10 %")  # the others are needed to fill the budget
    assert _rule("ccs", {"beta": 1e-7}, 0.49) == "It picks evenly from easy to hard images."


def test_pre_training_in_epochs_does_not_depend_on_raptr_in_the_main_training(folder: Path) -> None:
    """The unit is an epoch of the whole network."""
    costs = []
    for raptr in (None, {"keep": [0.5, 1.0], "fixed_first": 0, "fixed_last": 0}):
        document = run_with_baseline(tiny_context(folder, {"train": {"epochs": 4, "raptr": raptr}}))
        assert document is not None
        costs.append(document.rows[0].pretrain_cost)
    assert costs[0] == pytest.approx(costs[1], rel=0.05)  # RaPTr also forwards images to recalibrate BatchNorm


def test_the_machine_of_each_training_is_named_where_they_differ() -> None:
    assert _machines({"LiPT": "2 CPU threads", "Random": "1 CPU thread", "RS2": "2 CPU threads", "old": ""}) == (
        "The main trainings ran on: 2 CPU threads (LiPT; RS2); 1 CPU thread (Random)."
    )
    assert _machines({"LiPT": "1 CPU thread", "Random": "1 CPU thread"}) == "The main training ran on: 1 CPU thread."
    assert _machines({"LiPT": ""}) == ""
