"""A small pod that tests image, network and store from inside the cluster."""

import json
import time
from contextlib import suppress
from typing import Any, NoReturn

from lipt.adapters.cluster.api import NotAdmittedError, drawn_name
from lipt.adapters.cluster.argo import Argo
from lipt.adapters.cluster.job_manifest import JOB_LABEL, labels_of, pod_spec
from lipt.adapters.cluster.preflight.rights import GRANT, missing_rights
from lipt.adapters.cluster.preflight.site import Site, UnknownError
from lipt.adapters.cluster.shared_metadata import SharedMetadata
from lipt.adapters.cluster.waiting import CANNOT_START, OF_IMAGES, Waiting, waits
from lipt.errors import LiptError, RunError
from lipt.version import __version__

_PATIENCE_S = 60.0
#: Only these: the pod has the defaults of the other settings, which need not fit the data.
_CHECKED = ("packages", "device", "workspace", "data")


def pod(site: Site, *, workspace: str, data: str) -> str:
    """A pod like a worker, without GPU: the image starts, has this version of lipt, and reaches the store.

    The pod is always deleted. If this process is killed, the pod ends by itself.
    """
    path = f"/api/v1/namespaces/{site.namespace}/pods"
    if missing_rights(site, [("", "pods", ("create", "delete"))]):
        raise UnknownError(f"you may not start a pod in {site.namespace}", GRANT.format(namespace=site.namespace))
    settings = {"workspace": workspace, "device": "cpu"} | ({"data.source": data} if "://" in data else {})
    arguments = [text for key, value in settings.items() for text in ("--set", f"{key}={json.dumps(value)}")]
    started = time.monotonic()
    command = ["doctor", "/dev/null", "-o", "json", *arguments]
    try:
        made = site.cluster.create(path, _small_pod(site, command))
    except NotAdmittedError:  # it may be too small: the limits of a namespace have minima, too
        made = site.cluster.create(path, _small_pod(site, command, cpu=site.pods.cpu, memory=site.pods.memory))
    path = f"{path}/{made['metadata']['name']}"
    try:
        ended = _until_over(site, path)
        log = site.cluster.request("GET", f"{path}/log", query={"container": "worker"})  # there may be a sidecar
    finally:
        site.cluster.delete(path)
    findings = _findings(log, ended)
    for name, finding in findings.items():
        if name in _CHECKED and not finding["ok"]:
            message, _, remedy = str(finding["finding"]).partition("\n  -> ")
            raise RunError(f"{name}, checked in a pod: {message}", remedy)
    packages = findings["packages"]["finding"]
    if f"lipt {__version__}" not in packages.split(", "):
        raise RunError(
            f"{site.pods.image} holds {packages}; this is lipt {__version__}", "-p image=…, an image of this version"
        )
    seconds = time.monotonic() - started
    return f"on {ended['spec']['nodeName']}, {seconds:.0f} s: lipt {__version__}, {findings['workspace']['finding']}"


def admission(site: Site) -> str:
    """The namespace admits a pod like a worker: quota, limits, Pod Security, account. Nothing is created.

    Under Argo it has the containers that Argo adds to a box, too: they are small, and limits may have a minimum.
    """
    if missing_rights(site, [("", "pods", ("create",))]):
        raise UnknownError(f"you may not start a pod in {site.namespace}", GRANT.format(namespace=site.namespace))
    pods = site.pods
    body = _pod(site, "lipt-worker", pod_spec(pods, job="", arguments=[]))
    if site.engine == "argo":
        with suppress(LiptError):  # the check `pipeline` says so
            for field, added in Argo(site.cluster, site.namespace).added_containers().items():
                images = [{"image": pods.image, **container} for container in added]
                body["spec"][field] = [*body["spec"].get(field, []), *images]
    site.cluster.request("POST", f"/api/v1/namespaces/{site.namespace}/pods", query={"dryRun": "All"}, body=body)
    gpus = f", {pods.gpus} {'GPU' if pods.gpus == 1 else 'GPUs'}" if pods.gpus else ""
    return f"quota, limits and Pod Security admit a worker pod: {pods.cpu} CPU, {pods.memory}{gpus}"


def _small_pod(site: Site, arguments: list[str], *, cpu: str = "50m", memory: str = "1Gi") -> dict[str, Any]:
    small = site.pods.model_copy(update={"gpus": 0, "cpu": cpu, "memory": memory})
    spec = pod_spec(small, job="", arguments=arguments)
    del spec["affinity"]
    spec["activeDeadlineSeconds"] = 2 * int(_PATIENCE_S)
    (container,) = spec["containers"]
    others = [entry for entry in container["env"] if entry["name"] != "LIPT_S3_RETRY_S"]
    container["env"] = [
        *others,
        {"name": "LIPT_S3_RETRY_S", "value": "10"},  # not the installation's: somebody waits
        {"name": "LIPT_POD", "value": "lipt-doctor"},  # so its remedies are those of a pod
    ]
    return _pod(site, "lipt-doctor", spec)


def _pod(site: Site, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    name, shared = drawn_name(name), SharedMetadata()
    if site.engine == "argo":
        with suppress(LiptError):  # the check `pipeline` says so
            shared = Argo(site.cluster, site.namespace).shared_metadata()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            # The network rules know a worker by its job.
            "labels": shared.labels | labels_of("doctor") | {JOB_LABEL: name},
            "annotations": shared.annotations | {"sidecar.istio.io/inject": "false"},
        },
        "spec": spec,
    }


def _until_over(site: Site, path: str) -> dict[str, Any]:
    """The pod at its end.

    Raises:
        RunError: it cannot start.
        UnknownError: it takes too long for a check.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        seen = site.cluster.get(path)
        if seen["status"].get("phase") in ("Succeeded", "Failed"):
            return seen
        waiting = waits(seen)
        if waiting.reason in CANNOT_START:
            _raise_why(waiting)
        if time.monotonic() > deadline:
            if waiting.reason == "Unschedulable":
                remedy = "-p tolerations=…, -p node_selector=…, or wait until a node is free"
                raise RunError(f"no node took a small pod within {_PATIENCE_S:g} s: {waiting.message}", remedy)
            doing = waiting.reason or "running"
            raise UnknownError(f"the pod is not done after {_PATIENCE_S:g} s ({doing})", "try again")
        time.sleep(1)


def _raise_why(waiting: Waiting) -> NoReturn:
    """Raise why a container of the pod cannot start."""
    why, remedy = waiting.message or waiting.reason, waiting.remedy
    if waiting.is_foreign:
        raise RunError(
            f"container {waiting.container} ({waiting.image}), which your cluster adds to pods, cannot start: {why}",
            f"ask those who add it{f', or {remedy}' if remedy else ''}",
        )
    if waiting.reason in OF_IMAGES:
        raise RunError(f"{waiting.image}: {why}", f"{remedy}, or take another image: -p image=…")
    again = "try again: it may have passed. Otherwise docs/howto/cluster-failures.md, A pod does not start"
    raise RunError(f"{waiting.image} does not start: {why}", remedy or again)


def _findings(log: str, ended: dict[str, Any]) -> dict[str, Any]:
    """The findings of `lipt doctor -o json` in the pod.

    Raises:
        RunError: it printed something else.
    """
    start, end = log.find("{\n"), log.rfind("}")
    try:
        findings: dict[str, Any] = json.loads(log[start : end + 1])
        return {name: {"ok": bool(entry["ok"]), "finding": entry["finding"]} for name, entry in findings.items()}
    except (ValueError, TypeError, KeyError):
        codes = [entry["state"].get("terminated", {}) for entry in ended["status"].get("containerStatuses", [])]
        why = next((f"{code.get('reason', '')}, exit code {code.get('exitCode')}" for code in codes if code), "")
        last = " ".join((log.strip().splitlines() or ["no output"])[-1].split())
        raise RunError(f"the pod ended without a finding ({why}): {last}", "-p image=…, an image of lipt") from None
