"""What a run needs of a cluster, found out before it starts: each check is a finding, or an error with its remedy."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from lipt import __version__
from lipt.adapters.cluster.api import Cluster, MissingError, RefusedError
from lipt.adapters.cluster.manifest import GPU, Pods, labels_of, pod_spec
from lipt.adapters.cluster.runs import check_version, engine_of
from lipt.errors import LiptError, RunError, UsageError

#: A Job that repeats its indexes one by one is on by default since then.
_OLDEST = (1, 29)
_PATIENCE_S = 60.0
_GRANT = "kubectl -n {namespace} create rolebinding lipt-users --clusterrole=edit --user=NAME, by an administrator"
_OVERLAY = {
    "argo": "kubectl apply -k manifests/overlays/kind",
    "kubeflow": "kubectl apply -k manifests/overlays/kubeflow",
}
_ARGO = "install Argo Workflows 3.7: manifests/README.md has the command"
#: What the account of a run's boxes may do, as manifests/base/access grants it; (API group, resource, verbs).
_ACCOUNT = (
    ("batch", "jobs", ("create", "get", "delete")),
    ("", "pods", ("get", "list", "patch", "delete")),
)
_ARGO_ACCOUNT = (("argoproj.io", "workflowtaskresults", ("create", "patch")),)
#: What a person needs for `lipt submit`, `status` and `logs`.
_LOGS = (("", "pods", ("list",)), ("", "pods/log", ("get",)))
_USER = {
    "argo": (("argoproj.io", "workflowtemplates", ("get",)), ("argoproj.io", "workflows", ("create", "get")), *_LOGS),
    "kubeflow": (("", "services/proxy", ("create", "get")), ("argoproj.io", "workflows", ("list",)), *_LOGS),
}
#: Prefix of the taints that Kubernetes itself sets on nodes in trouble.
_CONDITION = "node.kubernetes.io/"
_NOT_PULLED = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
_NOT_STARTED = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")

Rights = Iterable[tuple[str, str, Iterable[str]]]


class UnknownError(LiptError):
    """It could not be found out, which is no failure."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a run would go, and how its pods would look."""

    cluster: Cluster
    engine: str
    namespace: str
    pods: Pods


def server(cluster: Cluster, engine: str, namespace: str) -> str:
    """The API server answers, is new enough, and has the namespace."""
    version = cluster.get("/version")
    found = tuple(int("".join(filter(str.isdigit, version[part]))) for part in ("major", "minor"))
    if found < _OLDEST:
        raise RunError(f"{cluster.host} runs Kubernetes {version['gitVersion']}", "1.29 is the oldest that will do")
    try:
        cluster.get(f"/api/v1/namespaces/{namespace}")
    except MissingError:
        raise RunError(f"{cluster.host} has no namespace {namespace}", f"-n NAMESPACE, or {_OVERLAY[engine]}") from None
    except RefusedError:
        pass  # who works in a namespace need not see namespaces
    return f"{cluster.host}, Kubernetes {version['gitVersion']}, namespace {namespace}"


def pipeline(cluster: Cluster, engine: str, namespace: str) -> tuple[str, dict[str, Any]]:
    """The pipeline is installed, and of this version; also returns its parameters."""
    if engine == "argo":
        try:
            cluster.get("/apis/argoproj.io/v1alpha1")
        except MissingError:
            raise RunError("the cluster has no Argo Workflows", _ARGO) from None
    parameters = engine_of(engine, cluster, namespace).parameters()
    if engine == "kubeflow":
        check_version(
            str(parameters.get("image", "")).rpartition(":")[2],
            what="the newest version of pipeline lipt",
            remedy=f"kfp pipeline create-version -n lipt -v {__version__} pipelines/lipt.yaml",
        )
    kind = {"argo": "WorkflowTemplate", "kubeflow": "pipeline"}[engine]
    return f"{kind} lipt {__version__}", parameters


def user_rights(site: Site, *, endpoint: bool = False) -> str:
    """Who calls may submit runs, see them and read their logs.

    Args:
        endpoint: Kubeflow Pipelines is reached at an address of its own, whose rights only it knows.
    """
    rights = [right for right in _USER[site.engine] if not (endpoint and right[1] == "services/proxy")]
    missing = _missing(site, rights)
    if missing:
        raise UsageError(
            f"you may not {', '.join(missing)} in {site.namespace}", _GRANT.format(namespace=site.namespace)
        )
    return "submit, status, logs"


def account_rights(site: Site) -> str:
    """The account of a run's boxes exists and may start the Jobs of a fan-out."""
    account = _account(site)
    user = f"system:serviceaccount:{site.namespace}:{account}"
    rights = (*_ACCOUNT, *(_ARGO_ACCOUNT if site.engine == "argo" else ()))
    try:
        missing = _missing(site, rights, user=user)
    except RefusedError:
        raise UnknownError(
            f"you may not ask what {account} may do",
            f"an administrator may: kubectl -n {site.namespace} auth can-i create jobs --as={user}",
        ) from None
    if missing:
        raise RunError(f"ServiceAccount {account} may not {', '.join(missing)}", _OVERLAY[site.engine])
    return f"ServiceAccount {account}: Jobs and pods"


def store_objects(site: Site) -> str:
    """Secret and ConfigMap of the object store are there and have the keys that pods take; values are never shown."""
    name, path = site.pods.s3, f"/api/v1/namespaces/{site.namespace}"
    unseen = []
    for kind, keys in (("ConfigMap", ("endpoint",)), ("Secret", ("accesskey", "secretkey"))):
        try:
            data = site.cluster.get(f"{path}/{kind.lower()}s/{name}").get("data") or {}
        except RefusedError:
            unseen.append(kind)
            continue
        except MissingError:
            data = {}
        if missing := [key for key in keys if not data.get(key)]:
            literals = " ".join(f"--from-literal={key}=…" for key in keys)
            create = f"create {'secret generic' if kind == 'Secret' else 'configmap'} {name} {literals}"
            raise RunError(
                f"{kind} {name} in {site.namespace} has no {', '.join(missing)}",
                f"kubectl -n {site.namespace} {create}",
            )
    if unseen:
        raise UnknownError(f"you may not read {' and '.join(unseen)} {name}", "the check `pod` tells whether they fit")
    return f"Secret and ConfigMap {name}"


def nodes(site: Site) -> str:
    """Some node takes the run's pods: ready, with enough GPUs, its labels wanted, its taints tolerated."""
    found, pods = _nodes(site), site.pods
    with_gpus = [node for node in found if _gpus(node)]
    candidates = [node for node in (with_gpus if pods.gpus else found) if _gpus(node) >= pods.gpus]
    selected = [node for node in candidates if pods.node_selector.items() <= node["metadata"]["labels"].items()]
    ready = [node for node in selected if not _troubles(node)]
    able = [node for node in ready if not _refused_by(node, pods.tolerations)]
    what = f"a pod with {pods.gpus} {'GPU' if pods.gpus == 1 else 'GPUs'}" if pods.gpus else "a pod without GPU"
    troubles = "".join(f"; {_name(node)}: {', '.join(_troubles(node))}" for node in found if _troubles(node))
    if not able:
        tolerate = _tolerating(ready, pods.tolerations)
        steps: list[tuple[list[Any], str, str]] = [
            (candidates, f"none has {pods.gpus} allocatable {GPU}", "-p gpus=N, or the device plugin"),
            (selected, f"none of them has the labels {json.dumps(pods.node_selector)}", "-p node_selector='{…}'"),
            (ready, "they are in trouble", "kubectl describe node"),
            ([], f"taints keep it away: {_written(ready, pods.tolerations)}", tolerate),
        ]
        why, remedy = next((why, remedy) for left, why, remedy in steps if not left)
        raise RunError(f"no node of {len(found)} takes {what}: {why}{troubles}", remedy)
    text = f"{len(able)} of {len(found)} nodes take {what}{troubles}"
    if pods.gpus or not with_gpus:
        return text
    hint = f"-p gpus={min(map(_gpus, with_gpus))} {_tolerating(with_gpus, pods.tolerations)}".rstrip()
    return f"{text}; {len(with_gpus)} with GPUs, which take {hint}"


def image(site: Site) -> str:
    """Whether nodes have the image, as far as they tell (each lists the 50 largest)."""
    wanted, found = _full(site.pods.image), _nodes(site)
    having = [node for node in found if wanted in _images(node)]
    if not having:
        raise UnknownError(f"{site.pods.image}: no node says that it has it", "it is pulled when a pod starts")
    return f"{site.pods.image}: on {len(having)} of {len(found)} nodes"


def pod(site: Site, *, workspace: str, data: str) -> str:
    """A pod like a worker, without GPU: the image starts, is of this version, and reaches the store from inside.

    It is deleted whatever happens, and ends by itself should this process be killed.
    """
    path = f"/api/v1/namespaces/{site.namespace}/pods"
    if _missing(site, [("", "pods", ("create", "delete"))]):
        raise UnknownError(f"you may not start a pod in {site.namespace}", _GRANT.format(namespace=site.namespace))
    settings = {"workspace": workspace, "device": "cpu"} | ({"data.source": data} if "://" in data else {})
    arguments = [text for key, value in settings.items() for text in ("--set", f"{key}={json.dumps(value)}")]
    started = time.monotonic()
    made = site.cluster.create(path, _pod_manifest(site.pods, ["doctor", "/dev/null", "-o", "json", *arguments]))
    path = f"{path}/{made['metadata']['name']}"
    try:
        ended = _until_over(site, path)
        log = site.cluster.text("GET", f"{path}/log")
    finally:
        site.cluster.delete(path)
    findings = _findings(log, ended)
    for name, finding in findings.items():
        if not finding["ok"]:
            message, _, remedy = str(finding["finding"]).partition("\n  -> ")
            raise RunError(f"{name}, seen from a pod: {message}", remedy)
    packages = findings["packages"]["finding"]
    if f"lipt {__version__}" not in packages.split(", "):
        raise RunError(f"{site.pods.image} holds {packages}; this is lipt {__version__}", "-p image=…, of this version")
    seconds = time.monotonic() - started
    return f"on {ended['spec']['nodeName']}, {seconds:.0f} s: lipt {__version__}, {findings['workspace']['finding']}"


def _missing(site: Site, rights: Rights, *, user: str = "") -> list[str]:
    """Those of the rights that the caller, or another user, does not have in the namespace."""
    path, kind, extra = "selfsubjectaccessreviews", "SelfSubjectAccessReview", {}
    if user:
        path, kind = f"namespaces/{site.namespace}/localsubjectaccessreviews", "LocalSubjectAccessReview"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{site.namespace}", "system:authenticated"]
        extra = {"user": user, "groups": groups}
    missing = []
    for group, resource, verbs in rights:
        for verb in verbs:
            plural, _, sub = resource.partition("/")
            asked = {"namespace": site.namespace, "verb": verb, "group": group, "resource": plural, "subresource": sub}
            review = site.cluster.create(
                f"/apis/authorization.k8s.io/v1/{path}",
                {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": kind,
                    "metadata": {"namespace": site.namespace} if user else {},
                    "spec": {"resourceAttributes": asked, **extra},
                },
            )
            if not review["status"]["allowed"]:
                missing.append(f"{verb} {resource}{f'.{group}' if group else ''}")
    return missing


def _account(site: Site) -> str:
    """The account that boxes run as: Argo's is in the workflow, Kubeflow's depends on how it was installed."""
    names = {"argo": ("lipt-run",), "kubeflow": ("pipeline-runner", "default-editor")}[site.engine]
    for name in names:
        try:
            site.cluster.get(f"/api/v1/namespaces/{site.namespace}/serviceaccounts/{name}")
        except MissingError:
            continue
        except RefusedError:
            pass
        return name
    remedy = _OVERLAY["argo"] if site.engine == "argo" else "-n NAMESPACE: the profile that runs belong to"
    raise RunError(f"namespace {site.namespace} has no ServiceAccount {' or '.join(names)}", remedy)


def _nodes(site: Site) -> list[dict[str, Any]]:
    try:
        return list(site.cluster.get("/api/v1/nodes")["items"])
    except RefusedError:
        raise UnknownError("you may not see the nodes", "an administrator may: kubectl describe nodes") from None


def _name(node: dict[str, Any]) -> str:
    return str(node["metadata"]["name"])


def _gpus(node: dict[str, Any]) -> int:
    return int(node["status"].get("allocatable", {}).get(GPU, 0))


def _troubles(node: dict[str, Any]) -> list[str]:
    """What passes by itself or by a repair, and is no reason for a toleration: not-ready, disk-pressure, cordoned …"""
    conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", [])}
    found = {taint["key"].removeprefix(_CONDITION) for taint in node["spec"].get("taints", []) if _passes(taint)}
    return sorted(found or ({"not-ready"} if conditions.get("Ready") != "True" else set()))


def _passes(taint: dict[str, Any]) -> bool:
    return str(taint["key"]).startswith(_CONDITION)


def _refused_by(node: dict[str, Any], tolerations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Taints of the node, other than its troubles, that keep pods with these tolerations away."""
    all_taints = node["spec"].get("taints", [])
    taints = [taint for taint in all_taints if taint["effect"] != "PreferNoSchedule" and not _passes(taint)]
    return [taint for taint in taints if not any(_tolerates(entry, taint) for entry in tolerations)]


def _tolerates(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def _written(nodes: list[dict[str, Any]], tolerations: list[dict[str, Any]]) -> str:
    taints = [taint for node in nodes for taint in _refused_by(node, tolerations)]
    values = [f"={taint['value']}" if taint.get("value") else "" for taint in taints]
    return ", ".join(sorted({f"{t['key']}{value}:{t['effect']}" for t, value in zip(taints, values, strict=True)}))


def _tolerating(nodes: list[dict[str, Any]], given: list[dict[str, Any]]) -> str:
    """The parameter that lets pods onto these nodes; empty when they may go there."""
    wanted = list(given)
    for taint in [taint for node in nodes for taint in _refused_by(node, given)]:
        entry = {"key": taint["key"], "operator": "Exists", "effect": taint["effect"]}
        if entry not in wanted:
            wanted.append(entry)
    return f"-p tolerations='{json.dumps(wanted)}'" if wanted != given else ""


def _full(name: str) -> str:
    """`lipt:0.1.0` as nodes call it: `docker.io/library/lipt:0.1.0`."""
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if any(sign in first for sign in ".:") or first == "localhost" else f"docker.io/{name}"


def _images(node: dict[str, Any]) -> set[str]:
    return {_full(name) for entry in node["status"].get("images", []) for name in entry.get("names") or []}


def _pod_manifest(pods: Pods, arguments: list[str]) -> dict[str, Any]:
    small = replace(pods, gpus=0, cpu="50m", memory="1Gi")
    spec = pod_spec(small, job="", arguments=arguments)
    del spec["affinity"]
    spec["activeDeadlineSeconds"] = 2 * int(_PATIENCE_S)
    spec["containers"][0]["env"].append({"name": "LIPT_S3_RETRY_S", "value": "10"})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "lipt-doctor-",
            "labels": labels_of("doctor"),
            "annotations": {"sidecar.istio.io/inject": "false"},
        },
        "spec": spec,
    }


def _until_over(site: Site, path: str) -> dict[str, Any]:
    """The pod at its end.

    Raises:
        RunError: it cannot start.
        UnknownError: it takes longer than a check should.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        seen = site.cluster.get(path)
        if seen["status"].get("phase") in ("Succeeded", "Failed"):
            return seen
        reason, message = _waits(seen)
        if reason in _NOT_PULLED:
            remedy = "push it where the nodes can read it, or -p image=…; kind load docker-image on kind"
            raise RunError(f"{site.pods.image}: {message or reason}", remedy)
        if reason in _NOT_STARTED:
            raise RunError(f"{site.pods.image} does not start: {message or reason}", "correct the image")
        if time.monotonic() > deadline:
            if reason == "Unschedulable":
                remedy = "-p tolerations=…, -p node_selector=…, or wait for room"
                raise RunError(f"no node took a small pod within {_PATIENCE_S:g} s: {message}", remedy)
            raise UnknownError(f"the pod is not done after {_PATIENCE_S:g} s ({reason or 'running'})", "try again")
        time.sleep(1)


def _waits(seen: dict[str, Any]) -> tuple[str, str]:
    """(reason, message) of what the pod waits for."""
    for container in seen["status"].get("containerStatuses", []):
        if waiting := container["state"].get("waiting"):
            return str(waiting.get("reason", "")), " ".join(str(waiting.get("message", "")).split())
    for condition in seen["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return str(condition.get("reason", "")), str(condition.get("message", ""))
    return "", ""


def _findings(log: str, ended: dict[str, Any]) -> dict[str, Any]:
    """What `lipt doctor -o json` found in the pod.

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


#: In the order in which they are shown; those that need nothing but the site.
CHECKS: dict[str, Callable[[Site], str]] = {
    "account": account_rights, "store": store_objects, "nodes": nodes, "image": image,
}  # fmt: skip
