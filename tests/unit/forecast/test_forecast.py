"""The predicted time and first bottleneck of a run: properties at every size, and what a finished run changes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from lipt.config import override, parse_config
from lipt.errors import UsageError
from lipt.flow.reporting.ledger import ledger_section
from lipt.forecast.calibration import calibrate, measured
from lipt.forecast.machine import Fit, Machine, Setup
from lipt.forecast.sizes import DataSize
from lipt.forecast.speed import clock_of, setup_of
from lipt.forecast.stages import work_of
from lipt.forecast.time import Forecast, breaks, forecast
from lipt.forecast.work import Work
from lipt.ledger import Cost, machines
from lipt.report.document import Engine
from lipt.runtime.artifact import Artifact
from lipt.runtime.context import Context
from tests.programs import run_python
from tests.tiny import tiny_context

BIG: dict[str, Any] = {
    "data": {"image_size": 32},
    "model": {"name": "resnet18", "width": 4},
    "dispatch": {"jigsaws": 64},
    "train": {"epochs": 2},
}


def predicted(
    nodes: int, images: int, *, changes: dict[str, Any] | None = None, **machine: Any
) -> tuple[list[Forecast], list[str]]:
    config = override(parse_config(BIG), changes or {})
    ctx = tiny_context("runs")  # nothing is read or written there
    data = DataSize.described(config, images=images, image_kb=2, classes=10)
    works = work_of(replace(ctx, config=config), data)
    model = Machine(engine=machine.pop("engine", "argo"), nodes=nodes, **machine)
    stages = forecast(works, model, config, data.side)
    return stages, breaks(works, stages, model, config)


def test_more_nodes_never_slow_a_stage_that_is_spread() -> None:
    walls: dict[str, list[float]] = {"pretrain": [], "score": []}
    for nodes in (2, 3, 8, 64, 200):
        for stage in predicted(nodes, 10_000_000, gpu_tflops=1e-3)[0]:
            if stage.stage in walls:
                walls[stage.stage].append(stage.wall_s)
                assert stage.pods == min(nodes, stage.parts)
    for times in walls.values():
        assert times == sorted(times, reverse=True)
        assert times[-1] < times[0] / 5  # what is left is mostly the start of the pods


def test_thumbnails_of_data_that_are_not_ingested_yet_are_estimated() -> None:
    """With the bytes that CIFAR-10 has: 675 for a thumbnail of 16 pixels, 2,285 of 32."""
    proxy = {"score": {"proxy": {"width": 8, "image_size": 16}}}
    read: dict[int | None, dict[str, float]] = {}
    for side in (None, 16, 32):
        stages, _ = predicted(1, 100_000, changes=proxy | {"data": {"thumbnails": side}})
        read[side] = {stage.stage: stage.read["data"] for stage in stages}
        if side:
            assert read[side]["score"] == pytest.approx({16: 675, 32: 2285}[side] * 90_000, rel=0.05)
            assert read[side]["initialise"] == read[side]["score"]
        assert read[side]["train"] == read[None]["train"]
    assert read[None]["score"] == 90_000 * 4048


def test_crops_are_decoded_while_the_network_computes() -> None:
    """Files that are held are loaded first. On a CPU decoding and network share the cores."""
    config = override(parse_config(BIG), {"train": {"checkpoint_s": 0}})

    def wall_s(flops: float, *, shares_cores: bool = False, **how: bool) -> float:
        work = Work(stage="train", flops=flops, decoded=1000, read={"data": 1e9}, **how)
        machine = Machine(
            gpu_tflops=1, decode_s={"crop": 4e-3, "whole": 2e-3}, latency_ms=1e-9, shares_cores=shares_cores
        )
        return forecast([Work(stage="ingest"), work], machine, config, 224)[1].wall_s

    load_s = Machine().transfer_s(1e9)
    assert wall_s(5e12) == pytest.approx(5 + 2)  # decoded once, before
    assert wall_s(5e12, crops=True) == pytest.approx(5 + load_s)
    assert wall_s(3e12, crops=True) == pytest.approx(4 + load_s)
    assert wall_s(3e12, crops=True, streams=True) == pytest.approx(4)
    assert wall_s(3e12, crops=True, shares_cores=True) == pytest.approx(3 + 4 + load_s)


@pytest.mark.parametrize(
    ("every_s", "places", "written"),
    [(100, 1000, 10), (1, 1000, 12), (0, 1000, 1000), (100, 3, 3)],
    ids=["seldom", "as often as a twentieth of the time allows", "everywhere", "few places"],
)
def test_checkpoints_of_a_training(every_s: float, places: int, written: int) -> None:
    """Of 1,000 seconds; to write one takes 4."""
    config = override(parse_config(BIG), {"train": {"checkpoint_s": every_s}})
    work = Work(
        stage="train",
        written={"model": 0},
        flops=1e15,
        checkpoints=places,
        checkpoint_bytes=4e9 * Machine().node_gbps / 8,
    )
    trained = forecast([Work(stage="ingest"), work], Machine(gpu_tflops=1), config, 224)[1]
    assert trained.written == {"model": written * work.checkpoint_bytes}


def test_a_full_store_stops_the_gain() -> None:
    def score_s(nodes: int) -> Forecast:
        stages, _ = predicted(nodes, 50_000_000, gpu_tflops=1000, store_gbps=8, node_gbps=8)
        return next(stage for stage in stages if stage.stage == "score")

    assert score_s(64).bottleneck == "store"
    moved = sum(score_s(64).read.values()) + sum(score_s(64).written.values())
    assert score_s(64).wall_s > moved / 1e9  # no faster than the store, whatever the nodes
    assert score_s(16).wall_s < 1.5 * score_s(64).wall_s


@pytest.mark.parametrize(("engine", "step_s"), [("argo", 10), ("kubeflow", 20)])
def test_an_engine_costs_a_start_per_box(engine: Engine, step_s: float) -> None:
    stages, _ = predicted(1, 100_000, engine=engine, pod_start_s=7)
    assert sum(stage.start_s for stage in stages) == 5 * (step_s + 7)
    assert sum(stage.start_s for stage in predicted(1, 100_000, engine="local")[0]) == 0


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_a_local_run_starts_processes_and_sets_up_each_part(processes: int) -> None:
    """Against a clock per process."""
    works = [
        Work(stage="initialise", flops=3e12),
        Work(stage="pretrain", parts=5, flops=7e12),
        Work(stage="train", parts=2, flops=11e12),
    ]
    setups = {work.stage: Setup(part_s=0.25 * (i + 1), first_s=2.0 * i) for i, work in enumerate(works)}
    machine = Machine(gpu_tflops=1, latency_ms=1e-9, setups=setups, start_s=3)
    total = machine.start_s
    for work in works:
        clocks = [0.0] * (min(processes, work.parts) if work.spreads else 1)
        for part in range(work.parts):
            clock, setup = part % len(clocks), setups[work.stage]
            if part < len(clocks):
                clocks[clock] += setup.first_s + (machine.start_s if len(clocks) > 1 else 0)
            clocks[clock] += setup.part_s + work.flops / 1e12
        total += max(clocks)
    config = override(parse_config(BIG), {"processes": processes})
    assert sum(stage.wall_s for stage in forecast(works, machine, config, 32)) == pytest.approx(total)


def test_each_training_on_several_processes_starts_them() -> None:
    works = [Work(stage="initialise", member_bytes=1), Work(stage="train", parts=2, member_bytes=1)]
    config = override(parse_config(BIG), {"processes": 4})
    stages = forecast(works, Machine(start_s=3), config, 32)
    assert [stage.start_s for stage in stages] == [3 + 3, 2 * 3]


def test_the_set_up_is_what_the_first_part_takes_beyond_its_epoch() -> None:
    assert setup_of(first_s=4 + 1 + 2, part_s=1, epoch_s=2) == Setup(part_s=1, first_s=4)
    assert setup_of(first_s=2, part_s=1, epoch_s=2) == Setup(part_s=1, first_s=0)


def test_on_a_cpu_waiting_for_other_work_is_not_counted() -> None:
    clock = clock_of(torch.device("cpu"))
    started = clock()
    time.sleep(0.5)
    assert clock() - started < 0.1
    while clock() - started < 0.2:  # work is
        pass


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no process can choose its cores here")
def test_a_machine_is_busy_if_threads_that_compute_together_wait_for_a_core() -> None:
    """Two threads on one core delay each other as other work would. A single thread's clock counts no waiting."""
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "import torch; from lipt.forecast.speed import is_busy; print(is_busy(torch.device('cpu')))"
    )
    found = [run_python("-c", program, OMP_NUM_THREADS=threads) for threads in ("1", "2")]
    assert found == ["False\n", "True\n"]


def test_processes_share_the_batches_of_a_training_and_the_parts_of_a_stage() -> None:
    one, four = (
        {stage.stage: stage for stage in predicted(1, 1_000_000, changes={"processes": count})[0]} for count in (1, 4)
    )
    for stage in ("initialise", "train"):
        in_four, in_one = (each[stage].wall_s - each[stage].start_s for each in (four, one))
        assert in_four < in_one / 2
        assert four[stage].gpu_hours >= 0.9 * one[stage].gpu_hours
        index = 52 * 1_000_000  # each process imports torch and holds the index; the images are in memory once
        assert four[stage].memory_bytes - one[stage].memory_bytes == pytest.approx(3 * (0.9e9 + index), rel=0.02)
    for stage in ("pretrain", "score"):
        rounds = math.ceil(one[stage].parts / 4) / one[stage].parts
        assert four[stage].wall_s - four[stage].start_s < (rounds + 0.1) * (one[stage].wall_s - one[stage].start_s)
        assert four[stage].gpu_hours == pytest.approx(one[stage].gpu_hours, rel=0.1)
        assert four[stage].memory_bytes == 4 * one[stage].memory_bytes
        assert four[stage].read["model"] == one[stage].read["model"]  # fetched once for all
    assert all(four[stage] == one[stage] for stage in ("dispatch", "merge", "select", "evaluate"))


def test_a_pod_has_no_more_processes_than_parts() -> None:
    changes = {"processes": 8, "dispatch": {"jigsaws": 16}}
    on = {
        nodes: {stage.stage: stage for stage in predicted(nodes, 1_000_000, changes=changes)[0]} for nodes in (1, 4, 16)
    }
    assert on[4]["pretrain"].memory_bytes == 4 * on[16]["pretrain"].memory_bytes
    assert on[1]["pretrain"].memory_bytes == 8 * on[16]["pretrain"].memory_bytes


def test_pods_that_share_a_training_gain_as_far_as_their_network_allows() -> None:
    def on(
        count: int, gpu_tflops: float = 0.01, engine: str = "argo", **changes: Any
    ) -> tuple[dict[str, Forecast], str]:
        chosen = {"train": {"nodes": count, "epochs": 20}} | changes
        stages, found = predicted(9, 1_000_000, changes=chosen, engine=engine, gpu_tflops=gpu_tflops, pod_start_s=1)
        return {stage.stage: stage for stage in stages}, "\n".join(found)

    (one, said), (eight, _) = on(1), on(8)
    assert "train.nodes shares it" in said
    for stage in ("initialise", "train"):
        assert (one[stage].pods, eight[stage].pods) == (1, 8)
        assert one[stage].wall_s / 8 < eight[stage].wall_s < one[stage].wall_s / 5
        assert eight[stage].memory_bytes == one[stage].memory_bytes
        assert eight[stage].read["data"] == 8 * one[stage].read["data"]  # each holds the images
    wide: dict[str, Any] = {"model": {"width": 64}}  # 45 MB of gradients in each step, over 10 Gbit/s
    (one_wide, _), (eight_wide, _) = on(1, 50, **wide), on(8, 50, **wide)
    assert eight_wide["initialise"].bottleneck == "network"
    assert eight_wide["initialise"].wall_s > one_wide["initialise"].wall_s
    streamed, _ = on(8, data={"resident_mb": 0})
    assert streamed["initialise"].read["data"] == one["initialise"].read["data"]
    too_many, said = on(10)
    assert "train.nodes: 10 pods need 10 nodes, there are 9: one trains alone" in said
    assert too_many["train"].wall_s == one["train"].wall_s
    _, said = on(9, engine="kubeflow")
    assert "train.nodes: 9 pods and the box that waits for them need 10 nodes, there are 9" in said


@pytest.mark.parametrize(("nodes", "seconds"), [(2, 8), (4, 12)])
def test_each_of_n_pods_sends_and_receives_its_gradients_but_for_an_nth_part(nodes: int, seconds: float) -> None:
    """Ten times 1 GB in both directions over 10 Gbit/s take 16 s."""
    config = override(parse_config(BIG), {"train": {"nodes": nodes}})
    works = [Work(stage="train", steps=10, gradient_bytes=1e9, member_bytes=1)]
    (stage,) = forecast(works, Machine(engine="argo", nodes=nodes, node_gbps=10), config, 32)
    assert stage.wall_s - stage.start_s == pytest.approx(seconds)


def test_groups_divide_time_and_memory_of_a_merge() -> None:
    """Linear in n in one pod; with the square root in groups, their merge and the last one are alike."""
    changes = {"dispatch": {"jigsaws": 1024}, "data": {"validation_fraction": 0.001}}  # of the search
    whole, grouped = (
        {stage.stage: stage for stage in predicted(100, 1_000_000, changes=changes | more)[0]}
        for more in ({}, {"merge": {"groups": 32}})
    )
    assert "group" not in whole
    assert (grouped["group"].pods, grouped["group"].parts) == (32, 32)
    assert grouped["group"].memory_bytes == grouped["merge"].memory_bytes < whole["merge"].memory_bytes
    assert grouped["merge"].flops == grouped["group"].flops / 32 < whole["merge"].flops / 20
    assert grouped["group"].flops == pytest.approx(whole["merge"].flops, rel=0.1)
    delta = whole["pretrain"].written["model"] / 1024
    assert whole["merge"].memory_bytes - grouped["merge"].memory_bytes == pytest.approx((1024 - 32) * delta)
    few = predicted(10, 1_000_000, changes=changes | {"merge": {"groups": 32}}, gpu_tflops=1e-3)[0]
    many = predicted(32, 1_000_000, changes=changes | {"merge": {"groups": 32}}, gpu_tflops=1e-3)[0]
    rounds = {stage.stage: stage.wall_s for stage in few}["group"] / {stage.stage: stage.wall_s for stage in many}[
        "group"
    ]
    assert rounds == pytest.approx(4, rel=0.2)  # 10 pods for 32 groups


def test_what_breaks_is_said() -> None:
    assert not [text for text in predicted(2, 1_000_000)[1] if "memory" in text or "block" in text]
    stages, found = predicted(8, 2_000_000_000)
    text = "\n".join(found)
    assert "select needs" in text
    assert "score blocks exceeds one argument" in text
    assert {stage.stage: stage.bottleneck for stage in stages}["select"] == "memory"
    assert "dispatch will refuse" in "\n".join(predicted(2, 10_000)[1])
    assert "merge.groups merges them" in "\n".join(predicted(64, 1_000_000, gpu_tflops=0.01)[1])
    assert "merge.groups" not in "\n".join(
        predicted(64, 1_000_000, gpu_tflops=0.01, changes={"merge": {"groups": 8}})[1]
    )
    larger = predicted(8, 2_000_000_000, changes={"score": {"block_images": 10_000_000}})[1]
    assert not [text for text in larger if "score block" in text and "memory" not in text]


def test_memory_of_select_is_one_block_unless_candidates_are_compared() -> None:
    def select_bytes(images: int, algorithm: str, **options: Any) -> float:
        changes = {"model": {"width": 16}, "select": {"algorithm": algorithm, **options}}
        return next(s for s in predicted(1, images, changes=changes)[0] if s.stage == "select").memory_bytes

    rows = 10**6 * (10 + 128) * 4  # fp32: 10 classes, 128 features; more than name, label and score of a sample
    for algorithm in ("ccs", "el2n", "moderate"):
        grown = select_bytes(2 * 10**6, algorithm) - select_bytes(10**6, algorithm)
        assert grown < 0.8 * rows, algorithm
        assert grown == pytest.approx(select_bytes(2 * 10**6, "stratified") - select_bytes(10**6, "stratified"))
    grown = select_bytes(2 * 10**6, "gradmatch") - select_bytes(10**6, "gradmatch")
    assert grown > rows
    copies = select_bytes(10**6, "gradmatch") - select_bytes(10**6, "herding")
    assert copies > 0.35 * rows  # gradients of a class in float64 and float32: 4 copies of a tenth
    assert select_bytes(10**6, "gradmatch", balanced=False) > select_bytes(10**6, "gradmatch") + 0.8 * rows


def test_memory_of_select_counts_the_distances_that_medoids_keep() -> None:
    def extra(algorithm: str, **options: Any) -> float:
        """Bytes more than the same selection from as many candidates without distances."""
        per_class = {"model": {"width": 16}, "select": {"balanced": True}}
        found = []
        for name, own in ((algorithm, options), ("herding", {})):
            changes = {**per_class, "select": {"algorithm": name, "options": own}}
            found.append(next(s for s in predicted(1, 100_000, changes=changes)[0] if s.stage == "select").memory_bytes)
        return found[0] - found[1]

    distances = 4 * 9000**2  # 90,000 candidates of 10 classes
    for algorithm in ("craig", "facility_location"):
        assert distances < extra(algorithm) < 1.1 * distances
        assert extra(algorithm, greedy="sparse") < 0.5 * distances


@pytest.mark.parametrize("options", [{"n": 3}, {"neighbours": "x", "greedy": "sparse"}])
def test_a_wrong_option_of_medoids_is_an_error_that_names_it(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"option '?{next(iter(options))}"):
        predicted(1, 1000, changes={"select": {"algorithm": "craig", "options": options}})


def test_without_a_cluster_nothing_is_spread() -> None:
    with pytest.raises(UsageError, match="nodes 4"):
        Machine(nodes=4)


# Calibration


def made(
    flops: Sequence[float], steps: float, parts: int, seconds: Sequence[float]
) -> list[tuple[list[Work], dict[str, list[Cost]]]]:
    return [
        (
            [Work(stage="pretrain", parts=parts, flops=size, steps=steps, once={"model": 100})],
            {"pretrain": [Cost(wall_s=wall, flops=int(size)) for _ in range(parts)]},
        )
        for size, wall in zip(flops, seconds, strict=True)
    ]


def test_two_sizes_tell_steps_from_flops() -> None:
    # 0.02 s a step and 10 GFLOP/s
    fit = calibrate(made([1e9, 2e10], 50, 3, [1.1, 3.0]), Machine())["pretrain"]
    assert (fit.per_step, fit.per_flop) == pytest.approx((0.02, 1e-10), rel=1e-6)
    assert fit.first_s == 0
    assert fit.done == 1


def test_one_size_gives_seconds_per_flop_and_the_first_part() -> None:
    runs = made([1e9], 50, 4, [2.0])
    parts = runs[0][1]["pretrain"]
    for part, wall_s in zip(parts, [9.0, 2.0, 3.0, 4.0], strict=True):
        part.wall_s = wall_s
    assert calibrate(runs, Machine())["pretrain"] == Fit(per_flop=3.5e-9)  # each in a pod of its own: one was slow
    parts[0].read["model"] = 100  # all in one process: the first warms up
    assert calibrate(runs, Machine())["pretrain"] == Fit(per_flop=3e-9, first_s=6.0)


def test_a_stage_that_computed_nothing_tells_no_speed() -> None:
    """Such as theta_* after 0 epochs."""
    idle = [Work(stage="initialise")], {"initialise": [Cost(wall_s=0.5)]}
    busy = [Work(stage="initialise", flops=1e12, steps=10)], {"initialise": [Cost(wall_s=10, flops=10**12)]}
    assert calibrate([idle], Machine()) == {}
    assert calibrate([idle, busy], Machine()) == calibrate([busy, idle], Machine()) == calibrate([busy], Machine())


@pytest.mark.parametrize(("engine", "nodes", "processes"), [("local", 1, 1), ("local", 1, 4), ("argo", 2, 4)])
def test_a_training_that_processes_shared_is_foreseen_from_itself(engine: Engine, nodes: int, processes: int) -> None:
    """The same for one process: it takes as many times as long."""
    config = override(parse_config(BIG), {"processes": processes, "train": {"nodes": nodes}})
    work = Work(stage="train", flops=1e12, steps=100, member_bytes=1)
    cost = Cost(wall_s=30, flops=10**12, machine=machines(["NVIDIA H100, 8 CPU threads"] * nodes * processes))
    model = Artifact(stage="train", key="a", inputs=(), settings={}, files={}, summary={})
    (row,) = ledger_section([], [model], {model.ref: cost}, [])  # `--calibrate` reads reports
    machine = Machine(engine=engine, nodes=nodes)
    machine = replace(machine, fits=calibrate([([work], {"train": [row.cost]})], machine))
    for planned, wall_s in ((config, 30), (override(config, {"processes": 1}), 30 * processes)):
        (stage,) = forecast([work], machine, planned, 32)
        assert stage.wall_s - stage.start_s == pytest.approx(wall_s)


def test_boxes_without_work_start_too() -> None:
    stages, _ = predicted(1, 100_000, changes={"select": {"algorithm": "random"}}, pod_start_s=7)
    assert [stage.stage for stage in stages] == ["ingest", "select", "train", "evaluate"]
    assert sum(stage.start_s for stage in stages) == 5 * (10 + 7)


def test_a_run_is_foreseen_from_itself(ran: Context) -> None:
    data, costs = DataSize.stored(ran), measured(ran)
    works = work_of(ran, data)
    fits = calibrate([(works, costs)], Machine())
    assert fits["group"] == fits["merge"]  # to plan groups for
    for stage in forecast(works, Machine(fits=fits), ran.config, data.side):
        rows = costs[stage.stage]
        if len(rows) < 3:  # of more parts the median counts
            assert stage.wall_s == pytest.approx(sum(cost.wall_s for cost in rows), rel=0.05, abs=0.05), stage.stage
        assert stage.flops == pytest.approx(sum(cost.flops for cost in rows), rel=1e-9), stage.stage
