"""Whether the MinIO that the overlay installs has started, and if not, why."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from lipt.adapters.cluster import job_status
from lipt.adapters.cluster.api import Cluster, MissingError, RefusedError
from lipt.adapters.cluster.preflight.site import OVERLAY
from lipt.adapters.cluster.waiting import OF_IMAGES, waits
from lipt.errors import LiptError, RunError

_SERVICE, _SETUP = "minio", "lipt-setup"
_LABELS = "app.kubernetes.io/name=minio,app.kubernetes.io/part-of=lipt"
#: In MinIO's last words: its volume belongs to another user.
_NOT_WRITABLE = ("write permissions", "Unable to write", "access denied", "permission denied")


def check_own_store(cluster: Cluster, endpoint: str) -> None:
    """MinIO runs and is set up, if it is the one of manifests/store. Another store, and without the right to look: no
    check.

    Args:
        endpoint: the store's address, as pods see it: `http://minio.NAMESPACE:9000` is ours.

    Raises:
        RunError: it does not start, or the set-up Job has not ended; names cause and remedy.
    """
    service, _, rest = (urlsplit(endpoint).hostname or "").partition(".")
    namespace = rest.partition(".")[0]
    if service != _SERVICE or not namespace:
        return
    try:
        pods = cluster.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=_LABELS)["items"]
        if pods and not any(map(_is_ready, pods)):
            _raise_why(cluster, namespace, pods[0])
        _check_setup(cluster, namespace)
    except (MissingError, RefusedError):
        return


def _check_setup(cluster: Cluster, namespace: str) -> None:
    job = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{_SETUP}")
    ended, log = job_status.condition(job), f"kubectl -n {namespace} logs job/{_SETUP}"
    if ended is None:
        raise RunError(f"the set-up of the store, Job {_SETUP}, has not ended yet", f"wait a minute; {log}")
    if ended["type"] == "Failed":
        again = f"then kubectl -n {namespace} delete job {_SETUP} and {OVERLAY['argo']}"
        raise RunError(f"the set-up of the store, Job {_SETUP}, failed: {ended.get('message', '')}", f"{log}; {again}")


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in pod["status"].get("conditions", []))


def _raise_why(cluster: Cluster, namespace: str, pod: dict[str, Any]) -> None:
    """Raise why MinIO's pod is not ready."""
    describe = f"kubectl -n {namespace} describe pod {pod['metadata']['name']}"
    for entry in pod["status"].get("conditions", []):
        if entry["type"] == "PodScheduled" and entry["status"] != "True":
            remedy = f"kubectl -n {namespace} get pvc; without a storage class: components/ephemeral"
            raise RunError(f"MinIO waits for a node: {entry.get('message', '')}", remedy)
    statuses = pod["status"].get("containerStatuses", [])  # beside MinIO's there may be that of a mesh
    container: dict[str, Any] = next((status for status in statuses if status["name"] == "minio"), {})
    waiting = container.get("state", {}).get("waiting", {})
    if waiting.get("reason") == "CreateContainerConfigError":  # its Secret is made by the set-up
        _check_setup(cluster, namespace)
    if not container.get("restartCount"):
        found = waits(pod)
        why = " ".join(f"{found.reason} {found.message}".split())
        if found.reason in OF_IMAGES:
            remedy = f"{found.remedy}, or take another image: `images` in your overlay"
            raise RunError(f"a node cannot use an image of MinIO's pod: {why}", remedy)
        raise RunError(f"MinIO has not started yet{f': {why}' if why else ''}", f"wait a minute; {describe}")
    words = _last_words(cluster, namespace, pod["metadata"]["name"])
    if any(part in words for part in _NOT_WRITABLE):
        raise RunError(
            f"MinIO cannot write to its volume, which belongs to another user: {words}",
            "add components/volume-owner to your overlay, or use components/ephemeral (manifests/README.md)",
        )
    raise RunError(f"MinIO ends when it starts: {words}", describe)


def _last_words(cluster: Cluster, namespace: str, pod: str) -> str:
    """The fatal error in the log of MinIO's last attempt, else the log's last line."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
    try:
        lines = cluster.request("GET", path, query={"previous": "true", "tailLines": "50"}).strip().splitlines()
    except LiptError as error:
        return error.message
    fatal = [line for line in lines if line.startswith("FATAL")]
    return (fatal or lines or ["no log"])[-1].removeprefix("FATAL ").strip()
