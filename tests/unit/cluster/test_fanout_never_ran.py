"""The fan-out whose pods get no room, or cannot start."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lipt.adapters.cluster import fanout, job_watch
from lipt.adapters.cluster.job_watch import NO_ROOM, NeverRan
from tests.unit.cluster.job_server import Server, start
from tests.unit.cluster.servers import serving, use_cluster


class Shrunk(Server):
    """A training of two pods: both run; then the node of one is lost for a while."""

    away_until = 0

    def _status(self) -> dict[str, Any]:
        if self.asked["job"] > self.away_until:
            over = [{"type": "Complete", "status": "True"}]
            return {"succeeded": 2, "completedIndexes": "0,1", "conditions": over}
        return {"active": 2, "asked": self.asked["job"]}

    def _pods(self) -> list[dict[str, Any]]:
        both = [self._pod(0), self._pod(1)]
        for pod in both:
            pod["status"] = {"phase": "Running"}
        if self.asked["job"] > 2:
            both[1] |= {"spec": {}, "status": {"phase": "Pending"}}
        return both


def test_a_training_that_ran_waits_longer_for_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the node it would go on with one pod to its end."""
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    options = {"name": "train", "may_fail": 0, "together": True, "room_within_s": 0.1, "say": lambda _text: None}
    monkeypatch.setattr("lipt.adapters.cluster.job_watch.JobWatch._keep", lambda *_: None)
    for again_s, found in ((3600, {}), (0.2, {0: NO_ROOM, 1: NO_ROOM})):
        monkeypatch.setattr(job_watch, "_ROOM_AGAIN_S", again_s)
        handler = type("Handler", (Shrunk,), {"asked": Counter(), "away_until": 60})
        with serving(handler) as address:
            use_cluster(address, tmp_path, monkeypatch)
            assert start(**options) == found


class Crowded(Server):
    """Its second pod has failed for good; no node has room for the first."""

    def _status(self) -> dict[str, Any]:
        return {"active": 1, "failedIndexes": "1", "asked": self.asked["job"]}

    def _pods(self) -> list[dict[str, Any]]:
        waiting = self._pod(0)
        waiting |= {"spec": {}, "status": {"phase": "Pending"}}
        failed = self._pod(1)
        ended = {"exitCode": 1, "reason": "Error", "message": "lipt: unexpected KeyError: 3"}
        failed["status"] = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}
        return [waiting, failed]


def test_a_pod_without_room_does_not_hide_why_another_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug must end the box, and the message of the pod is how the box knows it."""
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    handler = type("Handler", (Crowded,), {"asked": Counter()})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        lost = start(say=lambda _text: None, room_within_s=0.2)
    assert lost == {1: "lipt: unexpected KeyError: 3", 0: NO_ROOM}
    assert [index for index, why in lost.items() if isinstance(why, NeverRan)] == [0]


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
    monkeypatch.setattr(job_watch, "ADMITTED_WITHIN_S", 0.3)
    handler = type("Handler", (Refusing,), {"asked": Counter(), "admits": 1_000_000})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        lost = start(say=lambda _text: None, room_within_s=room_within_s)
    assert sorted(lost) == [0, 1]
    assert lost[0].startswith(f"the namespace does not admit its pod: {QUOTA}")
    assert isinstance(lost[0], NeverRan)
    assert handler.asked["deadline 1"] == 1  # its pods that have ended stay


class FullOfJobs(Server):
    """A quota has no room for a Job until the `admits`-th attempt."""

    admits = 3

    def do_POST(self) -> None:
        self.asked["tried"] += 1
        if self.asked["tried"] < self.admits and not self.path.endswith("/events"):
            self.body()
            why = "exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=2"
            self.answer({"message": f'jobs.batch "x" is forbidden: {why}', "reason": "Forbidden"}, 403)
        else:
            super().do_POST()

    def _status(self) -> dict[str, Any]:
        return {"succeeded": 2, "completedIndexes": "0,1", "conditions": [{"type": "Complete", "status": "True"}]}


@pytest.mark.parametrize("admits", [3, 1_000_000])
def test_a_box_waits_while_a_quota_has_no_room_for_its_job(
    admits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout, "_QUOTA_S", 0.05)
    handler, said = type("Handler", (FullOfJobs,), {"asked": Counter(), "admits": admits}), list[str]()
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        lost = start(say=said.append, room_within_s=30 if admits == 3 else 0.3)
    assert len([text for text in said if text.startswith("pretrain: waits, because vision does not admit it")]) == 1
    if admits == 3:
        assert lost == {}
    else:
        assert sorted(lost) == [0, 1]
        assert lost[1].startswith("vision does not admit it: exceeded quota: q, requested: count/jobs.batch=1")
        assert isinstance(lost[1], NeverRan)


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


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"_SHORTEST_S": 0.01, "_LIST_S": 0.02, "ADMITTED_WITHIN_S": 0.3}.items():
        monkeypatch.setattr(job_watch, name, seconds)


@pytest.mark.parametrize("room_within_s", [0.3, None])
def test_a_pod_that_cannot_start_is_told_and_given_up_when_the_others_are_done(
    room_within_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the box would wait for it until the deadline, and a training without end."""
    give_up_soon(monkeypatch)
    handler = type("Handler", (Unpulled,), {"asked": Counter()})
    said: list[str] = []
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        lost = start(say=said.append, room_within_s=room_within_s, may_fail=2)
    assert list(lost) == [1]
    assert lost[1].startswith("its pod cannot start: ")
    assert isinstance(lost[1], NeverRan)
    assert "Back-off pulling image lipt:1" in lost[1]
    (told,) = [text for text in said if "cannot start" in text]
    assert told.startswith("pretrain: 1 of 2 pods cannot start: ")
    assert handler.asked["deadline 1"] == 1  # its pods that have ended stay


class StuckForTwoReasons(Server):
    """The pods lack two different Secrets; the second lacks it from the third look on."""

    def _status(self) -> dict[str, Any]:
        return {"active": 2}

    def _pod(self, index: int) -> dict[str, Any]:
        pod = super()._pod(index)
        secret = "ab"[index] if self.asked["pods"] > 2 else "a"
        waiting = {"reason": "CreateContainerConfigError", "message": f'secret "{secret}" not found'}
        pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
        return pod


def test_each_reason_why_pods_cannot_start_is_told_and_is_that_of_its_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_soon(monkeypatch)
    handler = type("Handler", (StuckForTwoReasons,), {"asked": Counter()})
    said: list[str] = []
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        lost = start(say=said.append, may_fail=2)
    why = [f'CreateContainerConfigError: secret "{secret}" not found' for secret in "ab"]
    assert lost == {index: f"its pod cannot start: {each}" for index, each in enumerate(why)}
    assert all(isinstance(each, NeverRan) for each in lost.values())
    told = [text for text in said if "cannot start" in text]
    assert told == [f"pretrain: {2 - index} of 2 pods cannot start: {each}" for index, each in enumerate(why)]
