"""Draws that are led by losses, in whole runs: what they train on, where the first losses come from, resumption."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lipt.flow.compare import run_with_baseline
from lipt.flow.dag import run
from lipt.flow.outcome import Outcome
from lipt.progress import Reporter
from lipt.runtime import checkpoint
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import open_dataset, split_positions
from lipt.stages.initialise import DYNAMICS
from lipt.stages.select import read_subset
from lipt.stages.train import rows_of, train
from lipt.training import loop
from lipt.training.draws import LossDraws
from lipt.training.tensor_files import unpack
from tests.tiny import digests, tiny_context

INFOBATCH: dict[str, Any] = {"select": {"fraction": 0.3}, "train": {"draw": "infobatch", "epochs": 8}}
ORDERED: dict[str, Any] = {
    "select": {"algorithm": "random", "fraction": 0.4},
    "train": {"draw": "ordered", "epoch_fraction": 0.2, "epochs": 4},
}
CONTINUED: dict[str, Any] = {"train": {"epoch_fraction": 0.2, "start": "continue"}}
FROM_SCORES: dict[str, Any] = {
    "score": {"model": "trajectory", "runs": 2, "epochs": 2},
    "train": ORDERED["train"] | {"first_losses": "trajectory"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("draws")


def flops(ctx: Context, outcome: Outcome) -> float:
    return ctx.workspace.cost(outcome.trained.model).flops / outcome.trained.model.summary["images"]


def test_an_ordered_epoch_has_the_size_of_a_uniform_one_and_other_images(folder: Path) -> None:
    ctx = tiny_context(folder, ORDERED)
    ordered, uniform = run(ctx), run(tiny_context(folder, ORDERED | {"train": ORDERED["train"] | {"draw": "uniform"}}))
    summary, other = ordered.trained.model.summary, uniform.trained.model.summary
    assert summary["images"] == other["images"] == 4 * round(0.2 * 1294)
    assert summary["losses"] != other["losses"]
    assert flops(ctx, ordered) == pytest.approx(flops(ctx, uniform))


def test_infobatch_is_charged_for_what_it_trains_on(folder: Path) -> None:
    ctx = tiny_context(folder, INFOBATCH)
    pruned, whole = run(ctx), run(tiny_context(folder, INFOBATCH | {"train": {"epochs": 8}}))
    images, all_images = (outcome.trained.model.summary["images"] for outcome in (pruned, whole))
    assert 0.55 * all_images < images < 0.95 * all_images
    assert pruned.trained.model.summary["steps"] < whole.trained.model.summary["steps"]
    assert flops(ctx, pruned) == pytest.approx(flops(ctx, whole))


def test_the_table_starts_from_the_last_epoch_of_the_scorers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A random pool needs no scores; the scorers are trained for the draws alone, and the pool gets its own rows."""
    seen = []
    init = LossDraws.__init__

    def remember(self: LossDraws, loss_N: torch.Tensor) -> None:
        seen.append(loss_N.clone())
        init(self, loss_N)

    monkeypatch.setattr(LossDraws, "__init__", remember)
    ctx = tiny_context(folder, {"select": ORDERED["select"]} | FROM_SCORES)
    outcome = run(ctx)
    assert (len(outcome.prepared.initial), outcome.scores) == (2, ())
    attempt = Attempt(ctx=ctx, ref="test/0", label="test")
    _, positions = split_positions(ctx, open_dataset(attempt, outcome.prepared.dataset))
    kept = read_subset(attempt, outcome.subset).ascending()[0]
    place = {int(position): row for row, position in enumerate(positions)}
    p_NR = np.stack(
        [
            unpack(attempt.read(model, DYNAMICS, kind="other"), origin="dynamics")["p"][:, 1].numpy()
            for model in outcome.prepared.initial
        ],
        1,
    )
    expected = [-np.log(p_NR[place[int(position)]]).mean() for position in kept]
    assert seen[0].tolist() == pytest.approx(expected, rel=1e-4)


def test_rows_of_unsorted_positions() -> None:
    assert rows_of(np.array([7, 2, 9, 4]), np.array([2, 4, 9])).tolist() == [1, 3, 2]


@pytest.mark.parametrize(
    "changes",
    [INFOBATCH, ORDERED, FROM_SCORES, CONTINUED],
    ids=["infobatch", "ordered", "scores", "uniform from theta_p"],
)
def test_interrupted_after_each_checkpoint_it_ends_bit_identical(
    tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ORDERED | changes | {"train": changes["train"] | {"checkpoint_s": 0, "epochs": 4}}
    straight = tiny_context(tmp_path / "straight", changes)
    run(straight)
    save = Attempt.save_checkpoint

    def interrupted(self: Attempt, data: bytes) -> None:
        save(self, data)
        raise KeyboardInterrupt

    again = tiny_context(tmp_path / "interrupted", changes)
    interruptions = 0
    monkeypatch.setattr(Attempt, "save_checkpoint", interrupted)
    while interruptions < 20:
        try:
            run(again)
            break
        except KeyboardInterrupt:
            interruptions += 1
    assert 3 <= interruptions < 20
    assert digests(again.workspace) == digests(straight.workspace)


@pytest.mark.parametrize(
    ("draw", "part", "where"),
    [
        ("infobatch", 100, "epoch 1 (13 of 52 steps)"),
        ("uniform", 100, "epoch 1 of 4"),
        ("infobatch", 8, "8 steps of epoch 1"),
        ("uniform", 8, "8 steps of epoch 1 of 4"),
    ],
)
def test_a_resumed_training_names_only_a_total_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draw: str, part: int, where: str
) -> None:
    """52 steps are four epochs of 13, and more of them if losses make epochs shorter."""
    for module in (loop, checkpoint):
        monkeypatch.setattr(module, "STEPS_PER_PART", part)
    train, said = {"draw": draw, "steps": 52, "checkpoint_s": 0}, StringIO()
    config = tiny_context(tmp_path, {"select": {"algorithm": "random", "fraction": 0.3}, "train": train}).config
    ctx = Context.of(config, Reporter(said))
    save = Attempt.save_checkpoint

    def interrupted(self: Attempt, data: bytes) -> None:
        save(self, data)
        if self.label.startswith("train"):
            raise KeyboardInterrupt

    monkeypatch.setattr(Attempt, "save_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(ctx)
    monkeypatch.setattr(Attempt, "save_checkpoint", save)
    outcome = run(ctx)
    epochs = len(outcome.trained.model.summary["losses"])
    assert epochs > 4 if draw == "infobatch" else epochs == 4
    assert f"continues after {where}, from its checkpoint" in said.getvalue()


def test_the_report_names_the_draw(folder: Path) -> None:
    document = run_with_baseline(tiny_context(folder, ORDERED))
    assert document is not None
    assert [(row.role, row.draw) for row in document.rows] == [("selected", "ordered"), ("random", "uniform")]
    assert run_with_baseline(tiny_context(folder, INFOBATCH)) is not None
    pages = "".join(path.read_text() for path in folder.rglob("report.html"))
    assert "20 % (ordered)" in pages
    assert "up to 30 % (infobatch)" in pages


def test_the_trainings_of_a_race_have_the_first_losses_of_the_main_training(tmp_path: Path) -> None:
    """They predict it. So one of 10 of 20 steps is a training of 10 steps, bit by bit."""
    race = {"contestants": [], "rounds": [0.5]}
    changes = FROM_SCORES | {"select": {"algorithm": "ccs", "fraction": 0.3, "race": race}}
    changes |= {"train": {"draw": "infobatch", "first_losses": "trajectory", "steps": 20}}
    outcome = run(tiny_context(tmp_path, changes))
    recorded = {each.ref for each in outcome.prepared.initial}
    assert len(recorded) == 2
    assert len(outcome.race) == 2
    assert all(recorded <= set(each.inputs) for each in (*outcome.race.values(), outcome.trained.model))
    ctx = tiny_context(tmp_path, changes | {"train": changes["train"] | {"steps": 10}})
    subsets = {each.ref: each for each in (outcome.subset, *outcome.losers)}
    for raced in outcome.race.values():
        (subset,) = (subsets[ref] for ref in raced.inputs if ref in subsets)
        alone = train(ctx, outcome.prepared.dataset, subset, None, outcome.prepared.initial).make()
        assert alone.files == raced.files
