"""The fan-out while its Job runs, and when it gives a worker up."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lipt.adapters.cluster import job_watch
from lipt.adapters.cluster.fanout import ThisPod, run_job
from lipt.adapters.cluster.job_manifest import Pods
from lipt.adapters.cluster.job_watch import NO_ROOM, pause_s
from tests.unit.cluster.job_server import Server, start
from tests.unit.cluster.servers import serving, use_cluster


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


class Clock:
    """Time that passes only while the box waits, twenty seconds at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(job_watch, "time", self)
        for name in ("_SHORTEST_S", "_LONGEST_S"):
            monkeypatch.setattr(job_watch, name, 20.0)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def index_annotation(index: int) -> dict[str, str]:
    return {"batch.kubernetes.io/job-completion-index": str(index)}


class Slow(Server):
    """Five pods: three took 100 s each, one has failed for good, and one is still running."""

    completions = 5
    says_s = 0
    """For how long it has run, by the clocks of its node and of the box."""

    def _status(self) -> dict[str, Any]:
        over = {"succeeded": 3, "completedIndexes": "0-2", "failedIndexes": "3"}
        return {"active": 1, **over, "asked": self.asked["job"]}

    def _pods(self) -> list[dict[str, Any]]:
        now = datetime.now(UTC)
        ended = {"startedAt": (now - timedelta(seconds=100)).isoformat(), "finishedAt": now.isoformat()}
        running = {"startedAt": (now - timedelta(seconds=self.says_s)).isoformat()}
        states = [("Succeeded", {"terminated": ended})] * 3 + [("Running", {"running": running})]
        return [
            {
                "metadata": {"name": f"p{index}", "annotations": index_annotation(index + (index == 3))},
                "spec": {"nodeName": "n"},
                "status": {"phase": phase, "containerStatuses": [{"state": state}]},
            }
            for index, (phase, state) in enumerate(states)
        ]


@pytest.mark.parametrize("says_s", [0, 3600], ids=["", "clock behind"])
@pytest.mark.parametrize(("quorum", "grace", "ends_s"), [(3, 3.0, 300), (3, 1.0, 100), (3, 0.0, 60)])
def test_after_the_quorum_a_worker_is_given_up_that_takes_a_multiple_of_the_others(
    quorum: int, grace: float, ends_s: int, says_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However wrong the clock of its node is: a worker that has just started is not slow."""
    clock = Clock(monkeypatch)
    handler = type("Handler", (Slow,), {"asked": Counter(), "says_s": says_s})
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
    assert ends_s <= clock.now_s <= ends_s + 40
    assert handler.asked["deadline 1"] == 1  # its pods that have ended stay


class Small(Server):
    """Its second pod has not enough memory, and is started again; the first is done after five looks."""

    def _status(self) -> dict[str, Any]:
        done = self.asked["job"] >= 5
        return {"active": 1, "succeeded": 1, "completedIndexes": "0"} if done else {"active": 2}

    def _pods(self) -> list[dict[str, Any]]:
        short = self._pod(1)
        ended = {"exitCode": 137, "reason": "OOMKilled"}
        short["status"] = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}
        again = self._pod(1)
        again["metadata"]["name"] = "again"
        return [self._pod(0), short, again]


def test_a_worker_out_of_memory_is_given_up_when_the_others_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    handler = type("Handler", (Small,), {"asked": Counter()})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        assert start(say=lambda _text: None) == {1: "out of memory (OOMKilled): raise `memory`"}
    assert handler.asked["job"] == 5
    assert handler.asked["deadline 1"] == 1  # its pods that have ended stay


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


class Unplaced(Server):
    """Three of four jigsaws are done; no node has room for the last one."""

    completions = 4

    def _status(self) -> dict[str, Any]:
        return {"active": 1, "succeeded": 3, "completedIndexes": "0-2", "asked": self.asked["job"]}

    def _pods(self) -> list[dict[str, Any]]:
        now = datetime.now(UTC)
        ended = {"startedAt": (now - timedelta(seconds=0.1)).isoformat(), "finishedAt": now.isoformat()}
        over = {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": ended}}]}
        done = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": over}
        return [done] * 3 + [{"metadata": {"name": "q"}, "spec": {}, "status": {"phase": "Pending"}}]


def test_after_the_quorum_a_worker_that_gets_no_node_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    monkeypatch.setattr(job_watch, "ADMITTED_WITHIN_S", 0.3)
    monkeypatch.setattr("lipt.adapters.cluster.job_status._LEAST_GRACE_S", 0.1)
    handler = type("Handler", (Unplaced,), {"asked": Counter()})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        assert start(completions=4, quorum=3, say=lambda _text: None) == {3: NO_ROOM}


def lost_workers(
    server: type[Server], folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[dict[int, str], float]:
    """The reasons of the workers that a Job of this server loses, by index, and the seconds until then."""
    clock = Clock(monkeypatch)
    handler = type("Handler", (server,), {"asked": Counter()})
    with serving(handler) as address:
        use_cluster(address, folder, monkeypatch)
        return start(say=lambda _text: None, **options), clock.now_s


class Full(Server):
    """A Job of one jigsaw that no node ever takes."""

    completions = 1

    def _status(self) -> dict[str, Any]:
        return {"active": 1}

    def _pods(self) -> list[dict[str, Any]]:
        return [{"metadata": {"name": "q"}, "spec": {}, "status": {"phase": "Pending"}}]


def test_a_repeat_of_lost_workers_that_get_no_node_does_not_hold_up_a_merge_that_has_its_quorum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of its pods has finished, so there is no median to compare with."""
    lost, after_s = lost_workers(Full, tmp_path, monkeypatch, completions=1, quorum=0)
    assert lost == {0: NO_ROOM}
    assert 1200 < after_s < 1300


class Hung(Unplaced):
    """Two of four jigsaws are done, one hangs, and no node has room for the last one."""

    def _status(self) -> dict[str, Any]:
        return {"active": 2, "succeeded": 2, "completedIndexes": "0-1"}

    def _pods(self) -> list[dict[str, Any]]:
        done, _, _, waiting = super()._pods()
        hung = {
            "metadata": {"name": "h", "annotations": index_annotation(2)},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running"},
        }
        return [done, done, hung, waiting]


def test_a_worker_that_hangs_does_not_lend_its_time_to_one_that_gets_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alone is given up long before the deadline."""
    lost, after_s = lost_workers(Hung, tmp_path, monkeypatch, completions=4, quorum=2)
    assert lost == {2: "slower than 3 times the median of the finished ones", 3: NO_ROOM}
    assert 600 < after_s < 800


def test_a_job_that_does_not_change_is_looked_at_less_and_less() -> None:
    assert [pause_s(quiet_s) for quiet_s in (0, 10, 60, 86_400)] == [1, 1, 3, 10]
