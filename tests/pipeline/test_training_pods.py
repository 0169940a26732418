"""A training on several pods: the real commands of the pods, as processes of this machine; only the Job is ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lipt import liveness
from lipt.adapters.cluster.fanout import ThisPod
from lipt.adapters.cluster.job_manifest import FIRST_POD, Pods
from lipt.adapters.cluster.job_watch import NO_ROOM
from lipt.errors import RunError
from lipt.pods import boxes, training, workers
from lipt.pods.spec import RunSpec
from lipt.runtime.artifact import Artifact
from lipt.runtime.context import Context
from lipt.stages.evaluate import evaluate
from lipt.stages.ingest import ingest
from lipt.stages.initialise import initialise
from lipt.stages.select import select
from lipt.stages.train import train
from tests.conftest import free_port
from tests.pipeline.test_processes import EXACT, TRAIN, equal, trained
from tests.tiny import tiny_context

PODS = Pods(image="lipt:1")
HERE = ThisPod(namespace="lipt", pod="box")


class Job:
    """Starts pods, and starts them again after the exit codes that a Job repeats. Kills those that fail their probe:
    it looks once it has stopped one."""

    def __init__(self, folder: Path, program: str = "from lipt.cli import main; main()") -> None:
        self.folder, self.program, self.codes = folder, program, [list[int](), list[int]()]
        self.harms: list[tuple[Callable[[], bool], signal.Signals]] = []
        """The signals that the second pod gets, one after the other, each as soon as its condition holds."""
        self.hangs, self.probed = False, time.monotonic()

    def run(self, _here: ThisPod, _pods: Pods, **job: Any) -> dict[int, str]:
        assert job["together"]
        self.address = f"127.0.0.1:{free_port()}"
        pods = [self._start(index, job["arguments"]) for index in range(job["completions"])]
        while any(pod is not None for pod in pods):
            time.sleep(0.05)
            if self.harms and self.harms[0][0]():
                _, harm = self.harms.pop(0)
                os.killpg(pods[1].pid, harm)
                self.hangs = harm == signal.SIGSTOP
            self._probe(pods)
            for index, pod in enumerate(pods):
                if pod is None or pod.poll() is None:
                    continue
                self.codes[index].append(pod.returncode)
                pods[index] = self._start(index, job["arguments"]) if pod.returncode in (3, -signal.SIGKILL) else None
                if pod.returncode in (1, 2):
                    for other in pods:
                        if other is not None:
                            os.killpg(other.pid, signal.SIGKILL)
                    return {index: self.log(index).splitlines()[-2]}
        return {}

    def _probe(self, pods: list[Any]) -> None:
        if not self.hangs or time.monotonic() < self.probed + 2:
            return
        self.probed = time.monotonic()
        for index, pod in enumerate(pods):
            if pod and subprocess.run(liveness.stalled_check(str(self.folder / f"progress-{index}"))).returncode:
                os.killpg(pod.pid, signal.SIGKILL)
                self.hangs &= index != 1

    def _start(self, index: int, arguments: list[str]) -> subprocess.Popen[bytes]:
        progress = self.folder / f"progress-{index}"
        progress.unlink(missing_ok=True)  # a new pod has a new /tmp
        pod = {"JOB_COMPLETION_INDEX": str(index), FIRST_POD: self.address, liveness.VARIABLE: str(progress)}
        with (self.folder / f"pod-{index}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", self.program, *arguments],
                env=os.environ | pod,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )

    def log(self, index: int) -> str:
        return (self.folder / f"pod-{index}.log").read_text()


def on_pods(ctx: Context, job: Job, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setattr(training, "run_job", job.run)
    monkeypatch.setattr(liveness, "STALLED_S", 45)
    config = ctx.config.model_copy(update={"train": ctx.config.train.model_copy(update={"nodes": 2})})
    return replace(ctx, config=config, pods=training._start(HERE, PODS))


def test_a_pod_that_is_killed_then_one_that_hangs_and_the_model_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that hangs is stopped, not killed: its connections stay open, and its partner waits for it."""
    changes = EXACT | {"select": {"algorithm": "random", "fraction": 0.2}, "train": TRAIN | {"epochs": 40}}
    one, two = (tiny_context(tmp_path / name, changes) for name in ("one", "two"))
    job, loaded, before = Job(tmp_path), list[int](), list[Any]()

    def stage(ctx: Context) -> Artifact:
        dataset = ingest(ctx).make()
        return train(ctx, dataset, select(ctx, dataset, ()).make()).make()

    def checkpoint() -> int:
        """When it was written; 0: there is none."""
        return max((path.stat().st_mtime_ns for path in (tmp_path / "two").glob("train/*/checkpoint")), default=0)

    def goes_on() -> bool:
        """Both have started again and made an epoch."""
        if "continues after epoch" not in job.log(0):
            loaded[:] = [checkpoint()]
            return False
        if checkpoint() == loaded[0]:
            return False
        before.extend([*map(list, job.codes), job.log(0).count("continues after epoch")])
        return True

    job.harms = [(lambda: checkpoint() > 0, signal.SIGKILL), (goes_on, signal.SIGSTOP)]
    straight, killed = stage(one), stage(on_pods(two, job, monkeypatch))
    assert before == [[3], [-signal.SIGKILL], 1], job.log(0) + job.log(1)
    assert "lipt: pod 0 of 2: another pod of this training was lost" in job.log(0)
    assert job.codes[1] == [-signal.SIGKILL, -signal.SIGKILL, 0], job.log(1)
    assert job.codes[0][-1] == 0, job.log(0)
    assert job.log(0).count("continues after epoch") == 2
    assert killed.summary["steps"] == 360
    expected, found = trained(one, straight), trained(two, killed)
    assert found.artifact.ref == expected.artifact.ref
    assert found.artifact.summary["losses"] == pytest.approx(expected.artifact.summary["losses"], rel=1e-4)
    assert found.cost.flops == expected.cost.flops
    assert not two.workspace.store.list(f"{killed.ref}/result.json")
    assert not two.workspace.store.list(f"{killed.ref}/attempts.json")


def test_two_pods_of_two_processes_stream_their_parts_of_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = EXACT | {"initialise": {"epochs": 2, "lr": 0.02}, "data": {"resident_mb": 0}}
    one, four = (tiny_context(tmp_path / name, changes) for name in ("one", "four"))
    job, runs = Job(tmp_path), []
    spread = on_pods(four, job, monkeypatch)
    spread = replace(spread, config=spread.config.model_copy(update={"processes": 2}))
    for ctx in (one, spread):
        runs.append(trained(ctx, initialise(ctx, ingest(ctx).make()).make()))
    assert job.codes == [[0], [0]]
    equal(*runs, cuts=3 * 2 * 1294 // 8, processes=4)


def test_pods_start_no_more_processes_than_the_smallest_batch_has_images(tmp_path: Path) -> None:
    """Batches of at most 4 of 1,294 images: some have 3."""
    asked: list[int] = []

    def pods(_ctx: Context, request: dict[str, Any], _count: int) -> None:
        asked.append(request["batch_size"])
        raise RunError("enough", "nothing")

    ctx = tiny_context(tmp_path, {"initialise": {"batch_size": 4}, "train": {"nodes": 2}})
    with pytest.raises(RunError, match="enough"):
        initialise(replace(ctx, pods=pods), ingest(ctx).make()).make()
    assert asked == [3]


_FAILING = """
import lipt.cli
from lipt.errors import RunError

def fail(**_options):
    raise RunError("initialise: a batch of 1 images cannot be divided over 2 processes", "raise the batch size")

lipt.cli.cli.main = fail
lipt.cli.main()
"""


def test_a_pod_that_fails_ends_the_box_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = on_pods(tiny_context(tmp_path / "w"), Job(tmp_path, _FAILING), monkeypatch)
    dataset = ingest(ctx).make()
    with pytest.raises(RunError, match=r"pod \d of 2: .*a batch of 1 images cannot be divided over 2 processes"):
        initialise(ctx, dataset).make()


def test_without_room_the_box_trains_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = on_pods(tiny_context(tmp_path), Job(tmp_path), monkeypatch)
    monkeypatch.setattr(training, "run_job", lambda *_args, **_job: {0: NO_ROOM, 1: NO_ROOM})
    assert initialise(ctx, ingest(ctx).make()).make().summary["epochs"] == ctx.config.initialise.epochs


def test_a_box_without_a_gpu_lets_one_pod_train_and_evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for one pod at a time only; the box itself computes nothing."""
    job, asked = Job(tmp_path), list[int]()

    def room_for_one(*args: Any, **options: Any) -> dict[int, str]:
        asked.append(options["completions"])
        return job.run(*args, **options) if options["completions"] == 1 else {0: NO_ROOM, 1: NO_ROOM}

    ctx = replace(on_pods(tiny_context(tmp_path / "w"), job, monkeypatch), waits=True)
    monkeypatch.setattr(training, "run_job", room_for_one)
    dataset = ingest(ctx).make()
    theta = initialise(ctx, dataset).make()
    found = evaluate(ctx, dataset, theta).make()
    assert asked == [2, 1, 1]
    assert found.summary["images"] == 359
    assert job.codes == [[0, 0], []]


def test_a_box_that_starts_again_counts_the_time_in_which_its_pods_trained_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a training that ended while its box was away would have taken no time, and `lipt plan` would believe it."""
    job = Job(tmp_path)
    ctx = on_pods(tiny_context(tmp_path / "w"), job, monkeypatch)

    def lost(*args: Any, **options: Any) -> dict[int, str]:
        job.run(*args, **options)
        raise KeyboardInterrupt  # the box ends, but what its pods have left stays

    dataset = ingest(ctx).make()
    monkeypatch.setattr(training, "run_job", lost)
    with pytest.raises(KeyboardInterrupt):
        initialise(ctx, dataset).make()
    (left,) = (tmp_path / "w").glob("initialise/*/result.json")
    lasted_s = json.loads(left.read_bytes())["lasted_s"]
    cost = ctx.workspace.cost(initialise(ctx, dataset).make())
    assert job.codes == [[0], [0]]
    assert cost.wall_s >= lasted_s > 0


@pytest.mark.parametrize(
    ("box", "computes"),
    [("dispatch", False), ("pretrain", True), ("merge", True), ("select", True), ("worker", True), ("train", False)],
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_boxes_that_train_in_pods_use_no_gpu_and_the_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: str, computes: bool, nodes: int
) -> None:
    """With `train.nodes` above 1 Argo gives `dispatch` and `train` no GPU. `merge` and `select` have theirs."""
    pods, config = (
        PODS.model_copy(update={"gpus": 1}),
        tiny_context(tmp_path, {"device": "auto", "train": {"nodes": nodes}}).config,
    )
    monkeypatch.setattr(ThisPod, "find", lambda: HERE)
    monkeypatch.setattr(training, "use_threads", lambda _cpu: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    devices = []

    def begins(*given: Any, trains: bool) -> Context:
        devices.append(training.context(*given, trains=trains).device.type)
        raise KeyboardInterrupt

    for module in (boxes, workers):
        monkeypatch.setattr(module, "context", begins)
    spec = RunSpec(config=config.model_dump(mode="json"), dataset="", initial=(), shards=None, engine="argo", pods=pods)
    address = spec.save()
    call = {
        "dispatch": lambda: boxes.dispatch_box(config, engine="argo", image="lipt:1", gpus=1),
        "pretrain": lambda: boxes.pretrain_box(address),
        "merge": lambda: boxes.merge_box(address),
        "select": lambda: boxes.select_box(address, None),
        "worker": lambda: workers.worker(address, "pretrain", [0]),
        "train": lambda: boxes.train_box(address, None, ""),
    }[box]
    with pytest.raises(KeyboardInterrupt):
        call()
    assert devices == ["cuda" if computes or nodes == 1 else "cpu"]
