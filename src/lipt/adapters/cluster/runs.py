"""Runs on a cluster, under any engine: handles, states, logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lipt.adapters.cluster import job_status
from lipt.adapters.cluster.admission import not_admitted, waits_for_a_node
from lipt.adapters.cluster.api import Cluster, RefusedError
from lipt.adapters.cluster.engine import DEFAULT_NAMESPACE, STARTING, EngineClient
from lipt.adapters.cluster.job_manifest import JOB_LABEL, RUN_LABEL
from lipt.adapters.cluster.printed import GrowingLog, printed
from lipt.adapters.cluster.waiting import OWN, Waiting, advice, by_cause
from lipt.errors import LiptError, UsageError, did_you_mean
from lipt.pipeline import BOXES, STAGES, ClusterEngine


def engine_client(engine: ClusterEngine, cluster: Cluster, namespace: str) -> EngineClient:
    """The client of `argo` or `kubeflow` in a namespace."""
    if engine == "argo":
        from lipt.adapters.cluster.argo import Argo

        return Argo(cluster, namespace)
    from lipt.adapters.cluster.kubeflow import Kubeflow

    return Kubeflow(cluster, namespace)


#: The engine sets it on the pods of a workflow.
_WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
#: Of an object in a cluster. Other text would lead to another path of the API.
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Handle:
    """The address of a run: `ENGINE/NAMESPACE/RUN`, as `lipt submit` prints it."""

    engine: ClusterEngine
    namespace: str
    run: str

    def __str__(self) -> str:
        return f"{self.engine}/{self.namespace}/{self.run}"

    @classmethod
    def parse(cls, text: str) -> Handle:
        """Raises UsageError if it is not a handle."""
        parts = text.split("/")
        engine = next((each for each in DEFAULT_NAMESPACE if each == parts[0]), None)
        if len(parts) != 3 or engine is None or not all(map(_NAME.fullmatch, parts)):
            raise UsageError(
                f"{text!r} is not a run",
                "write argo/NAMESPACE/NAME or kubeflow/NAMESPACE/ID, as `lipt submit` prints it",
            )
        return cls(engine=engine, namespace=parts[1], run=parts[2])

    def client(self, cluster: Cluster) -> EngineClient:
        """The client of the engine that has this run."""
        return engine_client(self.engine, cluster, self.namespace)


@dataclass(frozen=True, kw_only=True)
class PodLog:
    """What a pod of a run has printed."""

    box: str
    pod: str
    log: str
    problem: str
    """Why its log cannot be read, if so: it waits for a node, or its node is lost."""
    over: bool
    """The pod has ended, so no more will come."""


def pod_logs(
    cluster: Cluster,
    namespace: str,
    workflow: str,
    *,
    box: str | None,
    without: Container[str] = (),
    growing: dict[str, GrowingLog] | None = None,
) -> Iterator[PodLog]:
    """The logs of a run's boxes and workers, by start.

    Args:
        box: only this box and its workers; None: all.
        without: names of pods whose logs are not read.
        growing: by name of the pod, what was read of each log before; it is updated. The logs then hold only what is
            new. None: they are read from their beginning.

    Raises:
        UsageError: no such box.
    """
    pods = _pods(cluster, namespace, workflow)
    if box is not None and box not in (known := dict.fromkeys([*BOXES, *(of for of, _ in pods)])):
        raise UsageError(f"no box {box!r}", did_you_mean(box, list(known)))
    for of, pod in pods:
        if box is not None and of != box:
            continue
        name = pod["metadata"]["name"]
        if name in without:
            continue
        container = next((c["name"] for c in pod["spec"]["containers"] if c["name"] in OWN), None)
        if container is None:  # of a workflow that is not ours
            continue
        text, problem, over = "", "", pod["status"].get("phase") in ("Succeeded", "Failed")
        try:  # once: if a node does not answer, the API server says so at every try
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
            if growing is None:
                text = printed(cluster.request("GET", path, query={"container": container}, once=True))
            else:
                log = growing.setdefault(name, GrowingLog())
                answer = cluster.request("GET", path, query=log.query | {"container": container}, once=True)
                text = log.news(answer, over=over)
        except LiptError as error:
            # A pod that is about to start has no log yet; why another one does not start is worth telling.
            _, waits, why = error.message.partition(_WAITING)
            problem = "" if why in STARTING else f"{_WAITING}{why}" if waits else error.message
        yield PodLog(box=of, pod=name, log=text, problem=problem, over=over)


#: In the API's refusal of a log: the container does not run yet, and why.
_WAITING = "is waiting to start: "


def waiting_reasons(cluster: Cluster, namespace: str, workflow: str, without_node: Callable[[], str]) -> dict[str, str]:
    """Box -> why pods of the box or of its workers have no node yet, cannot start there, or are not admitted by the
    namespace; or that the node of the box is lost, which only a person can change. (A box looks after its workers.)

    Args:
        without_node: gives what to do about pods that no node takes.
    """
    told: dict[str, list[str]] = {}
    cannot_start: dict[str, list[Waiting]] = {}
    lost: dict[str, str] = {}
    pods, now = _pods(cluster, namespace, workflow), cluster.now()
    for pod, waiting in job_status.not_starting(cluster, namespace, [pod for _, pod in pods]):
        cannot_start.setdefault(_box_of(pod) or "", []).append(waiting)
    for box, pod in pods:
        if _is_lost(pod, now):
            lost[box] = _on_a_lost_node(pod, namespace)
        if condition := _without_node(pod):
            told.setdefault(box, []).append(str(condition.get("message", "")))
    remedy = without_node() if told else ""
    return (
        _refused(cluster, namespace, workflow, [pod for _, pod in pods])
        | {
            box: "; ".join(
                f"{count} pod{'s' * (count > 1)} cannot start: {waiting} -> {advice(waiting)}"
                for count, waiting in by_cause(reasons)
            )
            for box, reasons in cannot_start.items()
        }
        | {box: waits_for_a_node(len(texts), texts[0], remedy) for box, texts in told.items()}
        | lost
    )


def all_placed(cluster: Cluster, namespace: str, workflow: str) -> bool:
    """Whether each pod of a workflow has a node, those of the engine included."""
    pods = cluster.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"{_WORKFLOW_LABEL}={workflow}")["items"]
    return bool(pods) and not any(_without_node(pod) for pod in pods)


def _without_node(pod: dict[str, Any]) -> dict[str, Any] | None:
    """The condition of a pod that no node has taken; None: one has."""
    conditions = pod["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"), None)


def _is_lost(pod: dict[str, Any], now: datetime) -> bool:
    """Whether the pod of a box is on a node that does not answer."""
    if JOB_LABEL in pod["metadata"]["labels"] or not job_status.is_stuck(pod, now):
        return False
    return "nodeName" in pod["spec"] and pod["status"].get("phase") not in ("Succeeded", "Failed")


def _on_a_lost_node(pod: dict[str, Any], namespace: str) -> str:
    node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
    return (
        f"node {node} does not answer -> start it; or make sure that it is off, and run `kubectl -n {namespace} "
        f"delete pod {name} --grace-period=0 --force`: the box is then repeated on another node"
    )


def delete_jobs(cluster: Cluster, namespace: str, workflow: str) -> list[str]:
    """Delete the Jobs of a run that have not ended, and so their pods: these would outlive the boxes. Jobs that have
    ended stay, for their logs.

    Returns:
        Their names.
    """
    path, deleted = f"/apis/batch/v1/namespaces/{namespace}/jobs", []
    for job in cluster.get(path, labelSelector=f"{RUN_LABEL}={workflow}")["items"]:
        if not job_status.condition(job):
            deleted.append(str(job["metadata"]["name"]))
            cluster.delete(f"{path}/{deleted[-1]}")
    return deleted


def _refused(cluster: Cluster, namespace: str, workflow: str, pods: list[dict[str, Any]]) -> dict[str, str]:
    """Box -> why the namespace does not admit the pods of its Job."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    found = {}
    for job in cluster.get(path, labelSelector=f"{RUN_LABEL}={workflow}")["items"]:
        own = [pod for pod in pods if pod["metadata"]["labels"].get(JOB_LABEL) == job["metadata"]["name"]]
        count, reason = 0 if job_status.condition(job) else job_status.missing(job), ""
        if count:
            with suppress(RefusedError):  # who may not list events sees the rest
                reason = job_status.refusal(cluster, namespace, job["metadata"]["name"], own)
        if reason:
            found[_box_of(job) or ""] = not_admitted(count, reason, namespace)
    return found


def _pods(cluster: Cluster, namespace: str, workflow: str) -> list[tuple[str, dict[str, Any]]]:
    """(box, pod) of a run's boxes and workers, by start; without the engine's own pods."""
    found = []
    for label in (_WORKFLOW_LABEL, RUN_LABEL):
        found += cluster.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"{label}={workflow}")["items"]
    found.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    return [(box, pod) for pod in found if (box := _box_of(pod)) is not None]


def _box_of(owned: dict[str, Any]) -> str | None:
    """The box that a pod runs or works for, or that a Job works for; None for the engine's own pods."""
    component: str | None = owned["metadata"].get("labels", {}).get("app.kubernetes.io/component")
    return next((stage.box for stage in STAGES if stage.name == component), component)
