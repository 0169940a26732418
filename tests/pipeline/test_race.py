"""The race of selections: halving, the winner's training, the boxes of a pipeline, the report."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from lipt.config import Point, override
from lipt.errors import DivergedError, RunError
from lipt.flow.compare import run_comparison, run_with_baseline
from lipt.flow.dag import Scoring, run
from lipt.flow.outcome import Outcome
from lipt.flow.race import ahead
from lipt.flow.reporting.rows import label_of
from lipt.flow.variants import variants
from lipt.forecast.calibration import measured
from lipt.forecast.sizes import DataSize
from lipt.forecast.stages import work_of
from lipt.pods.boxes import dispatch_box, merge_box, pretrain_box, select_box, train_box
from lipt.pods.sweep_cells import Cell, over_seeds
from lipt.pods.workers import Loss, open_run, worker
from lipt.progress import Reporter
from lipt.report.document import Row
from lipt.report.html_page import render
from lipt.report.sweep import Result
from lipt.report.verdict import judge
from lipt.runtime import Artifact, Attempt
from lipt.runtime.algorithm import contestants
from lipt.runtime.context import Context
from lipt.runtime.dataset import images_of, open_dataset, split_positions
from lipt.runtime.network import WEIGHTS, new_model
from lipt.stages.race import DIVERGED
from lipt.stages.train import fit
from lipt.training.forward import accuracies
from lipt.training.networks import on_device
from lipt.training.precision import autocast
from lipt.training.tensor_files import unpack
from tests.tiny import tiny_context

#: With stratified and ccs: five contestants, of which three take part in the second round.
RACE: dict[str, Any] = {
    "contestants": [
        {"algorithm": "dual"},
        {"algorithm": "herding"},
        {"algorithm": "ccs", "options": {"score": "aum"}},
        {"algorithm": "stratified"},
    ],
    "rounds": [0.25, 0.5],
}
SCORE = {"model": "trajectory", "runs": 1, "epochs": 3}


def context(folder: Path, race: dict[str, Any] | None = RACE, **changes: Any) -> Context:
    select = {"algorithm": "ccs", "fraction": 0.2, "race": race}
    return tiny_context(folder, {"select": select, "score": SCORE, "train": {"epochs": 8}} | changes)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("race")
    return folder, run(context(folder))


def test_the_better_half_goes_on_and_the_first_wins_ties() -> None:
    assert ahead(dict(enumerate([0.3, 0.5, 0.1, 0.5, 0.4]))) == [1, 3, 4]
    assert ahead({3: 0.2, 1: 0.2}) == [3]
    assert ahead({4: 0.0}) == [4]
    assert ahead({0: None, 1: 0.1, 2: 0.2}) == [2, 1]
    assert ahead({0: None, 1: 0.1, 2: None}) == [1]


def test_a_selection_that_is_named_twice_races_once(tmp_path: Path) -> None:
    """An option with its default value makes no other selection."""
    options: list[dict[str, Any]] = [{"score": "el2n"}, {"score": "aum"}, {"beta": 0.1}]
    named = [{"algorithm": "ccs", "options": each} for each in options]
    field = contestants(context(tmp_path, {"contestants": named}).config)
    assert [each.select.options for each in field] == [{}, {}, {"score": "aum"}, {"beta": 0.1}]


def test_the_best_of_the_last_round_gets_the_main_training(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    field = contestants(context(folder).config)
    assert [each.select.algorithm for each in field] == ["stratified", "ccs", "dual", "herding", "ccs"]
    assert sorted(outcome.race)[:5] == [0, 1, 2, 3, 4]
    first, second = ({i: a for i, a in outcome.race.items() if i // 5 == number} for number in (0, 1))
    ranked = sorted(first, key=lambda index: -first[index].summary["accuracy"])
    assert {index - 5 for index in second} == set(ranked[:3])
    assert {artifact.summary["steps"] for artifact in first.values()} == {18}  # 9 batches of 32 in 259, 8 epochs
    assert {artifact.summary["steps"] for artifact in second.values()} == {36}
    best = max(second, key=lambda index: second[index].summary["accuracy"]) - 5
    assert outcome.config.select == field[best].select


def test_the_main_training_is_that_of_a_plain_run_of_the_winner(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    chosen = outcome.config.select
    select = {"algorithm": chosen.algorithm, "options": chosen.options, "fraction": 0.2}
    plain = run(tiny_context(folder, {"select": select, "score": SCORE, "train": {"epochs": 8}}))

    if chosen.algorithm == "stratified":  # it reads no scores, so even the address is the same
        assert outcome.trained.model.ref == plain.trained.model.ref
    weights = [each.trained.model.files["weights.safetensors"].sha256 for each in (outcome, plain)]
    assert weights[0] == weights[1]


def test_each_contestant_is_judged_on_the_validation_images_by_its_own_network(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    ctx = context(folder)
    data = open_dataset(Attempt(ctx=ctx, ref="test/0", label="test"), outcome.prepared.dataset)
    images = images_of(ctx, data, "train", split_positions(ctx, data)[0])
    for artifact in outcome.race.values():
        key = f"{artifact.ref}/{WEIGHTS}"
        model = new_model(ctx, 10, 0, unpack(ctx.workspace.store.read(key, kind="model"), origin=key))
        with autocast(ctx.device, ctx.precision):
            (accuracy,) = accuracies([on_device(model, ctx.device)], images, device=ctx.device)
        assert artifact.summary["accuracy"] == pytest.approx(accuracy)


def test_who_diverges_is_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fit_but_the_second(ctx: Context, attempt: Attempt, inputs: Any, processes: Any) -> dict[str, Any]:
        if inputs["subset"].summary["algorithm"] == "ccs":
            raise DivergedError("the training loss is nan in epoch 2", "lower it", images=400, steps=9)
        return fit(ctx, attempt, inputs, processes)

    monkeypatch.setattr("lipt.stages.race.fit", fit_but_the_second)
    ctx = context(tmp_path, {"contestants": [{"algorithm": "herding"}], "rounds": [0.25]}, train={"epochs": 4})
    document = run_with_baseline(ctx)
    assert document is not None
    assert [(row.diverged, len(row.accuracies)) for row in document.race] == [(False, 1), (True, 0), (False, 1)]
    assert not document.race[1].won
    told = capsys.readouterr().err
    assert "ccs is out of the race: the training loss is nan in epoch 2\n" in told
    assert ", ccs diverged, " in told
    assert "<td>diverged</td>" in render(document)
    lost = next(each for each in run(ctx).race.values() if DIVERGED in each.summary)
    assert WEIGHTS not in lost.files
    one = next(each for each in run(ctx).race.values() if DIVERGED not in each.summary)
    spent = [ctx.workspace.cost(each).flops / each.summary["images"] for each in (lost, one)]
    assert spent[0] == pytest.approx(spent[1], rel=0.2)  # the other one is also measured on the validation images


def test_a_race_in_which_all_diverge_says_so(tmp_path: Path) -> None:
    ctx = context(tmp_path, {"rounds": [0.5]}, train={"epochs": 4, "lr": 1000.0})
    for _ in range(2):
        with pytest.raises(RunError, match="every training of the race diverged: Class-balanced random, ccs"):
            run(ctx)


def test_it_starts_where_the_main_training_starts(tmp_path: Path) -> None:
    race = {"contestants": [{"algorithm": "dual"}], "rounds": [0.5]}
    outcome = run(context(tmp_path, race, train={"epochs": 2, "start": "continue"}))
    theta = outcome.prepared.initial[0].ref
    assert len(outcome.race) == 3
    assert all(theta in each.inputs for each in (*outcome.race.values(), outcome.trained.model))


def test_a_repeated_race_makes_nothing(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    again = run(context(folder))
    assert {index: artifact.ref for index, artifact in again.race.items()} == {
        index: artifact.ref for index, artifact in outcome.race.items()
    }
    assert again.trained.model.made_from == outcome.trained.model.made_from


def test_trainings_of_another_race_are_not_counted(ran: tuple[Path, Outcome]) -> None:
    """In a race with fewer contestants, one that is out here may have come further."""
    folder, outcome = ran
    scoring = Scoring.of(context(folder), outcome.prepared, None)
    (out, *_) = {5, 6, 7, 8, 9} - set(outcome.race)
    further = scoring.race(context(folder)).stage(out).make()
    assert run(context(folder)).race == outcome.race
    assert further.summary["steps"] == 36


def test_the_boxes_of_a_pipeline_race_as_one_process_does(
    ran: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, outcome = ran
    address = dispatch_box(context(tmp_path).config, engine="argo", image="lipt:0", cpu="1", memory="1Gi", nodes=2)
    assert pretrain_box(address) == (0, 0)
    assert merge_box(address) is None
    done: list[list[int]] = []

    def spread(_spec: Any, where: str, _ctx: Context, stage: str, items: list[int], **_more: Any) -> dict[int, Loss]:
        assert stage == "race"  # one block of scores is no work to share
        done.append(list(items))
        worker(where, stage, items[:1])  # the pod of the others is lost
        return dict.fromkeys(items[1:], Loss("lost", None))

    monkeypatch.setattr("lipt.pods.boxes.spread", spread)
    subset = select_box(address, None)
    assert [len(items) for items in done] == [5, 3]
    finished = train_box(address, None, subset.ref)
    _, ctx, _ = open_run(address)
    assert subset.settings["select"] == outcome.subset.settings["select"]
    assert ctx.workspace.get(finished.model or "").files == outcome.trained.model.files
    assert len(finished.document.race) == 5


@pytest.mark.parametrize(("algorithm", "shared"), [("dual", False), ("herding", True)])
def test_pods_share_blocks_of_scores_only_if_images_go_through_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, shared: bool
) -> None:
    """DUAL reads the trajectory, herding the outputs of the network."""
    ctx = tiny_context(
        tmp_path, {"select": {"algorithm": algorithm, "fraction": 0.2}, "score": {**SCORE, "block_images": 100}}
    )
    address = dispatch_box(ctx.config, engine="argo", image="lipt:0", cpu="1", memory="1Gi", nodes=2)
    done: list[str] = []

    def spread(*arguments: Any, **_more: Any) -> dict[int, Loss]:
        done.append(arguments[3])
        return {}

    monkeypatch.setattr("lipt.pods.boxes.spread", spread)
    subset = select_box(address, None)
    works = {work.stage: work for work in work_of(ctx, DataSize.stored(ctx))}
    assert works["score"].parts == sum(ref.startswith("score/") for ref in subset.inputs) > 1
    assert (done == ["score"], works["score"].spreads) == (shared, shared)


def test_what_the_losers_took_is_a_part_of_the_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here class-balanced random wins, which reads no scores."""
    monkeypatch.setattr("lipt.flow.race.ahead", lambda reached: [*reached][: (len(reached) + 1) // 2])
    select = {"algorithm": "ccs", "fraction": 0.2, "options": {"score": "entropy"}}
    race = {"contestants": [{"algorithm": "herding"}], "rounds": [0.1]}
    ctx = context(tmp_path, select=select | {"race": race}, score={**SCORE, "runs": 2, "block_images": 400})
    planned = run(Context.of(ctx.config, Reporter(StringIO()), dry_run=True))
    document = run_with_baseline(ctx)
    assert document is not None
    assert document.race[0].won
    works, costs = {work.stage: work for work in work_of(ctx, DataSize.stored(ctx))}, measured(ctx)
    assert len(costs["score"]) == works["score"].parts == 4
    assert sum(cost.flops for cost in costs["score"]) == pytest.approx(works["score"].parts * works["score"].flops)
    assert len(costs["select"]) == 4  # and the baseline's, which keeps all images
    read = sum(cost.read["other"] for cost in costs["select"])
    assert read == pytest.approx(works["select"].read["other"], rel=0.05)
    again = run(ctx)
    assert {each.stage for each in again.choice()} == {"initialise", "score", "select", "race"}
    assert [each.stage for each in again.choice()].count("select") == 3
    assert not document.score_checks
    assert [each.stage for each in planned.choice()].count("race") == 3


def test_the_winner_of_a_race_is_shown_with_its_options(ran: tuple[Path, Outcome]) -> None:
    _, outcome = ran
    won = {"algorithm": "ccs", "options": {"score": "aum"}}
    assert (
        label_of(replace(outcome, config=override(outcome.config, {"select": won}))) == "Trajectory, ccs (score: aum)"
    )


def test_seeds_with_different_winners_are_not_called_by_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The random subset wins with seed 0, ccs with seed 1: the row is neither random nor ccs."""

    def accuracy(ctx: Context, attempt: Attempt, _dataset: Artifact) -> float:
        return float(("Class-balanced" in attempt.label) == (ctx.config.seed == 0))

    monkeypatch.setattr("lipt.stages.race._accuracy", accuracy)
    compare = {"seeds": [0, 1], "variants": ["lipt", "stratified"]}
    document = run_comparison(context(tmp_path, {"contestants": [], "rounds": [0.25]}, compare=compare))
    assert document is not None
    row, verdict = document.rows[0], judge(document.rows)
    assert row.label == "Trajectory, Class-balanced random or ccs"
    assert row.algorithm == "stratified or ccs"
    assert row.reason.endswith("it was won by stratified with seed 0, ccs with seed 1")
    assert "no model chose it" not in verdict.headline
    assert "points against class-balanced random" in verdict.headline
    assert not Result(point={}, rows=document.rows).is_random
    assert document.done["Choice"].startswith("With seed 0: ")
    assert "This section shows the run with seed 0." in render(document)


def test_a_sweep_on_a_cluster_joins_the_winners_of_all_seeds(tmp_path: Path) -> None:
    config = context(tmp_path).config
    cell = Cell(point=Point(values={}, config=config), variant=variants(config)["lipt"], seed=0)
    fields = {"name": "lipt", "label": "", "role": "selected", "reason": "it won", "kept_fraction": 0.2, "epochs": 1}
    fields |= {"epoch_fraction": 0.2, "accuracy": [0.5], "num_test_images": 100, "chance": 0.1, "race_flops": 9}
    won = {0: "stratified", 1: "ccs", 2: "stratified"}
    row = over_seeds(cell, [Row(**fields, seeds=[seed], algorithm=name) for seed, name in won.items()])
    assert (row.label, row.algorithm) == ("Trajectory, Class-balanced random or ccs", "stratified or ccs")
    assert "ccs with seed 1" in row.reason


def test_a_dry_run_of_a_finished_race_plans_nothing(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    shown = StringIO()
    again = run(Context.of(context(folder).config, Reporter(shown), dry_run=True))
    assert "would run" not in shown.getvalue()
    assert again.subset.ref == outcome.subset.ref
