"""What ends a training on two processes, and what continues it: nothing is left behind."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lipt import liveness
from lipt.errors import LiptError, RunError, TransientError, UnexpectedError
from lipt.progress import Reporter
from lipt.runtime.processes import parent
from lipt.runtime.processes.child import EVENTS, RESULT
from lipt.runtime.processes.failures import KilledError
from lipt.runtime.processes.parent import launch
from lipt.runtime.processes.standstill import Standstill
from lipt.stages.ingest import ingest
from lipt.stages.select import select
from tests.pipeline import rank_work
from tests.pipeline.test_processes import SMOOTH, TRAIN
from tests.tiny import digests, tiny_context

_STAGE = """
import sys, torch
torch.set_num_threads(2)
from lipt.cli import main
main(["stage", "train", sys.argv[1], "--in", "dataset=" + sys.argv[2], "--in", "subset=" + sys.argv[3]])
"""
#: Seconds after which a process hangs, in place of an hour.
_STALLED_S = 6.0
_LONG = TRAIN | {"epochs": 20}


def _descendants(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
        return [*children, *(deeper for child in children for deeper in _descendants(child))]
    return []


def _gone(pids: list[int], within_s: float = 10) -> bool:
    def alive(pid: int) -> bool:
        with suppress(FileNotFoundError, ProcessLookupError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False

    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_killed_in_the_middle_the_same_command_ends_bit_identical(tmp_path: Path) -> None:
    """Everything at once (a pod's eviction), the parent alone, then SIGINT: no orphans, nothing lost."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    folders = {name: tmp_path / name for name in ("straight", "killed")}
    commands = {}
    for name, folder in folders.items():
        changes = {"select": {"algorithm": "random", "fraction": 0.2}, "train": _LONG, "model": SMOOTH, "processes": 2}
        ctx = tiny_context(folder, changes)
        dataset = ingest(ctx).make()
        subset = select(ctx, dataset, ()).make()
        config = tmp_path / f"{name}.json"
        config.write_text(ctx.config.model_dump_json())
        commands[name] = [sys.executable, "-c", _STAGE, str(config), dataset.ref, subset.ref]

    def start(name: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            commands[name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(temporary)},
            cwd=Path(__file__).parents[2],
        )

    def checkpoint_time() -> int:
        found = list(folders["killed"].glob("train/*/checkpoint"))
        return found[0].stat().st_mtime_ns if found else 0

    for number, alone, code in [
        (signal.SIGKILL, False, -signal.SIGKILL),
        (signal.SIGKILL, True, -signal.SIGKILL),
        (signal.SIGINT, True, 130),
    ]:
        before, leftovers, parent = checkpoint_time(), set(temporary.iterdir()), start("killed")
        while checkpoint_time() == before:
            assert parent.poll() is None, parent.communicate()[1][-3000:]
            time.sleep(0.01)
        children = _descendants(parent.pid)
        assert len(children) >= 2
        parent.send_signal(number)
        for child in [] if alone else children:
            with suppress(ProcessLookupError):
                os.kill(child, number)
        _, log = parent.communicate(timeout=60)
        assert parent.returncode == code, log[-3000:]
        assert _gone(children)
        if number != signal.SIGKILL:
            assert set(temporary.iterdir()) == leftovers
            assert "Traceback" not in log
            assert "torch/distributed" not in log
    for name in folders:
        ended = start(name)
        out, log = ended.communicate(timeout=240)
        assert ended.returncode == 0, log[-3000:]
        assert out.startswith("train/")
        assert len(out.splitlines()) == 1
        assert log.count("continues after epoch") == (name == "killed")  # one of the processes says so
    straight, killed = (digests(tiny_context(folder).workspace) for folder in folders.values())
    assert killed == straight
    (key,) = [key for key in straight if key.startswith("train/")]
    costs = [tiny_context(folder).workspace for folder in folders.values()]
    whole, resumed = (workspace.cost(workspace.get(key.removesuffix("/artifact.json"))) for workspace in costs)
    assert resumed.flops == whole.flops
    assert resumed.read["data"] > 2 * whole.read["data"]  # each attempt reads its images, and all are counted


@pytest.mark.parametrize(
    ("work", "kind", "code", "message"),
    [
        ("unreachable", TransientError, 3, r"^s3://bucket: out of reach\n  -> check that the store is up$"),
        ("mistaken_alone", UnexpectedError, 1, "^failing: process 1 of 2: ZeroDivisionError: by zero"),
        ("killed", RunError, 1, r"^failing: process 1 of 2 was killed \(SIGKILL\)"),
        ("ended_alone", RunError, 1, "^failing: process 1 of 2 ended with code 7"),
    ],
)
def test_what_one_process_fails_with_is_the_one_error(
    work: str, kind: type[LiptError], code: int, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ctx = tiny_context(tmp_path)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    before = _descendants(os.getpid())  # a store's server may belong to this session
    with pytest.raises(kind, match=message) as caught:
        launch(ctx, "failing", getattr(rank_work, work), 2, {})
    assert caught.value.exit_code == code
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert _gone([pid for pid in _descendants(os.getpid()) if pid not in before], within_s=1)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    trace = caught.value.trace if isinstance(caught.value, UnexpectedError) else ""
    assert trace.count("ZeroDivisionError: by zero") == work.startswith("mistaken")


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize(
    ("hang", "named"),
    [
        ("reading", "process 1 of 2"),
        ("stopped", "process 1 of 2"),
        ("the last gradient", "one of the processes 0 and 1 of 2"),  # both wait in the same place
    ],
)
def test_a_process_that_hangs_in_an_epoch_is_named_and_ended(
    hang: str,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The process group itself would wait for days."""
    monkeypatch.setattr(parent, "STALLED_S", _STALLED_S)
    before, since = _descendants(os.getpid()), time.monotonic()
    with pytest.raises(KilledError) as caught:
        launch(tiny_context(tmp_path), "train", rank_work.in_training, 2, {"hang": hang})
    assert caught.value.message == f"train: {named} hung: no step of the training for 0.1 minutes"
    assert caught.value.remedy.startswith("see whether its store, disk and GPU answer")
    assert time.monotonic() - since > _STALLED_S
    assert _gone([pid for pid in _descendants(os.getpid()) if pid not in before], within_s=1)
    assert "Traceback" not in capfd.readouterr().err


def test_a_process_may_work_by_itself_while_the_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait in the next epoch, and at the end: to select or to write a checkpoint may take hours."""
    monkeypatch.setattr(parent, "STALLED_S", _STALLED_S)
    given = {"seconds": _STALLED_S + 3}
    assert launch(tiny_context(tmp_path), "train", rank_work.slow_first, 2, given) == {"epochs": 2}


def test_processes_are_watched_although_nobody_reads_their_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `lipt run 2>&1 | head`."""
    looks = threading.Semaphore(0)

    class Watched(Standstill):
        def look(self, passed_s: float) -> None:
            looks.release()

    class Unread(Reporter):
        def say(self, text: str) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(parent, "POLL_S", 0.01)
    (tmp_path / EVENTS.replace("*", "0")).write_text('["say", ["epoch 1"]]\n')
    with parent._relayed(tmp_path, Unread(), Watched(tmp_path, 1, after_s=math.inf)):
        assert all(looks.acquire(timeout=10) for _ in range(3))


@pytest.mark.parametrize("pod", [True, False])
def test_the_probe_of_a_pod_looks_at_its_processes(pod: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It kills the whole pod: then all start again, as Kubernetes repeats no pod that ends with code 1."""
    limits: list[float] = []

    def start(folder: Path, *_given: Any) -> None:
        (folder / RESULT).write_text("{}")

    def watch(_folder: Path, _processes: int, *, after_s: float) -> Standstill:
        limits.append(after_s)
        return Standstill(tmp_path, 2, after_s=after_s)

    if pod:
        monkeypatch.setenv(liveness.VARIABLE, str(tmp_path / "progress"))
    monkeypatch.setattr(parent, "_torchrun", start)
    monkeypatch.setattr(parent, "Standstill", watch)
    launch(tiny_context(tmp_path / "workspace"), "train", rank_work.unreachable, 2, {})
    assert limits == [math.inf if pod else 3600]


def test_a_signal_ends_this_process_once_the_children_and_their_folder_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own handler says how: that of the command line exits with 143."""
    folders: list[Path] = []
    left: list[bool] = []

    def start(folder: Path, *_given: Any) -> signal.Signals:
        folders.append(folder)
        assert folder.is_dir()
        return signal.SIGTERM

    monkeypatch.setattr(parent, "_torchrun", start)
    before = signal.signal(signal.SIGTERM, lambda *_: left.append(folders[0].exists()))
    try:
        with pytest.raises(SystemExit) as ended:
            launch(tiny_context(tmp_path), "stopped", rank_work.unreachable, 2, {})
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (left, ended.value.code) == ([False], 143)


def test_a_child_that_is_interrupted_while_it_loads_torch_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("import signal; signal.raise_signal(signal.SIGINT)")
    monkeypatch.syspath_prepend(tmp_path)
    ended: list[tuple[int, str]] = []

    def start(folder: Path, program: str, _processes: int, _peers: None) -> signal.Signals:
        child = subprocess.run([sys.executable, "-P", "-c", program, str(folder)], capture_output=True, text=True)
        ended.append((child.returncode, child.stderr))
        return signal.SIGINT

    monkeypatch.setattr(parent, "_torchrun", start)
    with pytest.raises(KeyboardInterrupt):
        launch(tiny_context(tmp_path / "workspace"), "loading", rank_work.unreachable, 2, {})
    assert ended == [(-signal.SIGINT, "")]
