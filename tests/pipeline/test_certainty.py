"""How sure the scores of whole runs are: in the summary of the selection, and in the report."""

from __future__ import annotations

from pathlib import Path
from statistics import correlation

import pytest
import torch
from torch import Tensor

from lipt.config import override
from lipt.flow.compare import run_comparison, run_with_baseline
from lipt.runtime import Attempt, Context
from lipt.runtime.dataset import open_dataset, split_positions
from lipt.selection.reliability import spearman_brown
from lipt.stages.initialise import DYNAMICS
from lipt.training.tensor_files import unpack
from tests.tiny import tiny_context

SCORED = {"model": "trajectory", "runs": 1, "epochs": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certainty")


def labels_of(ctx: Context, key: str) -> Tensor:
    """The label of each candidate of the run that made this object."""
    made = ctx.workspace.get(key.rpartition("/")[0])
    own = Context.of(override(ctx.config, {"seed": made.settings["seed"]}))
    dataset = open_dataset(Attempt(ctx=own, ref="test/0", label="test"), ctx.workspace.get(made.inputs[0]))
    return torch.from_numpy(dataset.index("train").label[split_positions(own, dataset)[1]])


def within_classes(halves: list[Tensor], labels_N: Tensor) -> float:
    """The mean over the samples of the rank correlation within their class."""
    total = 0.0
    for label in labels_N.unique():
        ranks = [half[labels_N == label].argsort().argsort().double().tolist() for half in halves]
        total += len(ranks[0]) * correlation(*ranks)
    return total / len(labels_N)


def test_a_comparison_tells_reliability_and_overlap(folder: Path) -> None:
    ctx = tiny_context(
        folder,
        {
            "score": SCORED,
            "select": {"algorithm": "el2n", "fraction": 0.2},
            "train": {"epochs": 1},
            "compare": {"seeds": [0, 1], "variants": ["lipt", "stratified"]},
        },
    )
    document = run_comparison(ctx)
    assert document is not None
    (check,) = document.score_checks  # a random subset has no scores
    assert check.label == "Trajectory, el2n"
    assert check.halved == "epochs"
    expected = []
    for key in sorted(ctx.workspace.store.list("initialise")):
        if key.endswith(DYNAMICS):
            error_NT = unpack(ctx.workspace.store.read(key, kind="other"), origin=key)["error"].double()
            halves = [error_NT[:, start:4:2].mean(1) for start in (0, 1)]
            expected.append(spearman_brown(within_classes(halves, labels_of(ctx, key))))
    assert len(expected) == 2
    assert check.reliability == pytest.approx(sum(expected) / 2, abs=1e-3)
    assert check.shared is not None
    assert check.by_chance == pytest.approx(0.2, abs=0.01)
    assert check.shared > 1.5 * check.by_chance  # hard digits are hard for both seeds


def test_a_single_scorer_is_not_judged(folder: Path) -> None:
    document = run_with_baseline(tiny_context(folder, {"train": {"epochs": 1}}))
    assert document is not None
    assert document.score_checks == []
