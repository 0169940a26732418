"""One box on many nodes: an Indexed Job, the same under every engine.

A Job has advantages over the engine's own loop. It gives each pod its own node (required anti-affinity; Kubeflow has
none), retries only lost pods, and continues if some are lost permanently. It costs one pod per worker; Kubeflow's loop
costs three. The engine's record of the run does not grow with the number of workers.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

from lipt.adapters.cluster.api import Cluster, MissingError
from lipt.adapters.cluster.manifest import JOB_LABEL, Pods, job_manifest
from lipt.errors import RunError

_SHORTEST_S, _LONGEST_S = 1.0, 10.0
#: All pods are listed when the Job has changed, and at this interval.
_LIST_S = 30.0
#: A pod on a lost node stays until it is removed. Its work may then be done twice, which is safe: both pods write the
#: same bytes to the same address.
_STUCK_S = 15
#: A pod that has run for less time never counts as slow.
_LEAST_GRACE_S = 60.0
#: The reason of pods that could not start.
NO_ROOM = "no node had room for it"
_NO_MEMORY = "out of memory (OOMKilled): raise `memory`"
_EXPLAINED = {"OOMKilled": _NO_MEMORY, "Evicted": "evicted by its node"}


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
    (out of memory) are not. A retried caller finds the Job that it started before. A stopped (not killed) caller
    deletes its Job.

    Args:
        name: part of the names of Job and pods.
        may_fail: number of indexes that may fail before the rest is stopped.
        say: receives messages about progress.
        advance: receives the number of finished pods and of all pods.
        room_within_s: give up if no pod gets a node for this long; None: wait until the deadline.
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
    try:
        found = cluster.get(path)
        if _condition(found):  # ended in an earlier attempt; its results are in the workspace
            cluster.delete(path)
            _until_gone(cluster, path)
            raise MissingError(path)
        say(f"{name}: continues with job {job['metadata']['name']}")
    except MissingError:
        cluster.create(jobs, job)
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
        lost = watch.wait(room_within_s=room_within_s, quorum=quorum, grace=pods.grace, together=together)
        if not watch.ended:
            cluster.delete(path)
        return lost
    except (KeyboardInterrupt, SystemExit):
        cluster.delete(path)
        raise


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

    def wait(self, *, room_within_s: float | None, quorum: int | None, grace: float, together: bool) -> dict[int, str]:
        """The reason, for every index that did not succeed."""
        last_placed = changed = listed = time.monotonic()
        seen: dict[str, Any] | None = None
        while True:
            job: dict[str, Any] = self.cluster.get(self.path)
            now = time.monotonic()
            state, status = _state(job), job.get("status", {})
            if state != seen:
                seen, changed = state, now
            elif now - listed < _LIST_S:  # no pod has changed
                time.sleep(pause_s(now - changed))
                continue
            listed = now
            pods = self._pods()
            running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
            self._tell(status.get("succeeded", 0), running, suspended=_is_suspended(job))
            if condition := _condition(job):
                self.ended = True
                return _lost(status, condition, self.completions, self.reasons)
            if together and _NO_MEMORY in self.reasons.values():
                return {index: why for index, why in self.reasons.items() if why == _NO_MEMORY}
            waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
            if not waiting or (running and not together):
                last_placed = now
            if room_within_s is not None and now - last_placed > room_within_s:
                return dict.fromkeys(range(self.completions), NO_ROOM)
            if quorum is not None and status.get("succeeded", 0) >= quorum and _all_slow(job, pods, grace):
                slow = {"message": f"slower than {grace:g} times the median of the finished ones"}
                failed = _indexes(status.get("failedIndexes", ""))
                known = {index: why for index, why in self.reasons.items() if index in failed}
                return _lost(status, slow, self.completions, known)
            time.sleep(pause_s(now - changed))

    def _pods(self) -> list[dict[str, Any]]:
        """The Job's pods. Pods on a lost node are removed, so that the Job starts them elsewhere."""
        where = f"/api/v1/namespaces/{self.namespace}/pods"
        pods: list[dict[str, Any]] = self.cluster.get(
            where, labelSelector=f"{JOB_LABEL}={self.path.rsplit('/', 1)[1]}"
        )["items"]
        for pod in pods:
            _note(pod, self.reasons)
            if _is_stuck(pod):
                name = pod["metadata"]["name"]
                self.say(f"{self.name}: {name} is on a node that does not answer: started elsewhere")
                _forget(self.cluster, f"{where}/{name}")
        return pods

    def _tell(self, done: int, running: list[dict[str, Any]], *, suspended: bool) -> None:
        self.advance(done, self.completions)
        nodes = sorted(pod["spec"]["nodeName"] for pod in running)
        text = f"{done} of {self.completions} pods done, {len(nodes)} running"
        text += f" ({', '.join(nodes)})" if nodes else ""
        text += ", suspended: waits in its queue" if suspended else ""
        if text != self.shown:
            self.say(f"{self.name}: {text}")
            self.shown = text


def _is_suspended(job: dict[str, Any]) -> bool:
    return bool(job.get("spec", {}).get("suspend"))


def _state(job: dict[str, Any]) -> dict[str, Any]:
    """The part of the Job that changes when one of its pods changes."""
    return {"status": job.get("status", {}), "suspended": _is_suspended(job)}


def _all_slow(job: dict[str, Any], pods: list[dict[str, Any]], grace: float) -> bool:
    """Whether all unfinished pods have run for more than `grace` times the median of the finished ones."""
    status = job["status"]
    took: list[float] = []
    running: list[float] = []
    for pod in pods:
        if pod["status"].get("phase") == "Succeeded":
            took.append(_seconds(pod))
        elif pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
            running.append(_seconds(pod))
    left = job["spec"]["completions"] - status["succeeded"] - len(_indexes(status.get("failedIndexes", "")))
    late = max(_LEAST_GRACE_S, grace * median(took)) if took else math.inf
    return bool(0 < left <= sum(seconds > late for seconds in running))


def _seconds(pod: dict[str, Any]) -> float:
    """Seconds that the pod's container has run."""
    for container in pod["status"].get("containerStatuses", []):
        state = container["state"]
        if span := state.get("running") or state.get("terminated"):
            end = span.get("finishedAt")
            until = datetime.fromisoformat(end) if end else datetime.now(UTC)
            return (until - datetime.fromisoformat(span["startedAt"])).total_seconds()
    return 0.0


def _lost(
    status: dict[str, Any], condition: dict[str, Any], completions: int, reasons: dict[int, str]
) -> dict[int, str]:
    """The reason, for every index that the finished Job did not complete; permanently failed ones first."""
    failed = set(range(completions)) - _indexes(status.get("completedIndexes", ""))
    late = condition.get("reason") == "DeadlineExceeded"
    default = "not finished before the deadline" if late else str(condition.get("message", "its pod was lost"))
    for_good = _indexes(status.get("failedIndexes", ""))
    ordered = sorted(failed, key=lambda index: (index not in for_good, index))
    return {index: default if late else reasons.get(index, default) for index in ordered}


def pause_s(quiet_s: float) -> float:
    """Seconds until the next query of a Job that has not changed for `quiet_s`: a twentieth of that, within bounds.

    So a run of days sends few requests, and a run of minutes does not wait long.
    """
    return min(max(_SHORTEST_S, quiet_s / 20), _LONGEST_S)


def _condition(job: dict[str, Any]) -> dict[str, Any] | None:
    """The condition that reports the Job's end; None while it runs."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return dict(condition)
    return None


def _note(pod: dict[str, Any], reasons: dict[int, str]) -> None:
    """Record why a pod failed, because pods disappear together with their messages."""
    if pod["status"].get("phase") != "Failed":
        return
    index = int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
    reason, message = pod["status"].get("reason", ""), pod["status"].get("message", "")
    for container in pod["status"].get("containerStatuses", []):
        if ended := container["state"].get("terminated"):
            code = ended.get("exitCode")
            reason = ended.get("reason", reason) if ended.get("reason") != "Error" else reason
            message = ended.get("message") or message or f"exit code {code}"
    reasons[index] = _EXPLAINED.get(reason, "") or " ".join(message.split()) or reason


def _is_stuck(pod: dict[str, Any]) -> bool:
    deleted = pod["metadata"].get("deletionTimestamp")
    if not deleted:
        return False
    due = datetime.fromisoformat(deleted)  # includes the grace period
    return (datetime.now(UTC) - due).total_seconds() > _STUCK_S


def _forget(cluster: Cluster, path: str) -> None:
    """Remove a pod whose node cannot confirm its end; the Job's finalizer would wait for that."""
    cluster.delete(path, gracePeriodSeconds=0)
    cluster.patch(path, {"metadata": {"finalizers": None}})


def _indexes(text: str) -> set[int]:
    """`0,2-4` -> {0, 2, 3, 4}."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _until_gone(cluster: Cluster, path: str) -> None:
    for _ in range(60):
        try:
            cluster.get(path)
        except MissingError:
            return
        time.sleep(1)
    raise RunError(f"{path} is not deleted", "delete it with kubectl, then try again")
