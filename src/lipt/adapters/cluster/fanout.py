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
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lipt.adapters.cluster import job_status
from lipt.adapters.cluster.api import Cluster, MissingError, NotAdmittedError, drawn_name
from lipt.adapters.cluster.job_manifest import RUN_LABEL, Pods, job_manifest
from lipt.adapters.cluster.job_watch import ADMITTED_WITHIN_S, JobWatch, NeverRan
from lipt.adapters.cluster.own_run import OwnRun
from lipt.errors import LiptError, RunError

#: Seconds for which a Job goes on whose box was stopped or has failed. A box that is drained comes back within a
#: minute, or when its image is pulled.
_ORPHAN_S = 600
#: The same for a Job that waits in its queue then, from its admission on: its run may have ended long before.
_LATE_ORPHAN_S = 60
#: Seconds for which a box that waits for its pods waits for the API server too: an upgrade may take minutes.
_OUTAGE_S = 900.0
#: In a refusal that ends when others have ended; seconds between two attempts then.
_QUOTA, _QUOTA_S = "exceeded quota", 5.0
#: The most characters of an Event's message.
_MESSAGE = 1024
#: Annotation of a Job: the pod that waits for it.
_BOX = "lipt.dev/box"


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

    With whole GPUs, a node runs at most one pod of the Job. Lost and killed pods and exit code 3 are retried; exit
    codes 1 and 2 are not. The Job ends when only pods without enough memory are left, or when more pods are lost than
    may fail.

    A caller that is started again takes over the Job that it started before. The Job of a caller that was stopped, or
    has failed, goes on for ten minutes; then Kubernetes ends it, unless the caller is back. One that waits in its queue
    goes on for a minute from its admission on. If somebody has ended the whole run, its Job is deleted at once. If the
    caller had no time for any of this, a training goes on for half an hour, other Jobs until their deadline.

    The pods get the labels and annotations that the workflow gives all boxes.

    Args:
        name: part of the names of Job and pods.
        may_fail: number of indexes that may fail before the rest is stopped.
        say: receives messages about progress.
        advance: receives the number of finished pods and of all pods.
        room_within_s: give up if no pod gets a node for this long; None: wait until the deadline. Pods that the
            namespace does not admit (quota, limits), or that cannot start on their nodes (image), are given up after
            this time, or ten minutes.
        quorum: once this number of pods is done, end those that take too long (`Pods.grace`) or get no node; None:
            wait for all.
        together: the pods share one training. They reach the first one under the name in FIRST_POD, there is no
            deadline as long as the caller waits, and all of them need a node at the same time.

    Returns:
        The reason, for every index that did not succeed.
    """
    cluster = Cluster(patience_s=_OUTAGE_S)
    jobs = f"/apis/batch/v1/namespaces/{here.namespace}/jobs"
    run = OwnRun.find(cluster, namespace=here.namespace, pod=here.pod)
    job = job_manifest(
        pods,
        run=run.name,
        owner=run.owner,
        shared=run.shared_metadata(cluster),
        name=name,
        arguments=arguments,
        completions=completions,
        may_fail=may_fail,
        together=together,
        user=os.getuid(),  # OpenShift gives each namespace users of its own, and the box has one of them
    )
    job["metadata"]["annotations"][_BOX] = here.pod
    path = f"{jobs}/{job['metadata']['name']}"
    watch = JobWatch(
        cluster=cluster,
        namespace=here.namespace,
        path=path,
        completions=completions,
        may_fail=may_fail,
        name=name,
        say=say,
        advance=advance,
    )
    try:
        refused = _start(cluster, jobs, job, name, say, together=together, room_within_s=room_within_s)
        if refused:
            return dict.fromkeys(range(completions), refused)
        lost = watch.wait(room_within_s=room_within_s, quorum=quorum, grace=pods.grace, together=together)
        if not watch.ended:
            # Not deleted: the pods that have ended stay, and with them their logs, until the time of the Job is over.
            cluster.patch(path, {"spec": {"activeDeadlineSeconds": 1}})
        if lost:
            _record(cluster, here.namespace, run.owner, name, lost)
        return lost
    except BaseException:
        with suppress(LiptError):  # the first error says more; without the API there is nothing to do
            _orphan(cluster, path, here.pod, run)
        raise


def _start(
    cluster: Cluster,
    jobs: str,
    job: dict[str, Any],
    name: str,
    say: Callable[[str], None],
    *,
    together: bool,
    room_within_s: float | None,
) -> NeverRan | None:
    """Create a Job, or take over the one that an earlier attempt of this box has created. While a quota has no room for
    a Job, wait as for its pods. Returns why it was not created, if so.
    """
    path = f"{jobs}/{job['metadata']['name']}"
    with suppress(MissingError):
        found = cluster.get(path)
        if not job_status.is_over(found):
            say(f"{name}: continues with job {job['metadata']['name']}")
            limit = job["spec"]["activeDeadlineSeconds"] + (job_status.age_s(found, cluster.now()) if together else 0)
            annotations = {_BOX: job["metadata"]["annotations"][_BOX]}
            cluster.patch(path, {"metadata": {"annotations": annotations}, "spec": {"activeDeadlineSeconds": limit}})
            return None
        cluster.delete(path)  # ended in an earlier attempt; its results are in the workspace
        _until_gone(cluster, path)
    until, told = time.monotonic() + (room_within_s or ADMITTED_WITHIN_S), False
    while True:
        try:
            cluster.create(jobs, job)
            return None
        except NotAdmittedError as error:
            if _QUOTA not in error.message:
                raise
            if time.monotonic() >= until:
                return NeverRan(f"{error.message} -> {error.remedy}")
            if not told:
                say(f"{name}: waits, because {error.message} -> {error.remedy}")
            told = True
        time.sleep(_QUOTA_S)


def running_arguments(here: ThisPod, name: str) -> list[list[str]]:
    """The arguments of the Jobs that an earlier attempt of this box has started under this name, and that still run."""
    cluster = Cluster(patience_s=_OUTAGE_S)
    run = OwnRun.find(cluster, namespace=here.namespace, pod=here.pod)
    selected = f"{RUN_LABEL}={run.name},app.kubernetes.io/component={name}"
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


def _orphan(cluster: Cluster, path: str, box: str, run: OwnRun) -> None:
    """Let the Job end after `_ORPHAN_S`, or delete it if the whole run was ended: then no box comes back to it.

    A box on a node that was cut off may fail long after another one has taken over its Job, which is left alone.
    """
    with suppress(MissingError):
        job = cluster.get(path)
        if job["metadata"].get("annotations", {}).get(_BOX) != box:
            return
        if run.is_stopped(cluster):
            cluster.delete(path)
            return
        age_s = job_status.age_s(job, cluster.now())
        until = _LATE_ORPHAN_S if job_status.is_suspended(job) else age_s + _ORPHAN_S
        cluster.patch(path, {"spec": {"activeDeadlineSeconds": min(until, job["spec"]["activeDeadlineSeconds"])}})


def _until_gone(cluster: Cluster, path: str) -> None:
    for _ in range(60):
        try:
            cluster.get(path)
        except MissingError:
            return
        time.sleep(1)
    raise RunError(f"{path} is not deleted", "delete it with kubectl, then try again")
