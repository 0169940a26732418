"""Reads the status of a Job and of its pods."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from lipt.adapters.cluster.admission import reason_of
from lipt.adapters.cluster.api import Cluster, RefusedError
from lipt.adapters.cluster.engine import STARTING
from lipt.adapters.cluster.waiting import CANNOT_START, Waiting, waits
from lipt.errors import BUG

#: A pod on a lost node stays until it is removed. Its work may then be done twice, which is safe: both pods write the
#: same bytes to the same address.
_STUCK_S = 15
#: A pod that has run for less time never counts as slow.
_LEAST_GRACE_S = 60.0
NO_MEMORY = "out of memory (OOMKilled): raise `memory`"
#: Reasons of events: its containers are not created.
_NOT_CREATED = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
#: A pod that is younger is not asked for such events: some of them pass by themselves.
_CREATED_WITHIN = timedelta(seconds=30)
#: At most this many pods are asked at a time: a thousand may wait for their image. Those that start leave the others.
_ASKED = 5
_EVICTED = "evicted by its node"


class Bug(str):
    """The reason of a pod that met a bug: its box fails, because every other pod would meet it too."""

    @property
    def exception(self) -> str:
        return self.removeprefix(BUG)


def is_suspended(job: dict[str, Any]) -> bool:
    return bool(job.get("spec", {}).get("suspend"))


def age_s(job: dict[str, Any], now: datetime) -> int:
    """Seconds since the Job started: what its deadline counts.

    Args:
        now: by the clock of the cluster, here and below.
    """
    started = job.get("status", {}).get("startTime")
    return int((now - _time(started)).total_seconds()) if started else 0


def missing(job: dict[str, Any]) -> int:
    """The number of pods that the Job should have now and does not have."""
    if is_suspended(job):
        return 0
    wanted = min(left(job), int(job["spec"]["parallelism"]))  # Kueue may lower the latter
    return max(0, wanted - int(job.get("status", {}).get("active", 0)))


def state(job: dict[str, Any]) -> dict[str, Any]:
    """The part of the Job that changes when one of its pods changes."""
    return {"status": job.get("status", {}), "suspended": is_suspended(job)}


def is_placed(pod: dict[str, Any]) -> bool:
    """Whether a pod that is not over has a node."""
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") in ("Pending", "Running")


def left(job: dict[str, Any]) -> int:
    """The number of indexes that are neither done nor given up."""
    status = job.get("status", {})
    over = status.get("succeeded", 0) + len(indexes(status.get("failedIndexes", "")))  # none yet: the key is missing
    return int(job["spec"]["completions"]) - int(over)


def late_s(pods: list[dict[str, Any]], grace: float) -> float:
    """`grace` times the median of the seconds that the finished pods took; infinite if none has finished."""
    took = [_seconds(pod) for pod in pods if pod["status"].get("phase") == "Succeeded"]
    return max(_LEAST_GRACE_S, grace * median(took)) if took else math.inf


def _seconds(pod: dict[str, Any]) -> float:
    """Seconds that the container of a finished pod ran."""
    for container in pod["status"].get("containerStatuses", []):
        if span := container["state"].get("terminated"):
            return (_time(span["finishedAt"]) - _time(span["startedAt"])).total_seconds()
    return 0.0


def lost(
    status: dict[str, Any], condition: dict[str, Any], completions: int, reasons: dict[int, str]
) -> dict[int, str]:
    """The reason, for every index that the finished Job did not complete; permanently failed ones first."""
    failed = set(range(completions)) - indexes(status.get("completedIndexes", ""))
    late = condition.get("reason") == "DeadlineExceeded"
    default: str = "not finished before the deadline" if late else condition.get("message", "its pod was lost")
    for_good = indexes(status.get("failedIndexes", ""))
    ordered = sorted(failed, key=lambda index: (index not in for_good, index))
    return {index: default if late and index not in for_good else reasons.get(index, default) for index in ordered}


def out_of_memory(
    status: dict[str, Any], completions: int, may_fail: int, reasons: dict[int, str], *, together: bool
) -> dict[int, str]:
    """The reason, for every index that is lost, if memory ends the Job; empty: it goes on.

    A training ends with its first pod that had too little. Other Jobs end when nothing else is left, or more than
    `may_fail` are lost. (Their policy cannot give up an index: a pod that was killed for any other reason has the same
    exit code.)
    """
    short = {index for index, why in reasons.items() if why == NO_MEMORY}
    if together:
        return {index: reasons[index] for index in sorted(short)}
    left = set(range(completions)) - indexes(status.get("completedIndexes", ""))
    given_up = left & (short | indexes(status.get("failedIndexes", "")))
    if short & left and (given_up == left or len(given_up) > may_fail):
        return lost(status, {"message": "too many others ran out of memory"}, completions, reasons)
    return {}


def condition(job: dict[str, Any], *types: str) -> dict[str, Any] | None:
    """The condition that reports the Job's end, or one of these types; None while it runs."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed", *types) and condition["status"] == "True":
            return dict(condition)
    return None


def is_over(job: dict[str, Any]) -> bool:
    """Whether it has ended, is about to fail when its pods have ended, or is being deleted."""
    return condition(job, "FailureTarget") is not None or "deletionTimestamp" in job.get("metadata", {})


def index_of(pod: dict[str, Any]) -> int:
    """The part of the Job that the pod does."""
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


def note(pod: dict[str, Any], reasons: dict[int, str]) -> None:
    """Record why a pod failed, because pods disappear together with their messages."""
    if pod["status"].get("phase") != "Failed":
        return
    index = index_of(pod)
    reason, told = pod["status"].get("reason", ""), pod["status"].get("message", "")
    message = told
    for container in pod["status"].get("containerStatuses", []):
        if ended := container["state"].get("terminated"):
            code = ended.get("exitCode")
            reason = ended.get("reason", reason) if ended.get("reason") != "Error" else reason
            message = ended.get("message") or message or f"exit code {code}"
    if reason == "OOMKilled":
        reasons[index] = NO_MEMORY
    elif reason == "Evicted":  # the node says what it had too little of; the container only that it was stopped
        reasons[index] = ": ".join(filter(None, [_EVICTED, " ".join(told.split())]))
    else:
        text = " ".join(message.split()) or reason
        reasons[index] = Bug(text) if text.startswith(BUG) else text


def is_stuck(pod: dict[str, Any], now: datetime) -> bool:
    deleted = pod["metadata"].get("deletionTimestamp")  # includes the grace period
    return bool(deleted) and (now - _time(deleted)).total_seconds() > _STUCK_S


def not_starting(
    cluster: Cluster, namespace: str, pods: Iterable[dict[str, Any]]
) -> list[tuple[dict[str, Any], Waiting]]:
    """The pods that have a node and cannot start there, each with the reason."""
    found, creating, now = [], [], cluster.now()
    for pod in pods:
        waiting = waits(pod)
        if waiting.reason in CANNOT_START:
            found.append((pod, waiting))
        elif waiting.reason in STARTING and now - _time(pod["metadata"]["creationTimestamp"]) > _CREATED_WITHIN:
            creating.append(pod)
    asked = [(pod, _not_created(cluster, namespace, pod)) for pod in creating[:_ASKED]]
    return found + [(pod, waiting) for pod, waiting in asked if waiting.reason]


def _not_created(cluster: Cluster, namespace: str, pod: dict[str, Any]) -> Waiting:
    """Why the pod has no containers yet; empty if nothing is known: its image may be on its way."""
    selected = f"involvedObject.kind=Pod,involvedObject.name={pod['metadata']['name']}"
    try:
        events = cluster.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selected)["items"]
    except RefusedError:
        return Waiting()
    told = [(_when(event), event["reason"], event["message"]) for event in events]
    _, kind, message = max(told, default=(_NEVER, "", ""))  # when a later attempt succeeded: Pulling
    return Waiting(kind, " ".join(message.split())) if kind in _NOT_CREATED else Waiting()


def indexes(text: str) -> set[int]:
    """`0,2-4` -> {0, 2, 3, 4}."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def refusal(cluster: Cluster, namespace: str, job: str, pods: list[dict[str, Any]]) -> str:
    """Why the last pod that a Job wanted to create was refused, from the Job's events; empty if it was not.

    Args:
        pods: of this Job. A refusal that is older than the newest of them is over.

    Raises:
        RefusedError: these credentials may not list events.
    """
    selected = f"involvedObject.kind=Job,involvedObject.name={job},reason=FailedCreate"
    events = cluster.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selected)["items"]
    newest = max((_time(pod["metadata"]["creationTimestamp"]) for pod in pods), default=_NEVER)
    told = [(_when(event), event["message"]) for event in events]
    when, message = max(told, default=(_NEVER, ""))
    return reason_of(message) if when >= newest else ""


def _when(event: dict[str, Any]) -> datetime:
    return _time(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


_NEVER = datetime.min.replace(tzinfo=UTC)
_time = datetime.fromisoformat
