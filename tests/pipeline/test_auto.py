"""`auto` with a trajectory: which rule runs depends on how often the training sees each kept image."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lipt.config import override
from lipt.flow.compare import run_comparison, run_with_baseline
from lipt.runtime.algorithm import contestants, reason_of_auto, selecting
from lipt.runtime.artifact import Artifact
from lipt.runtime.budgets import passes_of
from lipt.runtime.context import Context
from lipt.selection.measured import CONTINUED_GAINS
from lipt.stages.select import select
from lipt.stages.train import train
from tests.tiny import tiny_context

SCORE = {"model": "trajectory", "runs": 1, "epochs": 10}
AUTO = {"score": SCORE, "select": {"algorithm": "auto"}}
DATASET = Artifact(stage="ingest", key="0", inputs=(), settings={"digest": "0"}, files={}, summary={"train": 1000})


def config_with(folder: Path, train: dict[str, Any], select: dict[str, Any] | None = None) -> Context:
    return tiny_context(folder, AUTO | {"train": train, "select": AUTO["select"] | (select or {})})


@pytest.mark.parametrize(
    ("train", "passes"),
    [
        ({"epochs": 49}, 49),
        ({"epochs": 50}, 50),
        ({"epochs": 100, "epoch_fraction": 0.1}, 50),
        ({"steps": 299}, 49.83),  # an epoch has six steps
        ({"steps": 300}, 50),
    ],
)
def test_auto_changes_its_rule_if_the_training_sees_each_image_often(
    tmp_path: Path, train: dict[str, Any], passes: float
) -> None:
    config = config_with(tmp_path, train, {"fraction": 0.2}).config
    assert passes_of(config, 900) == pytest.approx(passes, rel=0.001)
    chosen = selecting(config, 900)
    assert (chosen.algorithm, chosen.options) == ("dyn_unc" if passes >= 50 else "auto", {})
    assert selecting(config).algorithm == "auto"  # without the number of candidates


def test_passes_are_counted_in_the_steps_that_the_training_takes(tmp_path: Path) -> None:
    """0.07 of 900 candidates are 63, one batch. The product of the floats is larger, and would be two."""
    config = config_with(tmp_path, {"steps": 100, "batch_size": 63}, {"fraction": 0.07}).config
    assert passes_of(config, 900) == 100


@pytest.mark.parametrize(
    ("fraction", "epochs", "rule"),
    [
        (0.1, 24, "dual"),
        (0.1, 25, "dyn_unc"),
        (0.1, 500, "dyn_unc"),
        (0.069, 49, "dual"),
        (0.069, 99, "ccs"),
        (0.069, 100, "dyn_unc"),
        (0.029, 100, "dual"),
        (0.039, 100, "ccs"),
        (0.04, 100, "dyn_unc"),
        (0.141, 49, "dual"),
        (0.141, 50, "dyn_unc"),
        (0.3, 1, "dual"),
        (0.3, 2, "dyn_unc"),
        (0.3, 20, "dyn_unc"),
        (0.3, 21, "dual"),
    ],
)
def test_in_longer_trainings_it_is_what_was_measured(tmp_path: Path, fraction: float, epochs: int, rule: str) -> None:
    config = config_with(tmp_path, {"epochs": epochs}, {"fraction": fraction}).config
    chosen = selecting(config, 900)
    assert chosen.algorithm == ("auto" if rule == "dual" else rule)
    assert chosen.options == ({"score": "el2n"} if rule == "ccs" else {})


@pytest.mark.parametrize(("fraction", "rule"), [(0.1, "dyn_unc"), (0.035, "ccs")])
def test_a_rule_needs_the_ten_epochs_with_which_it_was_measured(tmp_path: Path, fraction: float, rule: str) -> None:
    ctx = config_with(tmp_path, {"epochs": 100}, {"fraction": fraction})
    short = override(ctx.config, {"score": {"epochs": 9}})
    assert [selecting(each, 900).algorithm for each in (ctx.config, short)] == [rule, "auto"]
    assert "along ten epochs: at 10 % in 500 steps two gained +1.8 ± 0.7" in reason_of_auto(short, 900)
    assert "along ten epochs" not in reason_of_auto(ctx.config, 900)


@pytest.mark.parametrize("fraction", [0.02, 0.28, 0.5])
def test_at_other_shares_it_stays(tmp_path: Path, fraction: float) -> None:
    ctx = config_with(tmp_path, {"epochs": 200}, {"fraction": fraction})
    assert selecting(ctx.config, 900) == ctx.config.select


def test_the_address_of_a_selection_depends_on_what_auto_takes_only(tmp_path: Path) -> None:
    def key(steps: int) -> str:
        return select(config_with(tmp_path, {"steps": steps}), DATASET, []).key

    assert key(1) == key(74) != key(75) == key(500)  # an epoch has three steps


def test_the_lines_of_select_and_train_name_what_auto_takes(tmp_path: Path) -> None:
    def line(steps: int, **changes: Any) -> str:
        ctx = config_with(tmp_path, {"steps": steps}, changes)
        chosen = select(ctx, DATASET, [])
        subset = Artifact(stage="select", key="key", inputs=(), settings=chosen.settings, files={}, summary={})
        assert train(ctx, DATASET, subset).label == chosen.label.replace("select ", "train ")
        return chosen.label

    assert line(1) == "select auto (dual)"
    assert line(270) == "select auto (dyn_unc)"
    assert line(1, fraction=0.5) == "select auto (class-balanced random)"
    assert line(1, algorithm="stratified") == "select stratified"


def test_in_a_race_auto_takes_dual_because_the_race_finds_out(tmp_path: Path) -> None:
    race = {"contestants": [{"algorithm": "ccs", "options": {"score": "el2n"}}, {"algorithm": "auto"}]}
    ctx = config_with(tmp_path, {"steps": 500}, {"race": race})
    assert [each.select.algorithm for each in contestants(ctx.config)] == ["stratified", "dual", "ccs"]
    for each in contestants(ctx.config):
        assert selecting(each, 900) == each.select


def test_the_report_names_what_ran_and_why(tmp_path: Path) -> None:
    document = run_with_baseline(config_with(tmp_path, {"steps": 270}))
    assert document is not None
    row = document.rows[0]
    assert (row.label, row.algorithm) == ("Trajectory, auto (dyn_unc)", "dyn_unc")
    assert "auto takes dyn_unc: this training sees each image 54 times" in row.reason
    assert "by the algorithm dyn_unc" in str(document.done)

    short = run_with_baseline(config_with(tmp_path, {"steps": 20}))
    assert short is not None
    assert short.rows[0].label == "Trajectory, auto (dual)"


def test_a_comparison_names_what_ran(tmp_path: Path) -> None:
    ctx = config_with(tmp_path, {"steps": 250})
    compare = {"compare": {"variants": ["stratified", "lipt"], "seeds": [0]}}
    document = run_comparison(Context.of(override(ctx.config, compare)))
    assert document is not None
    assert {row.name: row.label for row in document.rows}["lipt"] == "Trajectory, auto (dyn_unc)"


@pytest.mark.parametrize(
    ("fraction", "select", "rule"),
    [(0.05, {}, "stratified"), (0.3, {"balanced": False}, "random"), (0.02, {}, "auto"), (0.35, {}, "auto")],
)
def test_auto_is_random_if_the_training_starts_from_the_scorer(
    tmp_path: Path, fraction: float, select: dict[str, Any], rule: str
) -> None:
    config = config_with(tmp_path, {"start": "continue", "epochs": 100}, {"fraction": fraction} | select).config
    assert selecting(config, 900).algorithm == rule
    fresh = override(config, {"train": {"start": "fresh"}})
    assert selecting(fresh, 900).algorithm != "stratified"


def test_a_run_from_the_scorer_selects_at_random_and_says_why(tmp_path: Path) -> None:
    """It trains the network whose weights it starts from, but does not score."""
    ctx = config_with(tmp_path, {"start": "continue", "epochs": 3}, {"fraction": 0.1})
    document = run_with_baseline(ctx)
    ours = document.rows[0]
    assert ours.algorithm == "stratified"
    assert ours.reason.startswith("auto takes a random subset for a training that starts from trained weights. In our")
    assert ours.label == "auto (class-balanced random), continued from the model of the trajectory"
    assert len(list(tmp_path.glob("initialise/*/artifact.json"))) == 1
    assert not list(tmp_path.glob("score/*/artifact.json"))


@pytest.mark.parametrize(
    ("score", "fraction", "chosen"),
    [
        ({"model": "merged"}, 0.01, "ccs"),
        ({"model": "merged"}, 0.1, "a random subset"),
        (SCORE, 0.02, "dual"),
        (SCORE, 0.1, "a random subset"),
        (SCORE, 0.35, "a random subset"),
        (SCORE | {"runs": 3, "disjoint": True}, 0.1, "ccs"),
    ],
)
def test_from_trained_weights_auto_names_no_gain_from_random_weights(
    tmp_path: Path, score: dict[str, Any], fraction: float, chosen: str
) -> None:
    changes = {"score": score, "select": {"algorithm": "auto", "fraction": fraction}, "train": {"start": "continue"}}
    said = reason_of_auto(tiny_context(tmp_path, changes | {"initialise": {"batch_size": 32}}).config, 50_000)
    assert said.startswith(f"auto takes {chosen} for a training that starts from trained weights. In our own ")
    gains = [gain for measured in CONTINUED_GAINS.values() for gain in measured.values()]
    assert re.findall(r"[+−][\d.]+ ± [\d.]+", said) == gains
    assert "--advise" not in said
