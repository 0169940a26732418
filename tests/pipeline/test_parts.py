"""Jigsaws, groups, blocks of scores and models on two processes: the artifacts of one, each told once."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from lipt import errors
from lipt.adapters.cluster import job_status
from lipt.adapters.cluster.job_manifest import Pods
from lipt.adapters.store import StoreError
from lipt.config import override, parse_config
from lipt.errors import RunError, UnexpectedError
from lipt.flow.dag import merge_jigsaws, prepare, score_and_select, train_jigsaws
from lipt.flow.prepared import Prepared
from lipt.forecast.machine import Machine
from lipt.forecast.time import forecast
from lipt.forecast.work import Work
from lipt.pods.boxes import dispatch_box
from lipt.pods.workers import Loss, count_pods, open_run, raise_bug, share_of, worker
from lipt.progress import Reporter
from lipt.runtime.context import Context
from lipt.runtime.processes import parent, parts
from lipt.stages.initialise import initialise
from tests.pipeline import rank_work
from tests.tiny import digests, tiny_context

CHANGES = {"dispatch": {"jigsaws": 4}, "merge": {"groups": 2}, "score": {"block_images": 400}}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with theta_* and shards."""
    folder = tmp_path_factory.mktemp("parts") / "started"
    prepare(tiny_context(folder, CHANGES))
    return folder


def on(processes: int, started: Path, folder: Path) -> tuple[Context, Prepared, StringIO]:
    """That workspace, copied, and what is reported."""
    shutil.copytree(started, folder)
    reported = StringIO()
    ctx = replace(tiny_context(folder, CHANGES | {"processes": processes}), reporter=Reporter(reported, every_s=3600))
    return ctx, prepare(replace(ctx, reporter=Reporter(StringIO()))), reported


def make_all(ctx: Context, prepared: Prepared) -> None:
    jigsaws, lost = train_jigsaws(ctx, prepared, range(4))
    assert not lost
    score_and_select(ctx, prepared, merge_jigsaws(ctx, prepared, list(jigsaws.values())))


def test_two_processes_make_the_parts_of_one(started: Path, tmp_path: Path) -> None:
    made, fetched = [], []
    for count in (1, 2):
        ctx, prepared, reported = on(count, started, tmp_path / str(count))
        make_all(ctx, prepared)
        made.append(digests(ctx.workspace))
        artifacts = [ctx.workspace.get(key.removesuffix("/artifact.json")) for key in made[-1]]
        fetched.append(
            {
                stage: sum(ctx.workspace.cost(found).read["model"] for found in artifacts if found.stage == stage)
                for stage in ("pretrain", "score")
            }
        )
        lines = sorted(line.split("  ")[0].strip() for line in reported.getvalue().splitlines())
        assert lines == sorted(
            [
                *(f"pretrain[{index}]" for index in range(4)),
                "group[0]",
                "group[1]",
                "merge",
                *(f"score {start:,}" for start in (0, 400, 800, 1200)),
                "select ccs",
            ]
        )
        assert "up to date" not in reported.getvalue()
        started_with = ("chunks", "ingest", "initialise", "dispatch")
        assert {ref.partition("/")[0] for ref in ctx.workspace.reused} <= set(started_with)
    assert made[0] == made[1]
    assert fetched[0] == fetched[1]  # theta_* and theta_p once, not by each process


def test_what_is_there_is_not_made_again(started: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, prepared, _ = on(1, started, tmp_path / "here")
    jigsaws, _ = train_jigsaws(ctx, prepared, [0, 1, 2])
    reporter = Reporter(reported := StringIO(), every_s=3600)
    ctx = replace(ctx, config=ctx.config.model_copy(update={"processes": 2}), reporter=reporter)
    launched: list[str] = []
    monkeypatch.setattr(parts, "launch", lambda _ctx, label, *_rest: launched.append(label))
    again, lost = train_jigsaws(ctx, prepared, range(4))  # one is missing: it is made here
    assert not launched
    assert not lost
    assert list(again) == [0, 1, 2, 3]
    assert {index: again[index] for index in range(3)} == jigsaws
    assert reported.getvalue().startswith("pretrain[0-2]       up to date\n")


def test_a_part_that_fails_leaves_the_others(started: Path, tmp_path: Path) -> None:
    ctx, prepared, _ = on(2, started, tmp_path / "damaged")
    shard = tmp_path / "damaged" / prepared.swarm[2].ref / "shard-00001.json"
    shard.write_bytes(shard.read_bytes()[:-1])
    jigsaws, lost = train_jigsaws(ctx, prepared, range(4))
    assert list(jigsaws) == [0, 2, 3]
    assert list(lost) == [1]
    assert "shard-00001.json is damaged" in lost[1].message
    assert lost[1].remedy == "run again: dispatch is repeated"


def test_only_memory_and_devices_lose_a_part(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path)
    made, lost = parts.make_parts(ctx, rank_work.immense, dict.fromkeys(range(3), ()))
    assert (list(made), list(lost)) == ([0, 2], [1])
    assert "allocate memory" in lost[1].message
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        parts.make_parts(ctx, rank_work.misshapen, dict.fromkeys(range(3), ()))


def test_a_full_disk_ends_the_run_at_the_first_part(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path)
    with pytest.raises(StoreError, match=r"^file:///full: No space left on device\n  -> free space"):
        parts.make_parts(ctx, rank_work.unwritable, dict.fromkeys(range(4), ()))
    assert rank_work.unwritable(ctx, index=3).find() is None


def test_a_killed_process_loses_the_part_that_it_was_at(tmp_path: Path) -> None:
    """The first process makes 0, 2 and 4, the second dies at 1, before 3."""
    ctx = tiny_context(tmp_path, {"processes": 2})
    made, lost = parts.make_parts(ctx, rank_work.fatal, dict.fromkeys(range(5), ()))
    assert (list(made), list(lost)) == ([0, 2, 3, 4], [1])
    assert lost[1].message == "fatal, 5 parts: process 1 of 2 was killed (SIGKILL)"
    assert not ctx.workspace.reused
    assert not ctx.reporter.running
    tries = [key.partition("/")[2].partition("-")[0] for key in ctx.workspace.store.list("tries/")]
    assert (tries.count("0"), tries.count("1")) == (1, 1)


def test_a_process_that_hangs_in_a_training_loses_only_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "STALLED_S", 6.0)
    ctx = tiny_context(tmp_path, {"processes": 2})
    made, lost = parts.make_parts(ctx, rank_work.hanging, dict.fromkeys(range(4), ()))
    assert (list(made), list(lost)) == ([0, 2, 3], [1])
    assert lost[1].message == "hanging, 4 parts: process 1 of 2 hung: no step of the training for 0.1 minutes"


def test_a_bug_in_another_process_is_raised_with_its_traceback(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, {"processes": 2})
    with pytest.raises(UnexpectedError, match="cannot be multiplied") as caught:
        parts.make_parts(ctx, rank_work.misshapen, dict.fromkeys(range(3), ()))
    assert "torch.zeros(2, 3) @" in caught.value.trace
    assert not isinstance(caught.value, RunError)  # which would be one more loss


def test_a_bug_in_a_worker_pod_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    monkeypatch.setattr(errors, "_TERMINATION_LOG", str(log))

    def lost() -> dict[int, str]:
        """The reason that the box learns: the kubelet takes the end of the file."""
        ended = {"exitCode": 1, "reason": "Error", "message": log.read_bytes()[-4096:].decode()}
        annotations = {"batch.kubernetes.io/job-completion-index": "1"}
        status = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}
        reasons = {0: "evicted by its node"}
        job_status.note({"metadata": {"annotations": annotations}, "status": status}, reasons)
        return reasons

    errors.say_why(RunError("pretrain[1]: out of memory"))
    raise_bug("pretrain", lost())
    errors.say_why(RunError("pretrain[1]: another pod has said lipt: unexpected KeyError: 3"))
    raise_bug("pretrain", lost())
    errors.say_why(ValueError("too many\nvalues"))
    with pytest.raises(UnexpectedError, match=r"^pretrain, worker pod 1: ValueError: too many values"):
        raise_bug("pretrain", lost())
    errors.say_why(ValueError("\udcff" + 4000 * "図"))  # in bytes it is longer than the kubelet takes
    with pytest.raises(UnexpectedError, match=r"^pretrain, worker pod 1: ValueError: \\udcff図"):
        raise_bug("pretrain", lost())


@pytest.mark.parametrize(
    ("gpus", "nodes", "largest", "pods"), [(0, 0, 1, 20), (1, 0, 1, 20), (8, 0, 7, 3), (8, 5, 4, 5), (8, 64, 1, 20)]
)
def test_pods_share_parts_by_their_gpus_unless_told_how_many_there_are(
    gpus: int, nodes: int, largest: int, pods: int
) -> None:
    count = count_pods(Pods(image="lipt", gpus=gpus, nodes=nodes), 20)
    shares = [share_of(range(20), index, count) for index in range(count)]
    assert len(shares) == pods
    assert max(map(len, shares)) == largest
    assert sorted(item for share in shares for item in share) == list(range(20))


TRAJECTORY = {
    "score": {"model": "trajectory", "runs": 3, "epochs": 2},
    "select": {"algorithm": "dual", "race": {"contestants": [{"algorithm": "ccs"}], "rounds": [0.2]}},
}


def test_two_processes_train_the_models_and_the_race_of_one(tmp_path: Path) -> None:
    """Each training is on one process, so that the weights are the same bits."""
    made = []
    for count in (1, 2):
        ctx = tiny_context(tmp_path / str(count), TRAJECTORY | {"processes": count})
        score_and_select(ctx, prepare(ctx), None)
        made.append(digests(ctx.workspace))
    assert sum(key.startswith("initialise/") for key in made[0]) == 3
    assert sum(key.startswith("race/") for key in made[0]) == 3
    assert made[0] == made[1]


def test_worker_pods_train_the_models_and_the_box_those_that_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_context(tmp_path, TRAJECTORY).config
    done: list[list[int]] = []

    def spread(_spec: Any, where: str, ctx: Context, stage: str, items: list[int], **_more: Any) -> dict[int, Loss]:
        done.append(list(items))
        worker(where, stage, items[:2])
        assert initialise(ctx, open_run(where)[2].dataset, index=1).find() is not None
        return dict.fromkeys(items[2:], Loss("its node left", None))

    monkeypatch.setattr("lipt.pods.boxes.spread", spread)
    _, _, prepared = open_run(dispatch_box(config, engine="argo", image="lipt:0", cpu="1", memory="1Gi"))
    assert done == [[0, 1, 2]]
    assert [artifact.settings["run"] for artifact in prepared.initial] == [0, 1, 2]
    assert "model 2 was lost, so the dispatch box trains it: its node left" in capsys.readouterr().err
    address = dispatch_box(config, engine="argo", image="lipt:0", cpu="1", memory="1Gi", nodes=1)
    assert len(done) == 1
    assert "initialise[0-2]     up to date" in capsys.readouterr().err
    worker(address, "initialise", [0, 1])
    assert "initialise[0-1]     up to date" in capsys.readouterr().err


@pytest.mark.parametrize(("processes", "nodes", "models"), [(1, 1, 3), (2, 1, 3), (4, 1, 3), (2, 3, 3), (1, 3, 1)])
def test_the_forecast_of_models_counts_each_training_once(processes: int, nodes: int, models: int) -> None:
    """Their GPU time does not depend on who trains them."""
    config = override(parse_config({"data": {"source": "digits"}}), {"processes": processes})
    work = Work(stage="initialise", parts=models, flops=6e12, member_bytes=1)
    (found,) = forecast([work], Machine(engine="argo", nodes=nodes, gpu_tflops=1, latency_ms=1e-9), config, 32)
    assert found.gpu_hours * 3600 == pytest.approx(models * 6, rel=1e-6)
    side_by_side = min(nodes, models) * (processes if math.ceil(models / min(nodes, models)) >= processes else 1)
    alone = 6 / (processes if math.ceil(models / min(nodes, models)) < processes else 1)
    assert found.wall_s - found.start_s == pytest.approx(math.ceil(models / side_by_side) * alone, rel=1e-6)
