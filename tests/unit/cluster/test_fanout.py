"""The fan-out while its Job runs, against an API server that counts what it is asked."""

from __future__ import annotations

import os
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lipt.adapters.cluster import job_watch
from lipt.adapters.cluster.api import RefusedError
from lipt.adapters.cluster.fanout import ThisPod, run_job
from lipt.adapters.cluster.job_watch import pause_s
from lipt.adapters.cluster.manifest import Pods
from lipt.errors import RunError, Terminated, stop_on_sigterm
from tests.unit.cluster.servers import JsonHandler, serving, use_cluster

PODS = "/api/v1/namespaces/vision/pods"


class Server(JsonHandler):
    """A Job of two pods: one is done after five looks, the other has failed after ten, and with it the Job."""

    asked: Counter[str]
    events: list[dict[str, Any]]
    completions = 2
    records = False
    """Whether the account may create Events."""
    box: str | None = None
    """The pod that waits for the Job."""
    deadline = 0
    started: str | None = None

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == f"{PODS}/box":
            self.answer({"metadata": {"name": "box", "uid": "1", "labels": {}}})
        elif path == PODS:
            self.asked["pods"] += 1
            self.answer({"items": self._pods()})
        elif self.asked["made"]:
            self.asked["job"] += 1
            metadata = {"annotations": {"lipt.dev/box": self.box}}
            spec = dict.fromkeys(("completions", "parallelism"), self.completions)
            spec["activeDeadlineSeconds"] = self.deadline
            status = self._status() | ({"startTime": self.started} if self.started else {})
            self.answer({"metadata": metadata, "spec": spec, "status": status})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = self.body()
        if not self.path.endswith("/events"):
            self.asked["made"] += 1
            type(self).box = body["metadata"]["annotations"]["lipt.dev/box"]
            type(self).deadline = body["spec"]["activeDeadlineSeconds"]
        elif self.records:
            self.events.append(body)
        else:
            self.send_error(403)
            return
        self.answer(body)

    def do_PATCH(self) -> None:
        body = self.body()
        type(self).deadline = body["spec"]["activeDeadlineSeconds"]
        self.asked[f"deadline {self.deadline}"] += 1
        if "metadata" in body:
            type(self).box = body["metadata"]["annotations"]["lipt.dev/box"]
        self.answer({})

    def do_DELETE(self) -> None:
        self.asked["deleted"] += 1
        self.answer({})

    def _status(self) -> dict[str, Any]:
        if self.asked["job"] < 5:
            return {"active": 2}
        if self.asked["job"] < 10:
            return {"active": 1, "succeeded": 1, "completedIndexes": "0"}
        failed = [{"type": "Failed", "status": "True", "message": "too many"}]
        return {"succeeded": 1, "failed": 1, "completedIndexes": "0", "conditions": failed}

    def _pods(self) -> list[dict[str, Any]]:
        return [self._pod(0), self._pod(1)]

    def _pod(self, index: int) -> dict[str, Any]:
        over = self.asked["job"] >= (10 if index else 5)
        ended = {"exitCode": 1, "reason": "Error", "message": "lipt: pretrain[1]: the loss is nan"}
        status = {"phase": ("Failed" if index else "Succeeded") if over else "Running"}
        if over and index:
            status["containerStatuses"] = [{"state": {"terminated": ended}}]  # type: ignore[assignment]
        annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
        return {
            "metadata": {"name": f"p{index}", "annotations": annotations},
            "spec": {"nodeName": "n"},
            "status": status,
        }


@pytest.mark.parametrize("records", [True, False], ids=["", "may not create events"])
def test_pods_are_listed_when_the_job_has_changed(
    records: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    handler = type("Handler", (Server,), {"asked": Counter(), "events": [], "records": records})
    said: list[str] = []
    advanced: list[tuple[int, int]] = []
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        lost = run_job(
            ThisPod(namespace="vision", pod="box"),
            Pods(image="lipt:1"),
            name="pretrain",
            arguments=["box"],
            completions=2,
            may_fail=1,
            say=said.append,
            advance=lambda *at: advanced.append(at),
        )
    assert lost == {1: "lipt: pretrain[1]: the loss is nan"}
    assert (handler.asked["job"], handler.asked["pods"]) == (10, 3)
    assert said == [
        "pretrain: 0 of 2 pods done, 2 running (n, n)",
        "pretrain: 1 of 2 pods done, 1 running (n)",
        "pretrain: 1 of 2 pods done, 0 running",
    ]
    assert advanced == [(0, 2), (1, 2), (1, 2)]
    assert [(event["reason"], event["message"]) for event in handler.events] == (
        [("WorkersLost", "pretrain[1]: lipt: pretrain[1]: the loss is nan")] if records else []
    )


class Slow(Server):
    """Five pods: three took 100 s each, one has failed for good, and one is still running."""

    completions = 5
    ran_s = 0

    def _status(self) -> dict[str, Any]:
        type(self).ran_s += 20
        over = {"succeeded": 3, "completedIndexes": "0-2", "failedIndexes": "3"}
        return {"active": 1, **over, "asked": self.asked["job"]}

    def _pods(self) -> list[dict[str, Any]]:
        now = datetime.now(UTC)
        ended = {"startedAt": (now - timedelta(seconds=100)).isoformat(), "finishedAt": now.isoformat()}
        running = {"startedAt": (now - timedelta(seconds=self.ran_s)).isoformat()}
        states = [("Succeeded", {"terminated": ended})] * 3 + [("Running", {"running": running})]
        return [
            {
                "metadata": {"name": "p"},
                "spec": {"nodeName": "n"},
                "status": {"phase": phase, "containerStatuses": [{"state": state}]},
            }
            for phase, state in states
        ]


@pytest.mark.parametrize(("quorum", "grace", "ends_s"), [(3, 3.0, 300), (3, 1.0, 100), (3, 0.0, 60)])
def test_after_the_quorum_a_worker_is_given_up_that_takes_a_multiple_of_the_others(
    quorum: int, grace: float, ends_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    handler = type("Handler", (Slow,), {"asked": Counter()})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        lost = run_job(
            ThisPod(namespace="vision", pod="box"),
            Pods(image="lipt:1", grace=grace),
            name="pretrain",
            arguments=["box"],
            completions=5,
            may_fail=2,
            quorum=quorum,
            say=lambda _text: None,
        )
    assert sorted(lost) == [3, 4]
    assert lost[4] == f"slower than {grace:g} times the median of the finished ones"
    assert ends_s <= handler.ran_s <= ends_s + 40
    assert handler.asked["deleted"] == 1


class Last(Server):
    """A Job of one pod: it runs for two looks, in which nothing is done yet, and then succeeds."""

    completions = 1

    def _status(self) -> dict[str, Any]:
        if self.asked["job"] < 3:
            return {"active": 1, "ready": self.asked["job"]}
        return {"succeeded": 1, "completedIndexes": "0", "conditions": [{"type": "Complete", "status": "True"}]}

    def _pods(self) -> list[dict[str, Any]]:
        started = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        state = {"running": {"startedAt": started}}
        status = {"phase": "Running", "containerStatuses": [{"state": state}]}
        return [{"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": status}]


def test_a_repeat_of_one_lost_worker_waits_for_it_though_the_quorum_is_met_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No finished pod tells what is slow, and Kubernetes leaves out the number of succeeded pods while it is 0."""
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    handler = type("Handler", (Last,), {"asked": Counter()})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        assert start(completions=1, quorum=0, say=lambda _text: None) == {}
    assert handler.asked["job"] == 3


def test_a_job_that_does_not_change_is_looked_at_less_and_less() -> None:
    assert [pause_s(quiet_s) for quiet_s in (0, 10, 60, 86_400)] == [1, 1, 3, 10]


class Refusing(Server):
    """A Job whose pods a quota refuses until the `admits`-th look; then they are done."""

    admits = 0

    def do_GET(self) -> None:
        if urlsplit(self.path).path.endswith("/events"):
            self.asked["events"] += 1
            self.answer({"items": [refused("a", "old", 0), refused("b", "exceeded quota: q, asked: 2", 1)]})
        else:
            super().do_GET()

    def _status(self) -> dict[str, Any]:
        if self.asked["job"] < self.admits:
            return {"active": 0}
        return {"succeeded": 2, "completedIndexes": "0,1", "conditions": [{"type": "Complete", "status": "True"}]}

    def _pods(self) -> list[dict[str, Any]]:
        return []


def refused(pod: str, why: str, second: int) -> dict[str, Any]:
    message = f'Error creating: pods "pretrain-0-{pod}" is forbidden: {why}'
    return {"message": message, "lastTimestamp": f"2026-01-01T00:00:0{second}Z"}


def start(**job: Any) -> dict[int, str]:
    options = {"name": "pretrain", "arguments": ["box"], "completions": 2, "may_fail": 1} | job
    return run_job(ThisPod(namespace="vision", pod="box"), Pods(image="lipt:1"), **options)


QUOTA = "exceeded quota: q, asked: 2 -> `kubectl -n vision describe quota` shows what is used"


def test_a_quota_that_refuses_the_pods_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    handler = type("Handler", (Refusing,), {"asked": Counter(), "admits": 5})
    said: list[str] = []
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        assert start(say=said.append) == {}
    told = [text for text in said if "not admitted" in text]
    assert [text.partition(": wait, or")[0] for text in told] == [f"pretrain: 2 of 2 pods are not admitted: {QUOTA}"]
    assert handler.asked["events"] == 4


@pytest.mark.parametrize("room_within_s", [0.3, None])
def test_a_quota_ends_the_wait_long_before_the_deadline(
    room_within_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    monkeypatch.setattr(job_watch, "_ADMITTED_WITHIN_S", 0.3)
    handler = type("Handler", (Refusing,), {"asked": Counter(), "admits": 1_000_000})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        lost = start(say=lambda _text: None, room_within_s=room_within_s)
    assert sorted(lost) == [0, 1]
    assert lost[0].startswith(f"the namespace does not admit its pod: {QUOTA}")
    assert handler.asked["deleted"] == 1


class Unpulled(Server):
    """The node of the second pod cannot pull the image; the first pod is done after five looks."""

    def _status(self) -> dict[str, Any]:
        return {"active": 2} if self.asked["job"] < 5 else {"active": 1, "succeeded": 1, "completedIndexes": "0"}

    def _pod(self, index: int) -> dict[str, Any]:
        pod = super()._pod(index)
        if index:
            reason = ("ErrImagePull", "ImagePullBackOff")[self.asked["pods"] % 2]
            waiting = {"reason": reason, "message": "Back-off pulling image lipt:1"}
            pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
        return pod


@pytest.mark.parametrize("room_within_s", [0.3, None])
def test_a_pod_that_cannot_start_is_told_and_given_up_when_the_others_are_done(
    room_within_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the box would wait for it until the deadline, and a training without end."""
    for name, seconds in {"_SHORTEST_S": 0.01, "_LIST_S": 0.02, "_ADMITTED_WITHIN_S": 0.3}.items():
        monkeypatch.setattr(job_watch, name, seconds)
    handler = type("Handler", (Unpulled,), {"asked": Counter()})
    said: list[str] = []
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        lost = start(say=said.append, room_within_s=room_within_s, may_fail=2)
    assert list(lost) == [1]
    assert lost[1].startswith("its pod cannot start: ")
    assert "Back-off pulling image lipt:1" in lost[1]
    (told,) = [text for text in said if "cannot start" in text]
    assert told.startswith("pretrain: 1 of 2 pods cannot start: ")
    assert handler.asked["deleted"] == 1


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
