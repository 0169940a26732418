"""A sweep as pipeline runs: what is started, what is found, and that the results are those of one machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lipt.adapters.cluster.api import MissingError
from lipt.adapters.cluster.engine import BoxState, RunState
from lipt.adapters.store import Store, open_store
from lipt.config import Config, Sweep, make_sweep, parse_config
from lipt.errors import RunError, UsageError
from lipt.flow.compare import run_with_baseline
from lipt.flow.sweep import run_sweep
from lipt.flow.variants import variants
from lipt.pods.spec import PARAMETERS, configure, parameters_of
from lipt.pods.sweep import SweepRuns
from lipt.pods.sweep_cells import Cell, Cells
from lipt.report.sweep import Result
from lipt.runtime.context import Context
from tests.tiny import TINY, digests

#: The settings that the pipeline `lipt` has as parameters.
NAMES = [name for name in PARAMETERS if name not in ("seeds", "chunk_mb", "shuffle_seed")]


class Engine:
    """Runs a configuration in this process, when somebody looks at it for the second time."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        """Algorithm whose runs fail."""
        self.started: list[Config] = []
        self.looks: dict[str, int] = {}
        self.most = 0
        """Most runs in progress at a time."""

    def submit(self, name: str, parameters: Mapping[str, Any]) -> str:
        settings = dict(parameters)
        self.started.append(configure(settings.pop("config"), **settings))
        run = f"{name}-{len(self.started)}"
        self.looks[run] = 0
        self.most = max(self.most, sum(looks < 2 for looks in self.looks.values()))
        return run

    def state(self, run: str) -> RunState:
        if run not in self.looks:
            raise MissingError(f"no run {run}", "check the handle")
        self.looks[run] += 1
        config = self.started[int(run.rpartition("-")[2]) - 1]
        if self.looks[run] < 2:
            return RunState(phase="Running", parameters={})
        if config.select.algorithm == self.fails:
            box = BoxState(name="select", phase="Failed", message="out of luck")
            return RunState(phase="Failed", parameters={}, boxes=[box])
        if self.looks[run] == 2:
            run_with_baseline(Context.of(config))
        return RunState(phase="Succeeded", parameters={})


def sweep(folder: Path) -> Sweep:
    """Two algorithms on the same theta_p, under two seeds."""
    base = TINY | {"workspace": str(folder), "compare": {"seeds": [0, 1]}, "train": {"steps": 3, "batch_size": 32}}
    return make_sweep(base, {"select.algorithm": ["ccs", "grand"]}, origin="test", places={})


def runs(folder: Path, engine: Engine, *, at_once: int = 3, said: list[str] | None = None) -> SweepRuns:
    @contextmanager
    def opened() -> Iterator[Store]:
        yield open_store(str(folder))

    return SweepRuns(
        sweep(folder).points,
        client=engine,
        place="argo/vision",
        parameters=lambda config: parameters_of(config, NAMES),
        opened=opened,
        say=(said if said is not None else []).append,
        at_once=at_once,
    )


@pytest.fixture(scope="module", autouse=True)
def without_waiting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lipt.pods.sweep.POLL_S", 0.0)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Engine, list[Result], list[list[Result]]]:
    folder = tmp_path_factory.mktemp("runs")
    engine, saved = Engine(), list[list[Result]]()
    results = runs(folder, engine).run(lambda found: saved.append(list(found)))
    return folder, engine, results, saved


def test_equal_runs_are_started_once_and_only_some_at_a_time(made: tuple[Path, Engine, Any, Any]) -> None:
    _, engine, _, _ = made
    rows = [(config.select.algorithm, config.select.fraction, config.seed) for config in engine.started]
    for seed in (0, 1):
        assert rows.count(("ccs", 0.1, seed)) == rows.count(("grand", 0.1, seed)) == 1
        assert rows.count(("random", 1.0, seed)) == 1  # RS2
        longer = {c.train.steps for c in engine.started if (c.select.algorithm, c.seed) == ("stratified", seed)} - {3}
        assert rows.count(("stratified", 0.1, seed)) == 1 + len(longer)
        assert 1 <= len(longer) <= 2  # choices of equal cost share it
        assert min(steps or 0 for steps in longer) > 3
    assert engine.most == 3


def test_results_and_artifacts_are_those_of_one_machine(made: tuple[Path, Engine, Any, Any]) -> None:
    folder, _, results, saved = made
    assert saved[-1] == results
    points = sweep(folder).points
    ctx = Context.of(sweep(folder).base)
    before = digests(ctx.workspace)
    local = run_sweep(ctx, points, lambda _: None)
    assert digests(ctx.workspace) == before  # it finds all artifacts
    assert [each.point for each in results] == [each.point for each in local]
    for ours, theirs in zip(results, local, strict=True):
        for mine, other in zip(ours.rows, theirs.rows, strict=True):
            both = [row.model_dump(exclude={"stage_wall_s", "reason"}) for row in (mine, other)]
            for name, value in both[0].items():
                assert value == (pytest.approx(both[1][name]) if isinstance(value, float) else both[1][name]), name


def test_a_finished_sweep_starts_nothing(made: tuple[Path, Engine, Any, Any]) -> None:
    folder, _, results, _ = made
    engine = Engine()
    again = runs(folder, engine)
    with again.opened() as store:
        again.look(store)
    total, finished = again.cells.counts()
    assert total == finished
    assert again.run(lambda _: None) == results
    assert engine.started == []


def test_reports_of_another_version_do_not_count(
    made: tuple[Path, Engine, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lipt.pods.sweep.__version__", "0.0.9")
    again = runs(made[0], Engine())
    with again.opened() as store:
        again.look(store)
    assert again.cells.counts()[1] == 0


def test_failed_runs_are_named_and_repeated_alone(tmp_path: Path) -> None:
    said: list[str] = []
    engine, saved = Engine(fails="grand"), list[list[Result]]()
    with pytest.raises(RunError) as caught:
        runs(tmp_path, engine, said=said).run(lambda found: saved.append(list(found)))
    assert "(select.algorithm=grand, lipt, seed 0): select: out of luck" in caught.value.message
    assert re.search(r"2 of 1\d runs failed: argo/vision/tiny-\d", caught.value.message)
    assert [result.point for result in saved[-1]] == [{"select.algorithm": "ccs"}]
    first = len(engine.started)
    engine.fails = ""
    results = runs(tmp_path, engine).run(lambda _: None)
    assert len(results) == 2
    assert {config.select.algorithm for config in engine.started[first:]} <= {"grand", "stratified"}
    assert [config.select.algorithm for config in engine.started[first:]].count("grand") == 2


def test_a_run_by_another_version_leaves_no_report(
    made: tuple[Path, Engine, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image of the pipeline has another version of lipt than this machine."""
    monkeypatch.setattr("lipt.pods.sweep.__version__", "0.0.9")
    monkeypatch.setattr("tests.pipeline.test_sweep_runs.run_with_baseline", lambda _ctx: None)  # its report is there
    with pytest.raises(RunError, match=r"but the workspace has no report of it by lipt 0\.0\.9"):
        runs(made[0], Engine(), at_once=20).run(lambda _: None)


def test_a_point_that_cannot_run_is_named_before_the_first_run(tmp_path: Path) -> None:
    def refuse(config: Config) -> dict[str, Any]:
        if config.select.algorithm == "grand":
            raise UsageError("too little memory", "-p memory=8Gi")
        return {}

    engine = Engine()
    with pytest.raises(UsageError, match=r"^select.algorithm=grand, lipt, seed 0: too little memory"):
        SweepRuns(
            sweep(tmp_path).points,
            client=engine,
            place="argo/vision",
            parameters=refuse,
            opened=lambda: pytest.fail("not opened"),
            say=print,
            at_once=1,
        )
    assert engine.started == []


@pytest.mark.parametrize(
    ("named", "said"), [(["lipt", "stratifed"], "no variant 'stratifed'"), (["stratified"], "lipt is missing")]
)
def test_rows_that_do_not_exist_are_refused_before_the_first_run(tmp_path: Path, named: list[str], said: str) -> None:
    base = TINY | {"workspace": str(tmp_path), "compare": {"seeds": [0], "variants": named}}
    points = make_sweep(base, {"select.fraction": [0.1, 0.2]}, origin="test", places={}).points
    with pytest.raises(UsageError, match=said):
        Cells(points, lambda _config: pytest.fail("no run is prepared"))


def test_rows_without_a_model_do_not_depend_on_its_settings(tmp_path: Path) -> None:
    base = TINY | {"workspace": str(tmp_path), "profile": "paper", "compare": {"seeds": [0]}}
    points = make_sweep(base, {"dispatch.jigsaws": [2, 3], "score.runs": [1, 2]}, origin="test", places={}).points
    keys: dict[str, set[str]] = {}
    for name in ("stratified", "rs2", "lipt"):
        for point in points:
            config = Cell(point=point, variant=variants(point.config)[name], seed=0).config()
            assert parse_config(config.model_dump(mode="json")) == config
            parameters = parameters_of(config, NAMES)
            assert configure(parameters.pop("config"), **parameters) == config
            keys.setdefault(name, set()).add(config.model_dump_json())
    assert {name: len(found) for name, found in keys.items()} == {"stratified": 1, "rs2": 1, "lipt": 4}
