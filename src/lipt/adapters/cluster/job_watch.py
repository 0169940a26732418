"""Watches a Job and its pods until the Job ends or must be ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from lipt.adapters.cluster import job_status
from lipt.adapters.cluster.admission import remedy_of
from lipt.adapters.cluster.api import Cluster, MissingError, RefusedError
from lipt.adapters.cluster.job_manifest import JOB_LABEL, LEASE_S
from lipt.adapters.cluster.waiting import Waiting, by_cause
from lipt.errors import RunError

_SHORTEST_S, _LONGEST_S = 1.0, 10.0
#: All pods are listed when the Job has changed, and at this interval.
_LIST_S = 30.0


class NeverRan(str):
    """The reason of a pod that never ran: another Job with fewer pods may succeed."""


NO_ROOM = NeverRan("no node had room for it")
#: Time for an autoscaler to start GPU nodes with their drivers, or for an earlier pod to end.
ROOM_WITHIN_S = 1200.0
#: Seconds until a training whose pods all ran before gives up the node that it waits for: a smaller one takes longer.
_ROOM_AGAIN_S = 3600.0
#: Seconds for which a fan-out without `room_within_s` waits until one of its pods is admitted, or can start. From the
#: quorum on, also until one of those that are left gets a node; if none has finished, that may take `ROOM_WITHIN_S`.
ADMITTED_WITHIN_S = 600.0


@dataclass(kw_only=True)
class _Clocks:
    """When a Job last had what it needs, in seconds of `time.monotonic`."""

    placed: float
    """Each pod had a node, or one ran that needs no others."""
    admitted: float
    """No pod was refused or stuck, or there was one that needs no others."""
    active: float
    """A pod that is not slow had a node, or the Job was suspended."""

    def set(
        self,
        now: float,
        job: dict[str, Any],
        pods: list[dict[str, Any]],
        *,
        slow: Container[str],
        hindered: bool,
        together: bool,
    ) -> None:
        """
        Args:
            slow: names of pods.
            hindered: pods are refused or stuck.
            together: a pod needs all others.
        """
        waiting, running = [pod for pod in pods if not pod["spec"].get("nodeName")], _running(pods)
        others = [pod for pod in pods if pod["metadata"]["name"] not in slow]
        if job_status.is_suspended(job) or any(map(job_status.is_placed, others)):
            self.active = now
        if not waiting or (running and not together):
            self.placed = now
        if not hindered or ((waiting or running) and not together):
            self.admitted = now


def _running(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pod for pod in pods if pod["status"].get("phase") == "Running"]


@dataclass(kw_only=True)
class JobWatch:
    """One Job, and what has been told about it."""

    cluster: Cluster
    namespace: str
    path: str
    completions: int
    may_fail: int
    name: str
    say: Callable[[str], None]
    advance: Callable[[int, int], None]
    ended: bool = False
    """Whether the Job ended by itself."""
    reasons: dict[int, str] = field(default_factory=dict)
    shown: str = ""
    refused: str = ""
    """Why the namespace does not admit the missing pods; empty if it does."""
    stuck: dict[int, Waiting] = field(default_factory=dict)
    """Index -> why its pod cannot start on its node."""
    told: set[tuple[str, ...]] = field(default_factory=set)
    """The causes of this that were told."""
    running: dict[str, float] = field(default_factory=dict)
    """Name of a pod that runs -> when it was first seen to run, in seconds of `time.monotonic`. The pod itself says it
    by the clock of its node. If that were wrong, a worker that has just started could be taken for a slow one."""

    def wait(self, *, room_within_s: float | None, quorum: int | None, grace: float, together: bool) -> dict[int, str]:
        """The reason, for every index that did not succeed."""
        changed = listed = time.monotonic()
        clocks, room_s = _Clocks(placed=changed, admitted=changed, active=changed), room_within_s
        seen: dict[str, Any] | None = None
        while True:
            job = self._job()
            if together:
                self._keep(job)
            now = time.monotonic()
            state, missing = job_status.state(job), job_status.missing(job)
            if state != seen:
                seen, changed = state, now
            elif now - listed < _LIST_S and not missing:  # no pod has changed
                time.sleep(pause_s(now - changed))
                continue
            listed, pods = now, self._pods()
            self._tell(job, pods)
            if (lost := self._ended(job, together=together)) is not None:
                return lost
            self._note_refusal(missing, pods)
            self._note_stuck(pods)
            late_s = job_status.late_s(pods, grace)
            slow = self._slow(now, pods, late_s)
            clocks.set(now, job, pods, slow=slow, hindered=bool(self.refused or self.stuck), together=together)
            if together and room_s is not None and len(_running(pods)) == self.completions:
                room_s = max(room_s, _ROOM_AGAIN_S)
            if now - clocks.admitted > (room_within_s or ADMITTED_WITHIN_S):
                return self._hindered(job)
            if room_s is not None and now - clocks.placed > room_s:
                return self._without(job, NO_ROOM)
            if quorum is not None and job.get("status", {}).get("succeeded", 0) >= quorum:
                idle = now - clocks.active > (max(ADMITTED_WITHIN_S, late_s) if isfinite(late_s) else ROOM_WITHIN_S)
                if idle or 0 < job_status.left(job) <= len(slow):
                    why = f"slower than {grace:g} times the median of the finished ones"
                    return self._without(job, NO_ROOM if idle else why) | dict.fromkeys(slow.values(), why)
            time.sleep(pause_s(now - changed))

    def _slow(self, now: float, pods: list[dict[str, Any]], late_s: float) -> dict[str, int]:
        """The pods that have run for more than `late_s` seconds: name -> index."""
        alive = {pod["metadata"]["name"]: pod for pod in _running(pods) if "deletionTimestamp" not in pod["metadata"]}
        self.running = {name: self.running.get(name, now) for name in alive}
        return {name: job_status.index_of(alive[name]) for name, since in self.running.items() if now - since > late_s}

    def _ended(self, job: dict[str, Any], *, together: bool) -> dict[int, str] | None:
        """The reason, for every index that is lost, if the Job has ended, or if memory ends it; None: it goes on."""
        status = job.get("status", {})
        if condition := job_status.condition(job):
            self.ended = True
            return job_status.lost(status, condition, self.completions, self.reasons)
        return (
            job_status.out_of_memory(status, self.completions, self.may_fail, self.reasons, together=together) or None
        )

    def _hindered(self, job: dict[str, Any]) -> dict[int, str]:
        """The reason, for every index that is not completed, if pods are refused or stuck."""
        if self.refused:
            return self._without(job, NeverRan(f"the namespace does not admit its pod: {self.refused}"))
        stuck = {index: NeverRan(f"its pod cannot start: {waiting}") for index, waiting in self.stuck.items()}
        first = next(iter(stuck.values()))
        return {
            index: stuck.get(index, first) if why == first else why for index, why in self._without(job, first).items()
        }

    def _without(self, job: dict[str, Any], why: str) -> dict[int, str]:
        """This reason for every index that is not completed; those that have failed for good keep their own."""
        status = job.get("status", {})
        failed = job_status.indexes(status.get("failedIndexes", ""))
        known = {index: reason for index, reason in self.reasons.items() if index in failed}
        return job_status.lost(status, {"message": why}, self.completions, known)

    def _job(self) -> dict[str, Any]:
        try:
            return self.cluster.get(self.path)
        except MissingError:
            job = self.path.rsplit("/", 1)[1]
            raise RunError(
                f"{self.name}: somebody deleted job {job}", "run again: what its pods have finished is reused"
            ) from None

    def _keep(self, job: dict[str, Any]) -> None:
        """Move the deadline of a training on. While a Job is suspended, the clock of its deadline stands."""
        if job_status.is_suspended(job) or job_status.condition(job, "FailureTarget"):
            return
        until = job_status.age_s(job, self.cluster.now()) + LEASE_S
        if not 0 <= until - job["spec"]["activeDeadlineSeconds"] <= LEASE_S / 2:
            self.cluster.patch(self.path, {"spec": {"activeDeadlineSeconds": until}})

    def _pods(self) -> list[dict[str, Any]]:
        """The Job's pods. Pods on a lost node are removed, so that the Job starts them elsewhere."""
        where = f"/api/v1/namespaces/{self.namespace}/pods"
        pods: list[dict[str, Any]] = self.cluster.get(
            where, labelSelector=f"{JOB_LABEL}={self.path.rsplit('/', 1)[1]}"
        )["items"]
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
            job_status.note(pod, self.reasons)  # of several pods of one index, the last one counts
            if job_status.is_stuck(pod, self.cluster.now()):
                name = pod["metadata"]["name"]
                self.say(f"{self.name}: {name} is on a node that does not answer: started elsewhere")
                _forget(self.cluster, f"{where}/{name}")
        return pods

    def _note_refusal(self, missing: int, pods: list[dict[str, Any]]) -> None:
        """Find out why pods are missing, and tell it. (A pod that is started again is missing for a while, too.)"""
        job, refused = self.path.rsplit("/", 1)[1], ""
        try:
            if missing and (reason := job_status.refusal(self.cluster, self.namespace, job, pods)):
                refused = f"{reason} -> {remedy_of(reason, self.namespace)}"
        except RefusedError:
            if not pods:
                refused = f"this account may not see why -> kubectl -n {self.namespace} describe job {job}"
        if refused and refused != self.refused:
            self.say(f"{self.name}: {missing} of {self.completions} pods are not admitted: {refused}")
        self.refused = refused

    def _note_stuck(self, pods: list[dict[str, Any]]) -> None:
        """Find out why pods that have a node do not start, and tell it."""
        found = job_status.not_starting(self.cluster, self.namespace, pods)
        self.stuck = {job_status.index_of(pod): waiting for pod, waiting in found}
        for count, waiting in by_cause(self.stuck.values()):
            if waiting.cause not in self.told:
                self.say(f"{self.name}: {count} of {self.completions} pods cannot start: {waiting}")
                self.told.add(waiting.cause)
        if not found:  # if they are stuck again, that is news
            self.told.clear()

    def _tell(self, job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        done = job.get("status", {}).get("succeeded", 0)
        self.advance(done, self.completions)
        nodes = sorted(pod["spec"]["nodeName"] for pod in _running(pods))
        text = f"{done} of {self.completions} pods done, {len(nodes)} running"
        more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
        text += f" ({', '.join(nodes[:_NAMED])}{more})" if nodes else ""
        text += ", suspended: waits in its queue" if job_status.is_suspended(job) else ""
        if text != self.shown:
            self.say(f"{self.name}: {text}")
            self.shown = text


#: Nodes that a line names.
_NAMED = 8


def pause_s(quiet_s: float) -> float:
    """Seconds until the next query of a Job that has not changed for `quiet_s`: a twentieth of that, within bounds.

    So a run of days sends few requests, and a run of minutes does not wait long.
    """
    return min(max(_SHORTEST_S, quiet_s / 20), _LONGEST_S)


def _forget(cluster: Cluster, path: str) -> None:
    """Remove a pod whose node cannot confirm its end; the Job's finalizer would wait for that."""
    cluster.delete(path, gracePeriodSeconds=0)
    cluster.patch(path, {"metadata": {"finalizers": None}})
