"""`train.start: continue`: the main training starts from theta_p, whatever it trains on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lipt.flow.compare import run_with_baseline
from lipt.flow.dag import run
from lipt.flow.outcome import Outcome
from lipt.pods.boxes import dispatch_box, merge_box, pretrain_box, select_box, train_box
from lipt.runtime.artifact import Artifact
from lipt.runtime.context import Context
from lipt.runtime.network import WEIGHTS, new_model
from lipt.training.pruning import prunable
from lipt.training.tensor_files import unpack
from tests.tiny import tiny_context

RANDOM: dict[str, Any] = {"algorithm": "random"}
DRAWN: dict[str, Any] = {"select": RANDOM | {"fraction": 1.0}, "train": {"epochs": 3, "epoch_fraction": 0.1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("start")


def runs(folder: Path, changes: dict[str, Any]) -> tuple[Outcome, Outcome]:
    """The run from random weights, and the one that continues."""
    train = {"epochs": 1} | changes.get("train", {})
    fresh, continued = (
        run(tiny_context(folder, changes | {"train": train | {"start": start}})) for start in ("fresh", "continue")
    )
    return fresh, continued


@pytest.mark.parametrize(
    "changes",
    [{}, {"select": RANDOM}, DRAWN, DRAWN | {"train": DRAWN["train"] | {"draw": "infobatch"}}],
    ids=["selected", "random", "drawn", "infobatch"],
)
def test_the_training_starts_from_theta_p(folder: Path, changes: dict[str, Any]) -> None:
    """Also if nothing is scored. It trains on the same images for as many steps."""
    fresh, continued = runs(folder, changes)
    assert continued.merged is not None
    assert continued.merged.ref in continued.trained.model.inputs
    assert [made.ref for made in continued.scores] == [made.ref for made in fresh.scores]
    assert continued.subset.ref == fresh.subset.ref
    first, later = (outcome.trained.model.summary for outcome in (fresh, continued))
    assert later["losses"][0] < first["losses"][0]
    if changes.get("train", {}).get("draw") != "infobatch":  # which leaves out images by their losses
        assert (later["images"], later["steps"]) == (first["images"], first["steps"])


@pytest.mark.parametrize(
    "changes",
    [{"merge": {"method": "none"}}, {"score": {"model": "trajectory", "runs": 2, "epochs": 2}}],
    ids=["theta_*", "first of the trajectories"],
)
def test_without_a_swarm_it_starts_from_the_first_model(folder: Path, changes: dict[str, Any]) -> None:
    outcome = run(tiny_context(folder, changes | {"select": RANDOM, "train": {"epochs": 1, "start": "continue"}}))
    assert (outcome.merged, outcome.scores) == (None, ())
    assert outcome.trained.model.inputs[-1] == outcome.prepared.initial[0].ref


def zeros(ctx: Context, artifact: Artifact) -> float:
    """Share of zeros among the weights that pruning may set to zero."""
    key = f"{artifact.ref}/{WEIGHTS}"
    model = new_model(ctx, 10, 0, unpack(ctx.workspace.store.read(key, kind="model"), origin=key))
    return float((torch.cat([weight.flatten() for weight in prunable(model).values()]) == 0).float().mean())


def test_the_main_training_is_dense(folder: Path) -> None:
    """The mask of a pruned theta_p is lifted: its zeros are only a start."""
    ctx = tiny_context(
        folder,
        {
            "data": {
                "image_size": 16
            },  # at 8 px the last maps have one pixel, so most of their weights see padding alone
            "pretrain": {"density": [0.5, 0.5]},
            "merge": {"method": "best_single", "fallback": False},
            "train": {"epochs": 2, "start": "continue"},
        },
    )
    outcome = run(ctx)
    assert outcome.merged is not None
    assert zeros(ctx, outcome.merged) == pytest.approx(0.5, abs=0.01)
    assert zeros(ctx, outcome.trained.model) < 0.01


def test_fresh_draws_from_theta_p_are_compared_with_those_from_random_weights(folder: Path) -> None:
    document = run_with_baseline(tiny_context(folder, DRAWN | {"train": DRAWN["train"] | {"start": "continue"}}))
    assert document is not None
    continued, fresh = document.rows
    assert continued.label == "random, continued from theta_p"
    assert fresh.label == "RS2: fresh random draw every epoch, from random weights"
    assert (continued.epoch_fraction, continued.kept_fraction) == (fresh.epoch_fraction, fresh.kept_fraction)
    assert continued.pretrain_cost is not None
    assert continued.pretrain_cost > 1
    assert fresh.pretrain_cost == 0


def test_a_random_subset_beside_a_selected_one_has_the_same_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a run on one machine, and in the boxes of a pipeline, whose GPUs do not work here."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    ctx = tiny_context(folder, {"device": "auto", "train": {"epochs": 2, "start": "continue"}})
    document = run_with_baseline(ctx)
    assert document is not None
    address = dispatch_box(ctx.config, engine="argo", image="lipt:1", gpus=2)
    assert len(list(folder.glob("running/*"))) == 1  # for `lipt gc`
    assert pretrain_box(address) == (3, 3)
    merged = merge_box(address)
    assert merged is not None
    boxed = train_box(address, merged.ref, select_box(address, merged.ref).ref).document
    assert not list(folder.glob("running/*"))
    told = "this pod has asked for 2 GPUs, but torch sees none"
    assert capsys.readouterr().err.count(told) == 4  # all boxes but `pretrain`, which only waits
    for found in (document, boxed):
        selected, random = found.rows
        assert selected.label == "LiPT, ccs, continued from theta_p"
        assert random.label == "Class-balanced random, continued"
        assert random.pretrain_cost == pytest.approx(selected.pretrain_cost)
    assert [row.accuracy for row in boxed.rows] == [row.accuracy for row in document.rows]
