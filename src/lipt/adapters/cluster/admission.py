"""Why a cluster does not let a pod be created, and what to do: quota, limits, Pod Security, missing objects.

A Job whose pods are refused has no pods that could tell why. Its events do.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lipt.adapters.cluster.api import Objects

#: Part of a refusal -> what to do about it.
_REMEDIES = {
    "exceeded quota": "`kubectl -n {namespace} describe quota` shows what is used: wait, or have it raised, or lower "
    "-p cpu, memory, gpus, nodes",
    "failed quota": "this quota wants limits that LiPT does not set: add a LimitRange with defaults to {namespace} "
    "(docs/howto/cluster.md, Quotas)",
    "error looking up service account": "install the account: kubectl apply -k of your overlay",
    "violates PodSecurity": "LiPT meets the level `restricted`: another part of the pod does not; "
    "`kubectl -n {namespace} get events` names it",
    "no PriorityClass": "-p priority=NAME, one of `kubectl get priorityclasses`",
    "usage per ": "`kubectl -n {namespace} describe limits` shows the bounds: change -p cpu, memory",
    "must be less than or equal to cpu limit": "the LimitRange of {namespace} has a smaller default limit: lower -p "
    "cpu, or raise `default.cpu` there",
    "admission webhook": "ask whoever runs that webhook",
}
_NEAREST = "`kubectl -n {namespace} get events` has the whole message; an administrator of {namespace} can help"


def reason_of(message: str) -> str:
    """The reason in a refusal, without the name of the object, which differs from attempt to attempt."""
    text = " ".join(message.split()).rpartition("Error creating: ")[2]
    return re.sub(r'^\S+ "[^"]*" is (forbidden|invalid): ', "", text)


def remedy_of(reason: str, namespace: str) -> str:
    """What to do about it."""
    found = (remedy for part, remedy in _REMEDIES.items() if part in reason)
    return next(found, _NEAREST).format(namespace=namespace)


def explained(message: str, namespace: str) -> str:
    """An engine's message with the remedy if it is the refusal of a pod, else the message."""
    if " is forbidden: " not in message:
        return message
    reason = reason_of(message)
    return f"1 pod is not admitted: {reason} -> {remedy_of(reason, namespace)}"


def refusal(cluster: Objects, namespace: str, job: str, pods: list[dict[str, Any]]) -> str:
    """Why the last pod that a Job wanted to create was refused, from the Job's events; empty if it was not.

    Args:
        pods: of this Job. A refusal that is older than the newest of them is over.

    Raises:
        RefusedError: these credentials may not list events.
    """
    selected = f"involvedObject.kind=Job,involvedObject.name={job},reason=FailedCreate"
    events = cluster.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selected)["items"]
    newest = max((_time(pod["metadata"]["creationTimestamp"]) for pod in pods), default=_NEVER)
    told = [(_time(event.get("lastTimestamp") or event["eventTime"]), event["message"]) for event in events]
    when, message = max(told, default=(_NEVER, ""))
    return reason_of(message) if when >= newest else ""


_NEVER = datetime.min.replace(tzinfo=UTC)
_time = datetime.fromisoformat
