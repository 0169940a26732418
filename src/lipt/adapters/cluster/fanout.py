"""One box on many nodes: an Indexed Job, the same under every engine.

A Job has advantages over the engine's own loop. It gives each pod its own node (required anti-affinity; Kubeflow has
none), retries only lost pods, and continues if some are lost permanently. It costs one pod per worker; Kubeflow's loop
costs three. The engine's record of the run does not grow with the number of workers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lipt.adapters.cluster import job_status
from lipt.adapters.cluster.admission import remedy_of
from lipt.adapters.cluster.api import Cluster, MissingError, RefusedError, drawn_name
from lipt.adapters.cluster.manifest import JOB_LABEL, RUN_LABEL, Pods, job_manifest
from lipt.errors import LiptError, RunError

_SHORTEST_S, _LONGEST_S = 1.0, 10.0
#: All pods are listed when the Job has changed, and at this interval.
_LIST_S = 30.0
#: The reason of pods that could not start.
NO_ROOM = "no node had room for it"
#: Starts the reason of pods that the namespace did not admit.
REFUSED = "the namespace does not admit its pod: "
#: Seconds for which a Job goes on whose box was stopped. A box that is drained comes back within a minute, or when its
#: image is pulled.
_ORPHAN_S = 600
#: Seconds for which a fan-out without `room_within_s` waits until one of its pods is admitted.
_ADMITTED_WITHIN_S = 600.0
#: The most characters of an Event's message.
_MESSAGE = 1024


@dataclass(frozen=True, kw_only=True)
class ThisPod:
    """The pod that this process runs in, from its environment."""

    namespace: str
    pod: str

    @classmethod
    def find(cls) -> ThisPod | None:
        """None outside a pod of a pipeline."""
        pod, namespace = os.environ.get("LIPT_POD"), os.environ.get("LIPT_NAMESPACE")
        return cls(namespace=namespace, pod=pod) if pod and namespace else None


def run_job(
    here: ThisPod,
    pods: Pods,
    *,
    name: str,
    arguments: Sequence[str],
    completions: int,
    may_fail: int,
    say: Callable[[str], None],
    advance: Callable[[int, int], None] = lambda _done, _total: None,
    room_within_s: float | None = None,
    quorum: int | None = None,
    together: bool = False,
) -> dict[int, str]:
    """Run `lipt ARGUMENTS` in `completions` pods, each with JOB_COMPLETION_INDEX, and wait for the end.

    With GPUs, a node runs at most one pod of the Job. Lost pods and exit code 3 are retried; exit codes 1, 2 and 137
    (out of memory) are not. A caller that is started again takes over the Job that it started before. The Job of a
    stopped caller goes on for ten minutes; then Kubernetes ends it, unless the caller is back.

    Args:
        name: part of the names of Job and pods.
        may_fail: number of indexes that may fail before the rest is stopped.
        say: receives messages about progress.
        advance: receives the number of finished pods and of all pods.
        room_within_s: give up if no pod gets a node for this long; None: wait until the deadline. Pods that the
            namespace does not admit (quota, limits) are given up after this time, or ten minutes.
        quorum: once this number of pods is done, end those that take too long (`Pods.grace`); None: wait for all.
        together: the pods share one training. They reach the first one under the name in FIRST_POD, there is no
            deadline, and all of them need a node at the same time.

    Returns:
        The reason, for every index that did not succeed.
    """
    cluster = Cluster()
    jobs = f"/apis/batch/v1/namespaces/{here.namespace}/jobs"
    run, owner = _owner(cluster, here)
    job = job_manifest(
        pods,
        run=run,
        owner=owner,
        name=name,
        arguments=arguments,
        completions=completions,
        may_fail=may_fail,
        together=together,
    )
    path = f"{jobs}/{job['metadata']['name']}"
    watch = _Watch(
        cluster=cluster,
        namespace=here.namespace,
        path=path,
        completions=completions,
        name=name,
        say=say,
        advance=advance,
    )
    try:
        _start(cluster, jobs, job, name, say)
        lost = watch.wait(room_within_s=room_within_s, quorum=quorum, grace=pods.grace, together=together)
        if not watch.ended:
            cluster.delete(path)
        if lost:
            _record(cluster, here.namespace, owner, name, lost)
        return lost
    except (KeyboardInterrupt, SystemExit):
        _orphan(cluster, path)
        raise


def _start(cluster: Cluster, jobs: str, job: dict[str, Any], name: str, say: Callable[[str], None]) -> None:
    """Create a Job, or take over the one that an earlier attempt of this box has created."""
    path = f"{jobs}/{job['metadata']['name']}"
    try:
        found = cluster.get(path)
        if job_status.is_over(found):  # ended in an earlier attempt; its results are in the workspace
            cluster.delete(path)
            _until_gone(cluster, path)
            raise MissingError(f"{path} has ended", "create it again")
        say(f"{name}: continues with job {job['metadata']['name']}")
        cluster.patch(path, {"spec": {"activeDeadlineSeconds": job["spec"].get("activeDeadlineSeconds")}})
    except MissingError:
        cluster.create(jobs, job)


def running_arguments(here: ThisPod, name: str) -> list[list[str]]:
    """The arguments of the Jobs that an earlier attempt of this box has started under this name, and that still run."""
    cluster = Cluster()
    run, _ = _owner(cluster, here)
    selected = f"{RUN_LABEL}={run},app.kubernetes.io/component={name}"
    jobs = cluster.get(f"/apis/batch/v1/namespaces/{here.namespace}/jobs", labelSelector=selected)["items"]
    return [job["spec"]["template"]["spec"]["containers"][0]["args"] for job in jobs if not job_status.is_over(job)]


def _record(cluster: Cluster, namespace: str, owner: dict[str, Any], name: str, lost: dict[int, str]) -> None:
    """Leave a Kubernetes Event about lost workers on the run, if this account may do that."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "metadata": {"name": drawn_name(owner["name"]), "namespace": namespace},
        "involvedObject": owner | {"namespace": namespace},
        "type": "Warning",
        "reason": "WorkersLost",
        "message": "; ".join(f"{name}[{index}]: {why}" for index, why in lost.items())[:_MESSAGE],
        "source": {"component": "lipt"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    with suppress(LiptError):  # no run fails for it
        cluster.create(f"/api/v1/namespaces/{namespace}/events", event)


def _orphan(cluster: Cluster, path: str) -> None:
    """Let the Job end after `_ORPHAN_S`; deleting the workflow still deletes it at once."""
    with suppress(MissingError):
        job = cluster.get(path)
        until = job_status.age_s(job) + _ORPHAN_S
        limit = job["spec"].get("activeDeadlineSeconds")
        cluster.patch(path, {"spec": {"activeDeadlineSeconds": min(until, limit) if limit else until}})


def _owner(cluster: Cluster, here: ThisPod) -> tuple[str, dict[str, Any]]:
    """The run's name, and the owner of its objects: the workflow, so that deleting it deletes everything."""
    pod = cluster.get(f"/api/v1/namespaces/{here.namespace}/pods/{here.pod}")["metadata"]
    run = pod.get("labels", {}).get("workflows.argoproj.io/workflow", here.pod)
    for reference in pod.get("ownerReferences", []):
        owner = {key: reference[key] for key in ("apiVersion", "kind", "name", "uid")}
        return run, owner
    return run, {"apiVersion": "v1", "kind": "Pod", "name": here.pod, "uid": pod["uid"]}


@dataclass(kw_only=True)
class _Watch:
    """Watches a Job and its pods until the Job ends or must be ended."""

    cluster: Cluster
    namespace: str
    path: str
    completions: int
    name: str
    say: Callable[[str], None]
    advance: Callable[[int, int], None]
    ended: bool = False
    """Whether the Job ended by itself."""
    reasons: dict[int, str] = field(default_factory=dict)
    shown: str = ""
    refused: str = ""
    """Why the namespace does not admit the missing pods; empty if it does."""

    def wait(self, *, room_within_s: float | None, quorum: int | None, grace: float, together: bool) -> dict[int, str]:
        """The reason, for every index that did not succeed."""
        last_placed = last_admitted = changed = listed = time.monotonic()
        seen: dict[str, Any] | None = None
        while True:
            job = self._job()
            now = time.monotonic()
            state, status = job_status.state(job), job.get("status", {})
            missing = job_status.missing(job)
            if state != seen:
                seen, changed = state, now
            elif now - listed < _LIST_S and not missing:  # no pod has changed
                time.sleep(pause_s(now - changed))
                continue
            listed = now
            pods = self._pods()
            running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
            self._tell(status.get("succeeded", 0), running, suspended=job_status.is_suspended(job))
            if condition := job_status.condition(job):
                self.ended = True
                return job_status.lost(status, condition, self.completions, self.reasons)
            if together and job_status.NO_MEMORY in self.reasons.values():
                return {index: why for index, why in self.reasons.items() if why == job_status.NO_MEMORY}
            self._note_refusal(missing, pods)
            waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
            if not waiting or (running and not together):
                last_placed = now
            if not self.refused or ((waiting or running) and not together):
                last_admitted = now
            left = set(range(self.completions)) - job_status.indexes(status.get("completedIndexes", ""))
            if now - last_admitted > (room_within_s or _ADMITTED_WITHIN_S):
                return dict.fromkeys(sorted(left), f"{REFUSED}{self.refused}")
            if room_within_s is not None and now - last_placed > room_within_s:
                return dict.fromkeys(sorted(left), NO_ROOM)
            if quorum is not None and status.get("succeeded", 0) >= quorum and job_status.all_slow(job, pods, grace):
                slow = {"message": f"slower than {grace:g} times the median of the finished ones"}
                failed = job_status.indexes(status.get("failedIndexes", ""))
                known = {index: why for index, why in self.reasons.items() if index in failed}
                return job_status.lost(status, slow, self.completions, known)
            time.sleep(pause_s(now - changed))

    def _job(self) -> dict[str, Any]:
        try:
            return self.cluster.get(self.path)
        except MissingError:
            job = self.path.rsplit("/", 1)[1]
            raise RunError(
                f"{self.name}: somebody deleted job {job}", "run again: what its pods have finished is reused"
            ) from None

    def _pods(self) -> list[dict[str, Any]]:
        """The Job's pods. Pods on a lost node are removed, so that the Job starts them elsewhere."""
        where = f"/api/v1/namespaces/{self.namespace}/pods"
        pods: list[dict[str, Any]] = self.cluster.get(
            where, labelSelector=f"{JOB_LABEL}={self.path.rsplit('/', 1)[1]}"
        )["items"]
        for pod in pods:
            job_status.note(pod, self.reasons)
            if job_status.is_stuck(pod):
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

    def _tell(self, done: int, running: list[dict[str, Any]], *, suspended: bool) -> None:
        self.advance(done, self.completions)
        nodes = sorted(pod["spec"]["nodeName"] for pod in running)
        text = f"{done} of {self.completions} pods done, {len(nodes)} running"
        text += f" ({', '.join(nodes)})" if nodes else ""
        text += ", suspended: waits in its queue" if suspended else ""
        if text != self.shown:
            self.say(f"{self.name}: {text}")
            self.shown = text


def pause_s(quiet_s: float) -> float:
    """Seconds until the next query of a Job that has not changed for `quiet_s`: a twentieth of that, within bounds.

    So a run of days sends few requests, and a run of minutes does not wait long.
    """
    return min(max(_SHORTEST_S, quiet_s / 20), _LONGEST_S)


def _forget(cluster: Cluster, path: str) -> None:
    """Remove a pod whose node cannot confirm its end; the Job's finalizer would wait for that."""
    cluster.delete(path, gracePeriodSeconds=0)
    cluster.patch(path, {"metadata": {"finalizers": None}})


def _until_gone(cluster: Cluster, path: str) -> None:
    for _ in range(60):
        try:
            cluster.get(path)
        except MissingError:
            return
        time.sleep(1)
    raise RunError(f"{path} is not deleted", "delete it with kubectl, then try again")
