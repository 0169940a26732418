"""Checks which nodes accept the pods of a run, and which have its image."""

import json
from typing import Any

from lipt.adapters.cluster.api import RefusedError
from lipt.adapters.cluster.preflight.site import AbsentError, Site, UnknownError
from lipt.adapters.cluster.values import Toleration, amount
from lipt.errors import RunError

#: Prefix of the taints that Kubernetes sets on nodes with problems.
_CONDITION = "node.kubernetes.io/"
_NO_GPUS = "-p gpus=N, -p gpu_resource=NAME, or install the device plugin"


def nodes(site: Site) -> str:
    """At least one node accepts the run's pods: ready, with selected labels and tolerated taints, and large enough."""
    found, pods = _nodes(site), site.pods
    gpus = {
        _name(node): int(amount(str(node["status"].get("allocatable", {}).get(pods.gpu_resource, 0)))) for node in found
    }
    with_gpus = [node for node in found if gpus[_name(node)]]
    candidates = [node for node in (with_gpus if pods.gpus else found) if gpus[_name(node)] >= pods.gpus]
    selected = [node for node in candidates if pods.node_selector.items() <= node["metadata"]["labels"].items()]
    roomy = [node for node in selected if _has(node, "cpu", pods.cpu) and _has(node, "memory", pods.memory)]
    ready = [node for node in roomy if not _troubles(node)]
    able = [node for node in ready if not _refused_by(node, pods.tolerations)]
    what = f"a pod with {pods.gpus} {'GPU' if pods.gpus == 1 else 'GPUs'}" if pods.gpus else "a pod without GPU"
    troubles = "".join(f"; {_name(node)}: {', '.join(_troubles(node))}" for node in found if _troubles(node))
    if pods.gpus and not with_gpus:
        raise AbsentError(
            f"no node of {len(found)} has {pods.gpu_resource}{troubles}",
            f"nothing, if an autoscaler adds such nodes; else {_NO_GPUS}",
        )
    if not able:
        tolerate = _tolerating(ready, pods.tolerations)
        for left, why, remedy in (
            (candidates, f"none has {pods.gpus} allocatable {pods.gpu_resource}", _NO_GPUS),
            (selected, f"none of them has the labels {json.dumps(pods.node_selector)}", "-p node_selector='{…}'"),
            (roomy, f"none of them has {pods.cpu} CPU and {pods.memory} of memory", "-p cpu=…, -p memory=…"),
            (ready, "they are not healthy", "kubectl describe node"),
            (able, f"taints keep it away: {_written(ready, pods.tolerations)}", tolerate),
        ):
            if not left:
                raise RunError(f"no node of {len(found)} takes {what}: {why}{troubles}", remedy)
    text = f"{len(able)} of {len(found)} nodes take {what}{troubles}"
    if pods.gpus or not with_gpus:
        return text
    hint = f"-p gpus={min(filter(None, gpus.values()))} {_tolerating(with_gpus, pods.tolerations)}".rstrip()
    return f"{text}; {len(with_gpus)} with GPUs, which take {hint}"


def image(site: Site) -> str:
    """Checks which nodes list the image (each node lists only its 50 largest)."""
    wanted, found = _full(site.pods.image), _nodes(site)
    having = [node for node in found if wanted in _images(node)]
    if not having:
        raise UnknownError(f"{site.pods.image}: no node lists it", "a node pulls it when a pod starts")
    return f"{site.pods.image}: on {len(having)} of {len(found)} nodes"


def _nodes(site: Site) -> list[dict[str, Any]]:
    try:
        return list(site.cluster.get("/api/v1/nodes")["items"])
    except RefusedError:
        raise UnknownError("you may not see the nodes", "an administrator can: kubectl describe nodes") from None


def _name(node: dict[str, Any]) -> str:
    return str(node["metadata"]["name"])


def _has(node: dict[str, Any], resource: str, wanted: str) -> bool:
    """Whether an empty node would have this much of a resource."""
    there = node["status"].get("allocatable", {}).get(resource)
    return there is None or amount(there) >= amount(wanted)


def _troubles(node: dict[str, Any]) -> list[str]:
    """Temporary problems, for which no toleration is needed: not-ready, disk-pressure, cordoned …"""
    conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", [])}
    found = {taint["key"].removeprefix(_CONDITION) for taint in node["spec"].get("taints", []) if _passes(taint)}
    return sorted(found or ({"not-ready"} if conditions.get("Ready") != "True" else set()))


def _passes(taint: dict[str, Any]) -> bool:
    return str(taint["key"]).startswith(_CONDITION)


def _refused_by(node: dict[str, Any], tolerations: list[Toleration]) -> list[dict[str, Any]]:
    """Taints of the node, other than its temporary problems, that reject pods with these tolerations."""
    all_taints = node["spec"].get("taints", [])
    taints = [taint for taint in all_taints if taint["effect"] != "PreferNoSchedule" and not _passes(taint)]
    return [taint for taint in taints if not any(_tolerates(entry, taint) for entry in tolerations)]


def _tolerates(toleration: Toleration, taint: dict[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def _written(nodes: list[dict[str, Any]], tolerations: list[Toleration]) -> str:
    taints = [taint for node in nodes for taint in _refused_by(node, tolerations)]
    values = [f"={taint['value']}" if taint.get("value") else "" for taint in taints]
    return ", ".join(sorted({f"{t['key']}{value}:{t['effect']}" for t, value in zip(taints, values, strict=True)}))


def _tolerating(nodes: list[dict[str, Any]], given: list[Toleration]) -> str:
    """The parameter that lets pods run on these nodes; empty if they already can."""
    wanted = list(given)
    for taint in [taint for node in nodes for taint in _refused_by(node, given)]:
        entry = {"key": taint["key"], "operator": "Exists", "effect": taint["effect"]}
        if entry not in wanted:
            wanted.append(entry)
    return f"-p tolerations='{json.dumps(wanted)}'" if wanted != given else ""


def _full(name: str) -> str:
    """The name that nodes use for `lipt:TAG`: `docker.io/library/lipt:TAG`."""
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if any(sign in first for sign in ".:") or first == "localhost" else f"docker.io/{name}"


def _images(node: dict[str, Any]) -> set[str]:
    return {_full(name) for entry in node["status"].get("images", []) for name in entry.get("names") or []}
