"""Leases with real processes, over a folder and over S3: one does the work, the others wait; the dead are replaced."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lipt.adapters.store import open_store
from lipt.runtime import lease
from tests.programs import ROOT

_TURNS = """
import os, sys, time
from lipt.adapters.store import open_store
from lipt.runtime.lease import leased
for _ in range(4):
    with leased(open_store(sys.argv[1]), "stage/key/lease", lambda text: None):
        os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))  # fails if another is here
        time.sleep(0.03)
        os.unlink(sys.argv[2])
"""

_STAGE = """
import sys, time
from pathlib import Path
from lipt.progress import Reporter
from lipt.runtime import Stage, lease
from lipt.runtime.workspace import Workspace
from tests.tiny import bare_context
location, go, machine, expire_s = sys.argv[1:]
lease.BEAT_S, lease.EXPIRE_S = 0.2, float(expire_s)
if machine:
    lease._machine = lambda: machine
def body(attempt):
    print("works", flush=True)
    while not Path(go).exists():
        time.sleep(0.05)
    attempt.put("x", b"12", kind="other")
    return {"count": 2}
context = bare_context(Workspace(location), Reporter(sys.stdout))
made = Stage(ctx=context, name="demo", settings={}, inputs=[], body=body, label="demo").make()
print("found" if made.ref in context.workspace.reused else "made", made.summary, flush=True)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(params=["file", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "workspace") if request.param == "file" else str(request.getfixturevalue("s3"))


@pytest.fixture
def start(location: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a process that makes one stage, when the file `go` exists."""
    processes = []

    def run(*, machine: str = "", expire_s: float = 1000) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _STAGE, location, str(tmp_path / "go"), machine, str(expire_s)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT))
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that it prints, without those that only say how long it has taken so far."""
    assert process.stdout is not None
    line = " ".join(process.stdout.readline().split())
    return line_of(process) if re.fullmatch(r"demo \d+ s", line) else line


def end_of(process: subprocess.Popen[str]) -> str:
    """The last line that it prints."""
    assert process.stdout is not None
    text = process.stdout.read()
    assert process.wait() == 0
    return text.splitlines()[-1]


def test_one_at_a_time(location: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TURNS, location, str(tmp_path / "here")]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    assert open_store(location).list() == []


def test_the_second_waits_and_uses_what_the_first_made(location: str, start: Start, tmp_path: Path) -> None:
    first = start()
    assert line_of(first) == "works"
    second = start()
    assert line_of(second).startswith(f"demo waits for process {first.pid} on ")
    (tmp_path / "go").touch()
    assert end_of(first) == "made {'count': 2}"
    assert end_of(second) == "found {'count': 2}"
    names = [key.rsplit("/", 1)[1] for key in open_store(location).list("demo/")]
    assert sorted(names) == ["artifact.json", "cost.json", "x"]


@pytest.mark.parametrize("reaped", [True, False])
def test_a_killed_process_of_this_machine_is_replaced_at_once(start: Start, tmp_path: Path, reaped: bool) -> None:
    """Also one whose parent does not ask how it ended."""
    first = start()
    assert line_of(first) == "works"
    second = start()
    assert "waits for" in line_of(second)
    first.kill()
    if reaped:
        first.wait()
    assert f"process {first.pid} on " in (told := line_of(second))
    assert told.endswith("is gone: its work is done here")
    assert line_of(second) == "works"
    (tmp_path / "go").touch()
    assert end_of(second) == "made {'count': 2}"


def test_a_killed_process_of_another_machine_is_replaced_when_its_lease_expires(start: Start, tmp_path: Path) -> None:
    first = start(machine="another")
    assert line_of(first) == "works"
    first.kill()
    first.wait()
    second = start(expire_s=3)
    assert "waits for" in line_of(second)
    assert line_of(second).endswith("has given no sign for 3 s: its work is done here")
    (tmp_path / "go").touch()
    assert end_of(second) == "made {'count': 2}"


def test_work_that_takes_longer_than_a_lease_without_a_sign_is_left_to_its_process(
    start: Start, tmp_path: Path
) -> None:
    """On another machine, where only its beat tells that it lives."""
    first = start(machine="another")
    assert line_of(first) == "works"
    second = start(expire_s=3)
    assert "waits for" in line_of(second)
    time.sleep(6)
    (tmp_path / "go").touch()
    assert end_of(first) == "made {'count': 2}"
    assert line_of(second).startswith("demo up to date")
    assert end_of(second) == "found {'count': 2}"


def test_a_suspended_process_leaves_its_work_to_the_one_that_took_over(start: Start, tmp_path: Path) -> None:
    first = start()
    assert line_of(first) == "works"
    first.send_signal(signal.SIGSTOP)
    second = start(expire_s=3)
    assert "waits for" in line_of(second)
    assert "has given no sign" in line_of(second)
    assert line_of(second) == "works"
    first.send_signal(signal.SIGCONT)
    (tmp_path / "go").touch()
    assert end_of(second) == "made {'count': 2}"
    assert line_of(first) == "demo another process has taken over"
    assert end_of(first) == "found {'count': 2}"


def test_a_late_beat_does_not_bring_back_a_claim_that_was_removed(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rival removes the claim after the holder has looked for it and before the holder writes."""
    store = open_store(location)
    monkeypatch.setattr(lease, "BEAT_S", 0.02)
    with lease.leased(store, "stage/key/lease", lambda text: None) as held:
        size, looked = store.size, threading.Event()

        def removed_after(key: str) -> int | None:
            found = size(key)
            store.delete(key)
            looked.set()
            return found

        monkeypatch.setattr(store, "size", removed_after)
        assert looked.wait(30)
        deadline = time.monotonic() + 30
        while not store.list("stage/key/lease-"):  # the late beat
            assert time.monotonic() < deadline
            time.sleep(0.01)
        monkeypatch.setattr(store, "size", size)
        with pytest.raises(lease.LostLeaseError):
            held.check()
    assert store.list() == []


def test_who_waits_leaves_as_soon_as_the_work_is_done(location: str) -> None:
    """Not one after the other: of a hundred that wait for theta_*, each would otherwise wait for its turn."""
    store, done, left = open_store(location), threading.Event(), list[bool]()

    def wait() -> None:
        try:
            with lease.leased(open_store(location), "stage/key/lease", lambda text: None, done.is_set):
                left.append(False)
        except lease.DoneMeanwhileError:
            left.append(True)

    with lease.leased(store, "stage/key/lease", lambda text: None) as held:
        waiting = [threading.Thread(target=wait) for _ in range(3)]
        for thread in waiting:
            thread.start()
        done.set()
        for thread in waiting:
            thread.join(30)
        assert left == [True] * 3
        held.check()  # they left although the lease is held


def test_no_error_of_a_store_ends_the_beat(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(location)
    monkeypatch.setattr(lease, "BEAT_S", 0.02)
    with lease.leased(store, "stage/key/lease", lambda text: None):
        size, raised = store.size, threading.Event()

        def broken(key: str) -> int | None:
            monkeypatch.setattr(store, "size", size)
            raised.set()
            raise ValueError("of a library")

        monkeypatch.setattr(store, "size", broken)
        assert raised.wait(30)
        beats = [key for key in store.list("stage/key/lease-") if key.endswith(lease._BEAT)]
        before, deadline = [store.read(key, kind="other") for key in beats], time.monotonic() + 30
        while [store.read(key, kind="other") for key in beats] == before or not beats:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            beats = [key for key in store.list("stage/key/lease-") if key.endswith(lease._BEAT)]


def test_an_ended_stage_frees_its_lease(location: str, start: Start) -> None:
    """Also one that was interrupted."""
    first = start()
    assert line_of(first) == "works"
    first.send_signal(signal.SIGINT)
    first.wait()
    assert open_store(location).list() == []
