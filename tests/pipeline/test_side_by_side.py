"""Two runs with equal settings, started side by side as a user starts them: the work is done once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from lipt.adapters.cluster.fanout import ThisPod
from lipt.adapters.cluster.job_manifest import Pods
from lipt.pods import workers
from lipt.pods.boxes import dispatch_box, pretrain_box
from lipt.runtime.workspace import Workspace
from tests.tiny import TINY, tiny_context

_MADE = re.compile(r"^(.+?) +[\d.]+ s  ", re.MULTILINE)
#: What a run makes, as its lines say it.
_ALL = [
    *("dispatch", "evaluate", "evaluate", "ingest", "initialise", "merge", "pretrain[0]", "pretrain[1]", "pretrain[2]"),
    *("score", "select ccs", "select stratified", "train ccs", "train stratified"),
]


def started(folder: Path) -> subprocess.Popen[str]:
    config = folder / "tiny.yaml"
    config.write_text(yaml.safe_dump(TINY | {"workspace": str(folder / "runs")}))
    command = [sys.executable, "-m", "lipt", "run", str(config)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def claims(folder: Path) -> list[str]:
    return [key for key in Workspace(str(folder / "runs")).store.list() if "/lease-" in key]


def test_two_runs_do_the_work_once(tmp_path: Path) -> None:
    runs = [started(tmp_path), started(tmp_path)]
    (first, told), (second, told_too) = (run.communicate(timeout=300) for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert sorted(_MADE.findall(told + told_too)) == _ALL
    assert f"waits for process {runs[0].pid} on " in told_too or f"waits for process {runs[1].pid} on " in told
    assert first.splitlines()[0] == second.splitlines()[0]  # the verdict
    assert claims(tmp_path) == []


def test_the_second_finishes_what_the_first_was_killed_in(tmp_path: Path) -> None:
    first = started(tmp_path)
    while not [key for key in claims(tmp_path) if key.startswith("train/")]:
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGSTOP)  # so that it does not get through meanwhile
    second = started(tmp_path)
    assert second.stderr is not None
    next(line for line in second.stderr if re.match(rf"train ccs +waits for process {first.pid} on ", line))
    first.kill()
    first.wait()
    told = second.stderr.read()
    assert second.wait() == 0
    assert re.match(rf"train ccs +process {first.pid} on \S+ is gone: its work is done here\n", told)
    assert _MADE.findall(told) == ["train ccs", "evaluate", "select stratified", "train stratified", "evaluate"]
    assert claims(tmp_path) == []
    first.communicate()
    second.communicate()


def test_the_second_box_waits_and_starts_no_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pods are processes here. In the second run another number of pods shares the work."""
    jobs: list[int] = []

    def run_job(_here: ThisPod, _pods: Pods, **job: Any) -> dict[int, str]:
        jobs.append(job["completions"])
        command = [sys.executable, "-m", "lipt", *job["arguments"]]
        for index in range(job["completions"]):
            subprocess.run(command, check=True, env=os.environ | {"JOB_COMPLETION_INDEX": str(index)})
        return {}

    config = tiny_context(tmp_path).config
    runs = [dispatch_box(config, engine="argo", image="lipt:1", nodes=nodes) for nodes in (1, 2)]
    monkeypatch.setattr(ThisPod, "find", lambda: ThisPod(namespace="lipt", pod="box"))
    monkeypatch.setattr(workers, "run_job", run_job)
    monkeypatch.setattr(workers, "running_arguments", lambda _here, _stage: [])
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(pretrain_box, runs[0])
        while not jobs and not first.done():
            time.sleep(0.02)
        second = threads.submit(pretrain_box, runs[1])
        assert (first.result(), second.result()) == ((3, 3), (3, 3))
    assert jobs == [1]
    assert f"waits for process {os.getpid()} on " in capsys.readouterr().err
