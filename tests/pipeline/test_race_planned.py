"""The race of selections before it runs: what is refused, and what is predicted."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from lipt.config import Point
from lipt.errors import UsageError
from lipt.flow.checks.validation import check_from_afar, check_run
from lipt.flow.compare import run_with_baseline
from lipt.flow.dag import run
from lipt.flow.sweep import missing_stages
from lipt.forecast.calibration import measured
from lipt.forecast.machine import Machine
from lipt.forecast.sizes import DataSize
from lipt.forecast.speed import rates_here
from lipt.forecast.stages import work_of
from lipt.forecast.time import forecast
from lipt.progress import Reporter
from lipt.report.html_page import render
from lipt.runtime.context import Context
from tests.pipeline.test_race import SCORE, context
from tests.tiny import tiny_context


@pytest.mark.parametrize("start", ["fresh", "continue"])
def test_the_forecast_of_a_race(tmp_path: Path, start: str) -> None:
    ctx = context(
        tmp_path, {"contestants": [{"algorithm": "dual"}], "rounds": [0.25]}, train={"epochs": 8, "start": start}
    )
    document = run_with_baseline(ctx)
    assert document is not None
    works = {work.stage: work for work in work_of(ctx, DataSize.stored(ctx))}
    costs = measured(ctx)
    assert works["race"].parts == len(costs["race"]) == 3
    for cost in costs["race"]:
        assert cost.flops == pytest.approx(works["race"].flops, rel=0.02)
        assert cost.read["data"] == pytest.approx(works["race"].read["data"], rel=0.05)
        once = works["race"].once["model"]  # an earlier stage may have fetched it
        assert cost.read["model"] == pytest.approx(works["race"].read["model"], rel=0.01, abs=once)
    page = render(document)
    assert "<h2>The race</h2>" in page
    assert sum(row.won for row in document.race) == 1
    assert document.rows[0].reason == "it won the race of selections, on the validation images"
    assert [row.label for row in document.race] == ["Class-balanced random", "ccs", "dual"]
    assert page.count(">won<") == 1


def test_the_forecast_of_a_race_counts_none_of_the_baseline(tmp_path: Path) -> None:
    """Beside a training that selects again stands RS2, which recalibrates BatchNorm on more images than are kept."""
    select = {"algorithm": "el2n", "fraction": 0.2, "race": {"contestants": [{"algorithm": "grand"}], "rounds": [0.25]}}
    ctx = tiny_context(tmp_path, {"select": select, "train": {"epochs": 8, "reselect_every": 4, "raptr": {}}})
    run_with_baseline(ctx)
    works = {work.stage: work for work in work_of(ctx, DataSize.stored(ctx))}
    done = measured(ctx)["race"]
    assert sum(cost.flops for cost in done) == pytest.approx(works["race"].parts * works["race"].flops, rel=0.1)


@pytest.mark.parametrize("proxy", [None, {"width": 2}])
def test_the_forecast_predicts_a_race_as_fast_as_the_main_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: dict[str, Any] | None
) -> None:
    monkeypatch.setattr("lipt.forecast.speed._LASTS_S", 0.01)
    ctx = context(tmp_path, score={**SCORE, "proxy": proxy}, data={"image_size": 8})
    data = DataSize.described(ctx.config, images=1500, image_kb=1, classes=10)
    works = work_of(ctx, data)
    rates, setups = rates_here(ctx, data, [work.stage for work in works])
    store = {"latency_ms": 0, "store_gbps": 1e9, "node_gbps": 1e9}
    machine = Machine(rates=rates, decode_s={"crop": 0, "whole": 0}, **store)
    predicted = {stage.stage: stage for stage in forecast(works, machine, ctx.config, data.side)}
    work = {work.stage: work for work in works}
    assert rates["race"] == rates["train"] != machine.gpu_tflops
    assert setups["race"].part_s == setups["train"].part_s > 0
    per_flop = {name: predicted[name].wall_s / work[name].parts / work[name].flops for name in ("race", "train")}
    assert per_flop["race"] == pytest.approx(per_flop["train"], rel=1e-3)


@pytest.mark.parametrize(
    ("race", "message"),
    [
        ({"contestants": [{"algorithm": "dul"}]}, r"select.race.contestants\[0\].algorithm: no algorithm 'dul'"),
        ({"contestants": [{"algorithm": "dual", "options": {"windw": 2}}]}, "has no option 'windw'"),
        ({"rounds": [0.5, 0.2]}, "rounds must ascend"),
        ({"rounds": [1.0]}, "less than 1"),
        ({"contestants": [{"algorithm": "scores"}]}, "own scores are missing"),
    ],
)
def test_a_wrong_race_is_refused_before_anything_runs(tmp_path: Path, race: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_run(context(tmp_path, race))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("algorithm", ["auto", "stratified"])
def test_a_race_of_one_is_refused(tmp_path: Path, algorithm: str) -> None:
    """At 30 % and without a trajectory `auto` is class-balanced random, which takes part anyway."""
    alone = {"select": {"algorithm": algorithm, "fraction": 0.3, "race": {}}}
    ctx = tiny_context(tmp_path, alone)
    for check in (lambda: check_run(ctx), lambda: check_from_afar(ctx.config)):
        with pytest.raises(UsageError, match=r"select\.race: class-balanced random would race alone") as caught:
            check()
        assert "select.race.contestants" in caught.value.remedy
    assert not list(tmp_path.iterdir())
    alone["select"]["race"] = {"contestants": [{"algorithm": "auto"}]}  # the same one again
    with pytest.raises(UsageError, match="would race alone"):
        check_run(tiny_context(tmp_path, alone))
    alone["select"]["race"] = {"contestants": [{"algorithm": "herding"}]}
    check_run(tiny_context(tmp_path, alone))


def test_a_contestant_without_what_it_reads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="aum needs scores from each epoch"):
        check_run(context(tmp_path, {"contestants": [{"algorithm": "aum"}]}, score={"model": "merged"}))


def test_a_dry_run_counts_the_trainings_of_each_round(tmp_path: Path) -> None:
    shown = StringIO()
    ctx = context(tmp_path)
    planned = run(Context.of(ctx.config, Reporter(shown), dry_run=True))
    assert len(planned.race) == 5 + 3
    lines = [" ".join(line.split()) for line in shown.getvalue().splitlines()]
    assert ctx.config.select.race
    first, second = (f"{100 * share:g} %" for share in ctx.config.select.race.rounds)
    assert len([line for line in lines if line.startswith("race ") and line.endswith(f", {first} would run")]) == 5
    # Who takes part in the next round, and who wins, is not known.
    assert [line for line in lines if line.startswith("race") and second in line] == [
        f"race, {second} would run the 3 that are ahead"
    ]
    assert next(line for line in lines if line.startswith("train ")).endswith(", if it wins would run")


def test_a_sweep_counts_the_trainings_of_a_race(tmp_path: Path) -> None:
    ctx = context(tmp_path, compare={"seeds": [0], "variants": ["lipt", "stratified"]})
    missing = missing_stages(ctx, [Point(values={}, config=ctx.config)])
    stages = [each.stage for each in missing.values()]
    assert stages.count("race") == 5 + 3
    assert stages.count("score") == 1
    assert stages.count("select") == 5  # class-balanced random among them
    assert stages.count("train") == stages.count("evaluate") == 2  # of the winner, and of class-balanced random
    assert all(each.config.select.race for each in missing.values() if each.stage == "race")
