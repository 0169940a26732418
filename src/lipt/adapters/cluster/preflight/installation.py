"""Checks of the installation: the API server, the namespace, the pipeline, the objects of the store."""

from typing import Any

from lipt.adapters.cluster.api import Cluster, MissingError, RefusedError
from lipt.adapters.cluster.job_manifest import SERVICE, SERVICE_LABEL
from lipt.adapters.cluster.preflight.own_store import check_own_store
from lipt.adapters.cluster.preflight.site import OVERLAY, Site, UnknownError
from lipt.adapters.cluster.runs import engine_client
from lipt.errors import RunError
from lipt.pipeline import ClusterEngine
from lipt.version import __version__

#: Since this version, Jobs can retry each index separately by default.
_OLDEST = (1, 29)
_AWS = ".amazonaws.com"
_ROLE = "without it, the accounts of the pods need a role (docs/howto/cluster-install.md); the check `pod` tests it"


def server(cluster: Cluster, engine: ClusterEngine, namespace: str) -> str:
    """The API server answers, is new enough, and has the namespace."""
    version = cluster.get("/version")
    found = tuple(int("".join(filter(str.isdigit, version[part]))) for part in ("major", "minor"))
    if found < _OLDEST:
        raise RunError(f"{cluster.host} runs Kubernetes {version['gitVersion']}", "upgrade to 1.29 or newer")
    try:
        cluster.get(f"/api/v1/namespaces/{namespace}")
    except MissingError:
        raise RunError(f"{cluster.host} has no namespace {namespace}", f"-n NAMESPACE, or {OVERLAY[engine]}") from None
    except RefusedError:
        pass  # users of one namespace may not see namespaces
    return f"{cluster.host}, Kubernetes {version['gitVersion']}, namespace {namespace}"


def pipeline(cluster: Cluster, engine: ClusterEngine, namespace: str) -> tuple[str, dict[str, Any]]:
    """The pipeline is installed, and of this version; also returns its parameters."""
    parameters = engine_client(engine, cluster, namespace).parameters()
    kind = {"argo": "WorkflowTemplate", "kubeflow": "pipeline"}[engine]
    return f"{kind} lipt {__version__}", parameters


def store_objects(site: Site) -> str:
    """Secret and ConfigMap exist and have the keys that pods need; our MinIO, if runs use it, has started.

    Values are never shown. On AWS the accounts of the pods can have a role in place of the Secret.
    """
    name, path = site.pods.s3, f"/api/v1/namespaces/{site.namespace}"
    unseen, on_aws = [], False
    for kind, keys in (("ConfigMap", ("endpoint",)), ("Secret", ("accesskey", "secretkey"))):
        try:
            data = site.cluster.get(f"{path}/{kind.lower()}s/{name}").get("data") or {}
        except RefusedError:
            unseen.append(kind)
            continue
        except MissingError:
            if on_aws:
                raise UnknownError(f"there is no {kind} {name} in {site.namespace}", _ROLE) from None
            data = {}
        if missing := [key for key in keys if not data.get(key)]:
            literals = " ".join(f"--from-literal={key}=…" for key in keys)
            create = f"create {'secret generic' if kind == 'Secret' else 'configmap'} {name} {literals}"
            raise RunError(
                f"{kind} {name} in {site.namespace} has no {', '.join(missing)}",
                f"kubectl -n {site.namespace} {create} --dry-run=client -o yaml | kubectl apply -f -",
            )
        if kind == "ConfigMap":
            on_aws = _AWS in data["endpoint"]
            check_own_store(site.cluster, data["endpoint"])  # its set-up makes the Secret
    if unseen:
        raise UnknownError(f"you may not read {' and '.join(unseen)} {name}", "the check `pod` tests them")
    return f"Secret and ConfigMap {name}"


def training_service(site: Site) -> str:
    """The Service that gives the pods of a training their names exists, is headless and selects these pods."""
    try:
        spec = site.cluster.get(f"/api/v1/namespaces/{site.namespace}/services/{SERVICE}")["spec"]
    except RefusedError:
        raise UnknownError(
            f"you may not read Service {SERVICE}",
            f"an administrator can: kubectl -n {site.namespace} get service {SERVICE}",
        ) from None
    except MissingError:
        raise RunError(
            f"{site.namespace} has no Service {SERVICE}, so the pods of a training cannot find each other",
            OVERLAY[site.engine],
        ) from None
    if spec.get("clusterIP") != "None" or spec.get("selector") != {SERVICE_LABEL: SERVICE}:
        raise RunError(
            f"Service {SERVICE} in {site.namespace} is not the headless one of LiPT",
            f"kubectl -n {site.namespace} delete service {SERVICE}, then {OVERLAY[site.engine]}",
        )
    return f"Service {SERVICE}, headless"


def queue(site: Site) -> str:
    """Kueue is installed, and has the queue of the run. Without Kueue, Kubernetes would ignore the queue."""
    name, group = site.pods.queue, "/apis/kueue.x-k8s.io"
    try:
        version = site.cluster.get(group)["preferredVersion"]["version"]
    except MissingError:
        raise RunError(
            f"the cluster has no Kueue, so worker pods would not wait in queue {name}", "install Kueue, or remove queue"
        ) from None
    try:
        site.cluster.get(f"{group}/{version}/namespaces/{site.namespace}/localqueues/{name}")
    except MissingError:
        raise RunError(
            f"{site.namespace} has no LocalQueue {name}, so worker pods would wait forever",
            f"-p queue=…, one of: kubectl -n {site.namespace} get localqueues",
        ) from None
    except RefusedError:
        raise UnknownError(
            f"you may not see LocalQueue {name}", f"an administrator can: kubectl -n {site.namespace} get localqueues"
        ) from None
    return f"LocalQueue {name}"
