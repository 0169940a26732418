"""What `lipt plan` foresees: held against the ledger of a real run, and against what must hold at any size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from lipt.cli.plan import plan
from lipt.config import override, parse_config
from lipt.errors import UsageError
from lipt.ledger import Cost
from lipt.stages.compare import run_with_baseline
from lipt.stages.context import Context
from lipt.stages.costs import Work, work_of
from lipt.stages.forecast import Engine, Fit, Forecast, Machine, breaks, calibrate, forecast, measured, took
from lipt.stages.sizes import Data
from tests.tiny import TINY, tiny_context


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """The smallest complete run, with its random baseline."""
    ctx = tiny_context(tmp_path_factory.mktemp("costs") / "runs")
    run_with_baseline(ctx)
    return ctx


def planned(ctx: Context) -> dict[str, Work]:
    return {work.stage: work for work in work_of(ctx, Data.stored(ctx))}


def test_flops_are_those_that_the_stages_count(ran: Context) -> None:
    costs, works = measured(ran), planned(ran)
    assert set(costs) == set(works)
    for stage in ("initialise", "pretrain", "score", "train", "evaluate"):
        assert works[stage].pieces == len(costs[stage])
        near = 0.02 if stage == "train" else 0  # what is kept of each class is rounded
        for cost in costs[stage]:
            assert cost.flops == pytest.approx(works[stage].flops, rel=near), stage
    assert works["merge"].flops == pytest.approx(costs["merge"][0].flops, rel=0.5)  # its search is not foreseeable


def test_bytes_are_those_that_the_store_counts(ran: Context) -> None:
    costs, works = measured(ran), planned(ran)
    worker = costs["pretrain"][0]  # the first of this process: it reads theta_*
    assert worker.read["data"] == works["pretrain"].read["data"]
    assert worker.read["model"] == costs["initialise"][0].written["model"]
    assert worker.read["model"] == pytest.approx(works["pretrain"].once["model"], rel=0.01)
    assert worker.read["other"] == pytest.approx(works["pretrain"].read["other"], rel=0.1)
    for cost in costs["pretrain"]:
        assert cost.written["model"] == pytest.approx(works["pretrain"].written["model"], rel=0.05)
    assert costs["score"][0].written["other"] == pytest.approx(works["score"].written["other"], rel=0.01)
    for stage in ("ingest", "initialise", "merge", "score", "train", "evaluate"):
        total = sum(cost.read["data"] for cost in costs[stage]) / works[stage].pieces
        assert total == pytest.approx(works[stage].read.get("data", 0), rel=0.05), stage
        assert costs[stage][0].written["model"] == pytest.approx(works[stage].written.get("model", 0), rel=0.01), stage
    assert costs["dispatch"][0].read["other"] == works["dispatch"].once["other"]
    for stage in ("initialise", "score"):  # the index was fetched by dispatch, in this process
        assert costs[stage][0].read["other"] == 0
    assert sum(cost.read["other"] for cost in costs["select"]) == pytest.approx(works["select"].read["other"], rel=0.01)
    assert costs["ingest"][0].written["data"] == pytest.approx(works["ingest"].written["data"], rel=0.01)


@pytest.mark.parametrize(
    "changes",
    [
        {"select": {"algorithm": "random"}},
        {"select": {"balanced": False}, "train": {"epoch_fraction": 0.05}},
        {"score": {"block_images": 500}},
        {"score": {"block_images": 500}, "select": {"algorithm": "moderate"}},
        {"data": {"resident_mb": 0.02}, "train": {"random_baseline": False}},
        {"score": {"model": "classic", "runs": 2}, "select": {"algorithm": "grand"}},
        {"select": {"algorithm": "glister"}, "train": {"reselect_every": 2}},
    ],
    ids=["random", "epoch-budget", "blocks", "two-passes", "streamed", "classic", "reselect"],
)
def test_other_configurations_too(ran: Context, changes: dict[str, Any]) -> None:
    ctx = replace(ran, config=override(ran.config, changes))
    run_with_baseline(ctx)
    costs, works = measured(ctx), planned(ctx)
    for stage, work in works.items():
        rows = costs[stage]
        if stage != "merge":
            near = 0.02 if stage == "train" else 1e-9
            assert sum(cost.flops for cost in rows) == pytest.approx(work.flops * work.pieces, rel=near), stage
        read = sum(cost.read["data"] for cost in rows)
        near = 0.5 if stage == "merge" else 0.08
        assert read == pytest.approx(work.pieces * work.read.get("data", 0), rel=near, abs=6000), stage
    read = sum(cost.read["other"] for cost in costs["select"])  # the index may have been fetched by an earlier stage
    assert read == pytest.approx(works["select"].read["other"], rel=0.02, abs=works["select"].once["other"] + 3000)
    if "score" in works:
        written = sum(cost.written["other"] for cost in costs["score"])
        assert written == pytest.approx(works["score"].pieces * works["score"].written["other"], rel=0.01)


def test_groups_are_foreseen_as_they_are_merged(ran: Context) -> None:
    ctx = replace(ran, config=override(ran.config, {"merge": {"groups": 2}}))
    run_with_baseline(ctx)
    costs, works = measured(ctx), planned(ctx)
    for stage in ("group", "merge"):
        work, rows = works[stage], costs[stage]
        assert work.pieces == len(rows)
        assert sum(cost.flops for cost in rows) == pytest.approx(work.pieces * work.flops, rel=0.5), stage
        assert sum(cost.written["model"] for cost in rows) == pytest.approx(
            work.pieces * work.written["model"], rel=0.08
        )
        once = work.once["model"] if stage == "group" else 0  # theta_*, which this process keeps for the last merge
        for kind, kept in (("data", 0), ("model", once)):
            read = sum(cost.read[kind] for cost in rows)
            assert read == pytest.approx(work.pieces * work.read[kind] + kept, rel=0.08), (stage, kind)
    assert [cost.read["data"] for cost in costs["group"]] == [costs["group"][0].read["data"]] * 2
    assert costs["group"][0].read["data"] < costs["merge"][0].read["data"]  # the search's images, not all validation


# Data that are not there


BIG: dict[str, Any] = {
    "data": {"image_size": 32},
    "model": {"name": "resnet18", "width": 4},
    "dispatch": {"jigsaws": 64},
    "train": {"epochs": 2},
}


def foreseen(
    nodes: int, images: int, *, changes: dict[str, Any] | None = None, **machine: Any
) -> tuple[list[Forecast], list[str]]:
    config = override(parse_config(BIG), changes or {})
    ctx = tiny_context("runs")  # nothing is read or written there
    data = Data.described(config, images=images, image_kb=2, classes=10)
    works = work_of(replace(ctx, config=config), data)
    model = Machine(engine=machine.pop("engine", "argo"), nodes=nodes, **machine)
    stages = forecast(works, model, config, data.side)
    return stages, breaks(works, stages, model, config)


def test_more_nodes_never_slow_a_stage_that_is_spread() -> None:
    walls: dict[str, list[float]] = {"pretrain": [], "score": []}
    for nodes in (2, 3, 8, 64, 200):
        for stage in foreseen(nodes, 10_000_000, gpu_tflops=1e-3)[0]:
            if stage.stage in walls:
                walls[stage.stage].append(stage.wall_s)
                assert stage.pods == min(nodes, stage.pieces)
    for times in walls.values():
        assert times == sorted(times, reverse=True)
        assert times[-1] < times[0] / 5  # what is left is mostly the start of the pods


def test_a_full_store_stops_the_gain() -> None:
    def score_s(nodes: int) -> Forecast:
        stages, _ = foreseen(nodes, 50_000_000, gpu_tflops=1000, store_gbps=8, node_gbps=8)
        return next(stage for stage in stages if stage.stage == "score")

    assert score_s(64).bottleneck == "store"
    moved = sum(score_s(64).read.values()) + sum(score_s(64).written.values())
    assert score_s(64).wall_s > moved / 1e9  # no faster than the store, whatever the nodes
    assert score_s(16).wall_s < 1.5 * score_s(64).wall_s


@pytest.mark.parametrize(("engine", "step_s"), [("argo", 10), ("kubeflow", 20)])
def test_an_engine_costs_a_start_per_box(engine: Engine, step_s: float) -> None:
    stages, _ = foreseen(1, 100_000, engine=engine, pod_start_s=7)
    assert sum(stage.start_s for stage in stages) == 5 * (step_s + 7)
    assert sum(stage.start_s for stage in foreseen(1, 100_000, engine="local")[0]) == 0


def test_processes_share_theta_star_and_the_main_training_and_nothing_else() -> None:
    one, four = (
        {stage.stage: stage for stage in foreseen(1, 1_000_000, changes={"train": {"processes": count}})[0]}
        for count in (1, 4)
    )
    for stage in ("initialise", "train"):
        assert four[stage].wall_s < one[stage].wall_s / 2
        assert four[stage].gpu_hours >= 0.9 * one[stage].gpu_hours
    assert all(four[stage] == one[stage] for stage in one if stage not in ("initialise", "train"))


def test_groups_divide_time_and_memory_of_a_merge() -> None:
    """Linear in n in one pod; with the square root in groups, their merge and the last one are alike."""
    changes = {"dispatch": {"jigsaws": 1024}, "data": {"validation_fraction": 0.001}}  # of the search
    whole, grouped = (
        {stage.stage: stage for stage in foreseen(100, 1_000_000, changes=changes | more)[0]}
        for more in ({}, {"merge": {"groups": 32}})
    )
    assert "group" not in whole
    assert (grouped["group"].pods, grouped["group"].pieces) == (32, 32)
    assert grouped["group"].memory_bytes == grouped["merge"].memory_bytes < whole["merge"].memory_bytes
    assert grouped["merge"].flops == grouped["group"].flops / 32 < whole["merge"].flops / 20
    assert grouped["group"].flops == pytest.approx(whole["merge"].flops, rel=0.1)
    delta = whole["pretrain"].written["model"] / 1024
    assert whole["merge"].memory_bytes - grouped["merge"].memory_bytes == pytest.approx((1024 - 32) * delta)
    few = foreseen(10, 1_000_000, changes=changes | {"merge": {"groups": 32}}, gpu_tflops=1e-3)[0]
    many = foreseen(32, 1_000_000, changes=changes | {"merge": {"groups": 32}}, gpu_tflops=1e-3)[0]
    rounds = {stage.stage: stage.wall_s for stage in few}["group"] / {stage.stage: stage.wall_s for stage in many}[
        "group"
    ]
    assert rounds == pytest.approx(4, rel=0.2)  # 10 pods for 32 groups


def test_what_breaks_is_said() -> None:
    assert not [text for text in foreseen(2, 1_000_000)[1] if "memory" in text or "block" in text]
    stages, found = foreseen(8, 2_000_000_000)
    text = "\n".join(found)
    assert "select needs" in text
    assert "score blocks exceeds one argument" in text
    assert {stage.stage: stage.bottleneck for stage in stages}["select"] == "memory"
    assert "dispatch will refuse" in "\n".join(foreseen(2, 10_000)[1])
    assert "merge.groups merges them" in "\n".join(foreseen(64, 1_000_000, gpu_tflops=0.1)[1])
    assert "merge.groups" not in "\n".join(foreseen(64, 1_000_000, gpu_tflops=0.1, changes={"merge": {"groups": 8}})[1])
    larger = foreseen(8, 2_000_000_000, changes={"score": {"block_images": 10_000_000}})[1]
    assert not [text for text in larger if "score block" in text and "memory" not in text]


def test_memory_of_select_is_one_block_unless_candidates_are_compared() -> None:
    def select_bytes(images: int, algorithm: str, **options: Any) -> float:
        changes = {"select": {"algorithm": algorithm, **options}}
        return next(s for s in foreseen(1, images, changes=changes)[0] if s.stage == "select").memory_bytes

    rows = 10**6 * (10 + 32) * 4  # fp32: 10 classes, 32 features
    for algorithm in ("ccs", "el2n", "moderate"):
        grown = select_bytes(2 * 10**6, algorithm) - select_bytes(10**6, algorithm)
        assert grown < 0.8 * rows, algorithm
        assert grown == pytest.approx(select_bytes(2 * 10**6, "stratified") - select_bytes(10**6, "stratified"))
    grown = select_bytes(2 * 10**6, "gradmatch") - select_bytes(10**6, "gradmatch")
    assert grown > rows
    assert select_bytes(10**6, "gradmatch", balanced=False) > select_bytes(10**6, "gradmatch") + 0.8 * rows


def test_without_a_cluster_nothing_is_spread() -> None:
    with pytest.raises(UsageError, match="nodes 4"):
        Machine(nodes=4)


# Calibration


def made(
    flops: Sequence[float], steps: float, pieces: int, seconds: Sequence[float]
) -> list[tuple[list[Work], dict[str, list[Cost]]]]:
    return [
        ([Work(stage="pretrain", pieces=pieces, flops=size, steps=steps, once={"model": 100})],
         {"pretrain": [Cost(wall_s=wall, flops=int(size)) for _ in range(pieces)]})
        for size, wall in zip(flops, seconds, strict=True)
    ]  # fmt: skip


def test_two_sizes_tell_steps_from_flops() -> None:
    # 0.02 s a step and 10 GFLOP/s
    fit = calibrate(made([1e9, 2e10], 50, 3, [1.1, 3.0]), Machine())["pretrain"]
    assert (fit.per_step, fit.per_flop) == pytest.approx((0.02, 1e-10), rel=1e-6)
    assert fit.first_s == 0
    assert fit.done == 1


def test_one_size_gives_seconds_per_flop_and_the_first_piece() -> None:
    runs = made([1e9], 50, 4, [2.0])
    first = runs[0][1]["pretrain"][0]
    first.wall_s = 5.0
    assert calibrate(runs, Machine())["pretrain"] == Fit(per_flop=2e-9)  # each in a pod of its own: one was slow
    first.read["model"] = 100  # all in one process: the first warms up
    assert calibrate(runs, Machine())["pretrain"] == Fit(per_flop=2e-9, first_s=3.0)


def test_pods_are_measured_by_the_busiest() -> None:
    stage = next(stage for stage in foreseen(2, 100_000)[0] if stage.stage == "pretrain")
    assert took(stage, [Cost(wall_s=wall) for wall in (1, 5, 2, 1, 4)]) == 1 + 2 + 4
    assert took(stage, []) == 0


def test_boxes_without_work_start_too() -> None:
    stages, _ = foreseen(1, 100_000, changes={"select": {"algorithm": "random"}}, pod_start_s=7)
    assert [stage.stage for stage in stages] == ["ingest", "select", "train", "evaluate"]
    assert sum(stage.start_s for stage in stages) == 5 * (10 + 7)


def test_a_run_is_foreseen_from_itself(ran: Context) -> None:
    data, costs = Data.stored(ran), measured(ran)
    works = work_of(ran, data)
    fits = calibrate([(works, costs)], Machine())
    assert fits["group"] == fits["merge"]  # to plan groups for
    for stage in forecast(works, Machine(fits=fits), ran.config, data.side):
        rows = costs[stage.stage]
        if len(rows) < 3:  # of more pieces the median counts
            assert stage.wall_s == pytest.approx(sum(cost.wall_s for cost in rows), rel=0.05, abs=0.05), stage.stage
        assert stage.flops == pytest.approx(sum(cost.flops for cost in rows), rel=1e-9), stage.stage


# The verb


def configured(ctx: Context, folder: Path, **changes: Any) -> str:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(TINY | {"workspace": ctx.config.workspace} | changes))
    return str(path)


def test_the_verb_shows_prediction_beside_measurement(ran: Context, tmp_path: Path) -> None:
    path = configured(ran, tmp_path)
    shown = CliRunner().invoke(plan, [path, "--calibrate", path])
    assert shown.exit_code == 0, shown.output
    for text in ("measured", "pretrain x 3", "total", "train x 2"):
        assert text in shown.output
    document = json.loads(CliRunner().invoke(plan, [path, "--calibrate", path, "-o", "json"]).output)
    assert document["wall_s"] == pytest.approx(sum(document["measured_wall_s"].values()), rel=0.5)
    assert document["wall_s"] == pytest.approx(sum(stage["wall_s"] for stage in document["stages"]))
    assert document["machine"]["fits"]["train"]["per_flop"] > 0


def test_another_gpu_replaces_the_speeds_found(ran: Context, tmp_path: Path) -> None:
    path = configured(ran, tmp_path)
    arguments = [path, "--calibrate", path, "-m", "gpu_tflops=1000", "-o", "json"]
    document = json.loads(CliRunner().invoke(plan, arguments).output)
    assert set(document["machine"]["fits"]) == {"ingest", "dispatch", "select"}
    assert document["machine"]["gpu_tflops"] == 1000


@pytest.mark.parametrize(
    ("pair", "message"),
    [("latency=5", "did you mean 'latency_ms'"), ("latency_ms=x", "above 0"), ("store_gbps=0", "above 0")],
)
def test_what_is_wrong_with_a_machine_is_said(pair: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").touch()
    refused = CliRunner().invoke(plan, [str(tmp_path / "run.yaml"), "-m", pair]).exception
    assert isinstance(refused, UsageError)
    assert message in str(refused)


def test_data_that_are_not_there_are_described(tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    path.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "none")}))
    refused = CliRunner().invoke(plan, [str(path)])
    assert isinstance(refused.exception, UsageError)
    assert "--images" in (refused.exception.remedy or "")
    options = ["--images", "1000000", "--image-kb", "2", "--classes", "10", "--engine", "argo", "--nodes", "10"]
    refused = CliRunner().invoke(plan, [str(path), *options])
    assert isinstance(refused.exception, UsageError)
    assert "image_size" in (refused.exception.remedy or "")
    shown = CliRunner().invoke(plan, [str(path), *options, "--set", "data.image_size=32"])
    assert shown.exit_code == 0, shown.output
    assert "initialise" in shown.output
    assert not (tmp_path / "none").exists()


def test_a_run_that_did_not_finish_calibrates_nothing(tmp_path: Path, ran: Context) -> None:
    path = configured(ran, tmp_path, seed=7)
    refused = CliRunner().invoke(plan, [path, "--calibrate", path])
    assert isinstance(refused.exception, UsageError)
    assert "no report" in refused.exception.message
