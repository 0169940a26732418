"""Scorers that share the candidates among them (`score.disjoint`): what each trains on, records, and costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lipt.flow.compare import run_with_baseline
from lipt.flow.dag import prepare
from lipt.flow.dag import run as run_all
from lipt.flow.outcome import Outcome
from lipt.runtime.artifact import Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import open_dataset, split_positions
from lipt.runtime.network import WEIGHTS
from lipt.stages.initialise import DYNAMICS
from lipt.stages.select import read_subset
from lipt.training.tensor_files import State, unpack
from tests.tiny import tiny_context

SCORE = {"model": "trajectory", "runs": 3, "epochs": 2, "disjoint": True}
CHANGES = {
    "score": SCORE | {"block_images": 500},  # a part ends within a block
    "select": {"algorithm": "el2n", "fraction": 0.1, "balanced": False},
    "train": {"epochs": 1},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return tiny_context(tmp_path_factory.mktemp("disjoint"), CHANGES)


@pytest.fixture(scope="module")
def outcome(ran: Context) -> Outcome:
    return run_all(ran)


def attempt_of(ctx: Context) -> Attempt:
    return Attempt(ctx=ctx, ref="test/0", label="test")


def recorded(ctx: Context, model: Artifact) -> State:
    return unpack(ctx.workspace.store.read(f"{model.ref}/{DYNAMICS}", kind="other"), origin=model.ref)


def test_each_model_trains_on_its_own_part(ran: Context, outcome: Outcome) -> None:
    models = outcome.prepared.initial
    sizes = [len(recorded(ran, model)["error"]) for model in models]
    assert sizes == [432, 431, 431]  # of 1,294 candidates
    assert [model.summary["images"] for model in models] == [2 * size for size in sizes]
    assert len({model.files[WEIGHTS].sha256 for model in models}) == 3
    for model in models:
        assert not recorded(ran, model)["error"].isnan().any()


def test_the_parts_are_stratified(ran: Context, outcome: Outcome) -> None:
    data = open_dataset(attempt_of(ran), outcome.prepared.dataset)
    labels_N = data.index("train").label[split_positions(ran, data)[1]]
    parts = [np.bincount(part, minlength=10) for part in np.array_split(labels_N, 3)]
    assert np.ptp(parts, axis=0).max() <= 2


def test_a_sample_is_scored_by_the_model_that_trained_on_it(ran: Context, outcome: Outcome) -> None:
    """Its EL2N is the mean error over the epochs of that model, whatever block and model it fell into."""
    stored = read_subset(attempt_of(ran), outcome.subset)
    error_N = torch.cat([recorded(ran, model)["error"].mean(1) for model in outcome.prepared.initial])
    hardest = error_N.argsort(descending=True)[:129].sort().values
    data = open_dataset(attempt_of(ran), outcome.prepared.dataset)
    candidates = split_positions(ran, data)[1]
    assert sorted(stored.positions_K) == sorted(candidates[hardest.numpy()])


def test_all_models_together_cost_as_much_as_one(ran: Context, outcome: Outcome, tmp_path: Path) -> None:
    one = tiny_context(tmp_path, CHANGES | {"score": {"model": "trajectory", "runs": 1, "epochs": 2}})
    (alone,) = prepare(one).initial
    apart = [ran.workspace.cost(model) for model in outcome.prepared.initial]
    whole = one.workspace.cost(alone)
    assert sum(cost.flops for cost in apart) == pytest.approx(whole.flops)
    assert sum(cost.read["data"] for cost in apart) == pytest.approx(whole.read["data"], rel=0.01)


def test_their_losses_come_first(tmp_path: Path) -> None:
    """`train.first_losses` reads one loss for every candidate."""
    ctx = tiny_context(
        tmp_path,
        {
            "score": SCORE,
            "select": {"algorithm": "random", "fraction": 0.5},
            "train": {"epochs": 2, "epoch_fraction": 0.1, "draw": "ordered", "first_losses": "trajectory"},
        },
    )
    document = run_with_baseline(ctx)
    assert document is not None
    assert "3 trainings of 2 epochs, each on its own part" not in str(document)  # the selection is random
