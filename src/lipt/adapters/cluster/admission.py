"""Why a cluster does not let a pod be created, and what to do: quota, limits, Pod Security, missing objects.

A Job whose pods are refused has no pods that could tell why. Its events do.
"""

from __future__ import annotations

import re

from lipt.adapters.cluster.engine import BEFORE

#: A LimitRange refuses a container. It may be one that Argo adds to a box: no parameter changes that one.
_BOUNDS = (
    "`kubectl -n {namespace} describe limits` shows the bounds: change -p cpu, memory. If they refuse 10m CPU or 64Mi, "
    "the requests of the containers that Argo adds to a box: widen the bounds, or raise `podSpecPatch` in the "
    "WorkflowTemplate"
)
#: Part of a refusal -> what to do about it.
_REMEDIES = {
    "exceeded quota": "`kubectl -n {namespace} describe quota` shows what is used: wait, or have it raised, or lower "
    "-p cpu, memory, gpus, nodes",
    "failed quota": "this quota wants limits that LiPT does not set: add a LimitRange with defaults to {namespace} "
    "(docs/howto/cluster-rights.md, Quotas)",
    "error looking up service account": "install the account: kubectl apply -k of your overlay",
    "violates PodSecurity": "LiPT meets the level `restricted`: another part of the pod does not; "
    "`kubectl -n {namespace} get events` names it",
    "no PriorityClass": "-p priority=NAME, one of `kubectl get priorityclasses`",
    "usage per ": _BOUNDS,
    "limit to request ratio": _BOUNDS,
    "must be less than or equal to cpu limit": "the LimitRange of {namespace} has a smaller default limit: lower -p "
    "cpu, or raise `default.cpu` there",
    "admission webhook": "ask the administrators of that webhook",
    "ValidatingAdmissionPolicy": "if it wants labels or annotations, add them to all pods of runs "
    "(docs/howto/cluster-install.md, Labels that your cluster demands); else ask its administrators",
}
#: Begins an engine's message about a pod without a node.
_UNSCHEDULABLE = "Unschedulable: "
#: What to do about a pod that no node takes, if nothing is known about the nodes.
WAIT = "wait until a node is free, or lower -p gpus, memory, cpu"
_NEAREST = "`kubectl -n {namespace} get events` has the whole message; an administrator of {namespace} can help"


def reason_of(message: str) -> str:
    """The reason in a refusal, without the name of the object, which differs from attempt to attempt."""
    text = " ".join(message.split()).rpartition("Error creating: ")[2]
    return re.sub(r'^\S+ "[^"]*" is (forbidden|invalid): ', "", text)


def remedy_of(reason: str, namespace: str) -> str:
    """What to do about it."""
    found = (remedy for part, remedy in _REMEDIES.items() if part in reason)
    return next(found, _NEAREST).format(namespace=namespace)


def not_admitted(count: int, reason: str, namespace: str) -> str:
    """Why pods are refused, and what to do."""
    return f"{count} pod{'s are' if count > 1 else ' is'} not admitted: {reason} -> {remedy_of(reason, namespace)}"


def waits_for_a_node(count: int, message: str, remedy: str) -> str:
    """Why no node takes pods, in the words of the scheduler without what it says about preemption; and what to do."""
    why = message.partition(". ")[0]
    return f"{count} pod{'s wait' if count > 1 else ' waits'} for a node: {why} -> {remedy}"


def explained(message: str, namespace: str, *, over: bool = False, placed: bool = False) -> str:
    """An engine's message with the remedy if a pod is not admitted or has no node yet, else the message.

    The message of an earlier attempt is over.

    Args:
        over: the run has ended, so none of its pods waits for a node any more.
        placed: each pod of the run has a node now. A message that a pod has none is older, and left out.
    """
    if BEFORE in message:
        return message
    _, waits, why = message.partition(_UNSCHEDULABLE)
    if waits and not over:  # it may be a pod of the engine, such as Kubeflow needs before each box
        return "" if placed else waits_for_a_node(1, why, f"{WAIT} (a pod of the engine can only wait)")
    return not_admitted(1, reason_of(message), namespace) if " is forbidden: " in message else message
