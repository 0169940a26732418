"""A box that is stopped, fails, or comes back to the Job that it has started."""

from __future__ import annotations

import os
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lipt.adapters.cluster import job_watch
from lipt.adapters.cluster.api import RefusedError
from lipt.errors import RunError, Terminated, stop_on_sigterm
from tests.unit.cluster.job_server import PODS, Server, start
from tests.unit.cluster.servers import serving, use_cluster


def test_the_job_of_a_stopped_box_goes_on_for_ten_minutes_and_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    handler = type("Handler", (Server,), {"asked": Counter()})
    said: list[str] = []

    def stop(_done: int, _total: int) -> None:
        raise Terminated

    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        with pytest.raises(Terminated):
            start(say=said.append, advance=stop)
        assert (handler.asked["deadline 600"], handler.asked["deleted"]) == (1, 0)
        assert list(start(say=said.append)) == [1]
    assert handler.asked["made"] == 1
    assert handler.asked["deadline 43200"] == 1
    assert any("pretrain: continues with job box-pretrain-" in text for text in said)


def test_the_job_of_a_stopped_box_that_waits_in_its_queue_ends_a_minute_after_its_admission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run may have been ended in Kubeflow's page, which leaves the Job in the queue. The box may also come back."""
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    handler = type("Handler", (Server,), {"asked": Counter(), "suspended": True})

    def stop(_done: int, _total: int) -> None:
        raise Terminated

    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        with pytest.raises(Terminated):
            start(say=lambda _text: None, advance=stop)
        assert (handler.deadline, handler.asked["deleted"]) == (60, 0)
        handler.suspended = False
        assert list(start(say=lambda _text: None)) == [1]
    assert (handler.asked["made"], handler.deadline) == (1, 43200)


def test_a_job_that_another_box_has_taken_over_gets_no_deadline_from_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one may have been on a node that was cut off: it fails when it can reach the cluster again."""
    handler = type("Handler", (Server,), {"asked": Counter()})

    def taken_over(_done: int, _total: int) -> None:
        handler.box = "another-box"
        raise Terminated

    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        with pytest.raises(Terminated):
            start(say=lambda _text: None, advance=taken_over)
    assert handler.asked["made"] == 1
    assert not [name for name in handler.asked if name.startswith("deadline")]


@pytest.mark.parametrize(
    ("age_s", "deadline"), [(None, 1800), (60, 1800), (3600, 5400)], ids=["no pod yet", "new", "after an hour"]
)
def test_the_deadline_of_a_training_moves_on_as_long_as_its_box_lives(
    age_s: int | None, deadline: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the box is killed, it has no time to set one: then the pods would train to the end, for days."""
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    started = None if age_s is None else (datetime.now(UTC) - timedelta(seconds=age_s)).isoformat()
    handler = type("Handler", (Server,), {"asked": Counter(), "started": started})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        start(say=lambda _text: None, together=True)
    assert handler.deadline == pytest.approx(deadline, abs=20)
    assert sum(handler.asked[name] for name in handler.asked if name.startswith("deadline")) == (deadline > 1800)


def test_a_training_that_is_taken_over_gets_time_from_now_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its age counts: half an hour after its start would be in the past."""
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    started = (datetime.now(UTC) - timedelta(hours=5)).isoformat()
    handler = type("Handler", (Server,), {"asked": Counter({"made": 1}), "started": started, "deadline": 5 * 3600 + 60})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        start(say=lambda _text: None, together=True)
    assert handler.asked["made"] == 1
    assert handler.deadline == pytest.approx(5 * 3600 + 1800, abs=20)


@pytest.mark.parametrize("ahead_s", [-7200, 7200])
def test_a_box_with_a_wrong_clock_does_not_end_a_training(
    ahead_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deadline is a number of seconds since a time by the clock of the cluster."""
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    started = (datetime.now(UTC) + timedelta(seconds=ahead_s - 3600)).isoformat()
    handler = type("Handler", (Server,), {"asked": Counter(), "started": started, "ahead_s": ahead_s})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        start(say=lambda _text: None, together=True)
    assert handler.deadline == pytest.approx(3600 + 1800, abs=20)


class Forbidding(Server):
    """Does not let the box see its worker pods."""

    def do_GET(self) -> None:
        if urlsplit(self.path).path == PODS:
            self.send_error(403)
        else:
            super().do_GET()


def test_the_job_of_a_box_that_fails_ends_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its workers would hold their nodes until the deadline, and those of a training until they are done."""
    handler = type("Handler", (Forbidding,), {"asked": Counter()})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        with pytest.raises(RefusedError):
            start(say=lambda _text: None)
    assert (handler.asked["made"], handler.asked["deadline 600"]) == (1, 1)


class Stopping(Server):
    """Stops the box when it has created its Job, before it hears of that."""

    def do_POST(self) -> None:
        super().do_POST()
        os.kill(os.getpid(), signal.SIGTERM)


def test_the_job_of_a_box_that_is_stopped_while_it_creates_it_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = type("Handler", (Stopping,), {"asked": Counter()})
    before = signal.getsignal(signal.SIGTERM)
    stop_on_sigterm()
    try:
        with serving(handler) as address:
            use_cluster(address, tmp_path, monkeypatch)
            with pytest.raises(Terminated):
                start(say=lambda _text: None)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (handler.asked["made"], handler.asked["deadline 600"]) == (1, 1)


class Deleted(Server):
    """A Job that somebody deletes while its box waits for it."""

    def do_GET(self) -> None:
        if self.asked["job"] == 2:
            self.asked.pop("made", None)
        super().do_GET()


def test_a_job_that_somebody_deletes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    handler = type("Handler", (Deleted,), {"asked": Counter()})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        with pytest.raises(RunError, match=r"pretrain: somebody deleted job box-pretrain-\w+\n  -> run again"):
            start(say=lambda _text: None)
