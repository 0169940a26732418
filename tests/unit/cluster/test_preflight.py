"""What the checks of a cluster conclude from its answers, and what they tell to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lipt import __version__
from lipt.adapters.cluster import preflight
from lipt.adapters.cluster.api import MissingError, RefusedError
from lipt.adapters.cluster.manifest import Pods
from lipt.adapters.cluster.preflight import Site, UnknownError
from lipt.errors import LiptError, RunError, UsageError

ROOT = Path(__file__).parents[3]
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
PRESSURE = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


class Answers:
    """An API server with fixed answers: path -> document or error; reviews go by verb, resource and user."""

    host = "https://cluster"

    def __init__(
        self, documents: dict[str, Any] | None = None, *, denied: Callable[[dict[str, Any]], bool] = lambda _: False
    ) -> None:
        self.documents, self.denied = documents or {}, denied
        self.created: list[dict[str, Any]] = []
        self.deleted: list[str] = []

    def get(self, path: str, **_query: str) -> dict[str, Any]:
        answer = self.documents.get(path, MissingError(path))
        if isinstance(answer, LiptError):
            raise answer
        document: dict[str, Any] = answer
        return document

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if body["kind"].endswith("Review"):
            if isinstance(error := self.documents.get(path), LiptError):
                raise error
            return {"status": {"allowed": not self.denied(body["spec"])}}
        self.created.append(body)
        return {"metadata": {"name": "lipt-doctor-x"}}

    def delete(self, path: str, **_options: Any) -> None:
        self.deleted.append(path)

    def text(self, _method: str, path: str, **_query: Any) -> str:
        return str(self.documents[path])


def site(cluster: Answers, *, engine: str = "argo", **pods: Any) -> Site:
    return Site(cluster=cluster, engine=engine, namespace="vision", pods=Pods(image="lipt:1", **pods))  # type: ignore[arg-type]


def node(
    name: str, *, gpus: int = 0, ready: str = "True", images: tuple[str, ...] = (), taints: tuple[Any, ...] = ()
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"pool": name}},
        "spec": {"taints": list(taints)},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)} if gpus else {},
            "conditions": [{"type": "Ready", "status": ready}],
            "images": [{"names": list(images)}],
        },
    }


def with_nodes(*found: dict[str, Any]) -> Answers:
    return Answers({"/api/v1/nodes": {"items": list(found)}})


GPU_NODES = node("a", gpus=4, taints=(TAINT,)), node("b", gpus=8, taints=(TAINT,)), node("c")


def test_gpu_nodes_that_take_the_pods_are_counted() -> None:
    cluster = with_nodes(*GPU_NODES)
    assert preflight.nodes(site(cluster, gpus=4, tolerations=[TOLERATION])) == "2 of 3 nodes take a pod with 4 GPUs"
    assert preflight.nodes(site(cluster, gpus=8, tolerations=[TOLERATION])) == "1 of 3 nodes take a pod with 8 GPUs"


def test_gpus_that_a_run_leaves_idle_are_mentioned_with_the_parameters_that_take_them() -> None:
    text = preflight.nodes(site(with_nodes(*GPU_NODES)))
    assert text.startswith("1 of 3 nodes take a pod without GPU; 2 with GPUs")
    assert text.endswith(f"-p gpus=4 -p tolerations='{json.dumps([TOLERATION])}'")


def test_a_node_in_trouble_is_named_and_not_tolerated() -> None:
    text = preflight.nodes(site(with_nodes(node("a", gpus=1, taints=(TAINT, PRESSURE)), node("c"))))
    assert text.startswith("1 of 2 nodes take a pod without GPU; a: disk-pressure; 1 with GPUs")
    assert "disk-pressure" not in text.partition("tolerations")[2]


@pytest.mark.parametrize(
    ("pods", "found", "message", "remedy"),
    [
        ({"gpus": 1}, GPU_NODES, "taints keep it away: nvidia.com/gpu=present:NoSchedule", json.dumps([TOLERATION])),
        ({"gpus": 16}, GPU_NODES, "none has 16 allocatable nvidia.com/gpu", "-p gpus="),
        ({"node_selector": {"pool": "x"}}, GPU_NODES, 'has the labels {"pool": "x"}', "-p node_selector="),
        ({}, (node("c", ready="Unknown"),), "c: not-ready", "kubectl describe node"),
        ({}, (node("c", taints=(PRESSURE,)),), "in trouble; c: disk-pressure", "kubectl describe node"),
    ],
)
def test_why_no_node_takes_the_pods(pods: dict[str, Any], found: Any, message: str, remedy: str) -> None:
    with pytest.raises(RunError) as error:
        preflight.nodes(site(with_nodes(*found), **pods))
    assert message in error.value.message
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        (TOLERATION, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "value": "absent"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_as_the_scheduler_reads_them(toleration: dict[str, Any], tolerated: bool) -> None:
    assert (preflight._refused_by(GPU_NODES[0], [toleration]) == []) is tolerated


def test_images_go_by_their_full_name() -> None:
    names = {
        "lipt:1": "docker.io/library/lipt:1",
        "me/lipt:1": "docker.io/me/lipt:1",
        "localhost:5000/lipt:1": "localhost:5000/lipt:1",
        "ghcr.io/me/lipt:1": "ghcr.io/me/lipt:1",
    }
    assert {name: preflight._full(name) for name in names} == names
    cluster = with_nodes(node("a", images=("docker.io/library/lipt:1",)), node("b"))
    assert preflight.image(site(cluster)) == "lipt:1: on 1 of 2 nodes"
    with pytest.raises(UnknownError):
        preflight.image(site(with_nodes(node("a"))))


def test_rights_that_are_missing_are_listed() -> None:
    cluster = Answers(denied=lambda spec: spec["resourceAttributes"]["verb"] == "create")
    with pytest.raises(UsageError) as error:
        preflight.user_rights(site(cluster))
    assert error.value.message == "you may not create workflows.argoproj.io in vision"
    with pytest.raises(UsageError, match=r"you may not create services/proxy in vision"):
        preflight.user_rights(site(cluster, engine="kubeflow"))
    assert preflight.user_rights(site(cluster, engine="kubeflow"), endpoint=True)


def test_the_account_of_the_boxes() -> None:
    accounts = "/api/v1/namespaces/vision/serviceaccounts"
    denied = Answers({f"{accounts}/lipt-run": {}}, denied=lambda spec: "lipt-run" in spec["user"])
    with pytest.raises(RunError, match=r"lipt-run may not create jobs\.batch, .*patch workflowtaskresults"):
        preflight.account_rights(site(denied))
    profile = Answers({f"{accounts}/default-editor": {}})
    assert "default-editor" in preflight.account_rights(site(profile, engine="kubeflow"))
    with pytest.raises(RunError, match="no ServiceAccount lipt-run"):
        preflight.account_rights(site(Answers()))
    reviews = "/apis/authorization.k8s.io/v1/namespaces/vision/localsubjectaccessreviews"
    with pytest.raises(UnknownError) as error:
        preflight.account_rights(site(Answers({f"{accounts}/lipt-run": {}, reviews: RefusedError("no")})))
    assert "--as=system:serviceaccount:vision:lipt-run" in error.value.remedy


def test_the_rights_checked_are_those_that_the_manifests_grant() -> None:
    text = (ROOT / "manifests/base/access/access.yaml").read_text(encoding="utf-8")
    (role,) = [document for document in yaml.safe_load_all(text) if document["kind"] == "Role"]
    granted = {(rule["apiGroups"][0], rule["resources"][0]): set(rule["verbs"]) for rule in role["rules"]}
    checked = (*preflight._ACCOUNT, *preflight._ARGO_ACCOUNT)
    assert {(group, resource): set(verbs) for group, resource, verbs in checked} == granted


def test_objects_of_the_store_are_checked_by_key_and_never_shown() -> None:
    path = "/api/v1/namespaces/vision"
    secret = {"data": {"accesskey": "QQ==", "secretkey": "aHVudGVyMg=="}}
    documents: dict[str, Any] = {f"{path}/configmaps/lipt-s3": {"data": {"endpoint": "http://s"}}}
    documents[f"{path}/secrets/lipt-s3"] = secret
    assert preflight.store_objects(site(Answers(documents))) == "Secret and ConfigMap lipt-s3"
    documents[f"{path}/secrets/lipt-s3"] = {"data": secret["data"] | {"accesskey": ""}}
    with pytest.raises(RunError) as error:
        preflight.store_objects(site(Answers(documents)))
    assert error.value.message == "Secret lipt-s3 in vision has no accesskey"
    assert "kubectl -n vision create secret generic lipt-s3" in error.value.remedy
    assert "aHVudGVyMg" not in str(error.value)
    documents[f"{path}/secrets/lipt-s3"] = RefusedError("no")
    with pytest.raises(UnknownError, match="you may not read Secret lipt-s3"):
        preflight.store_objects(site(Answers(documents)))


POD = "/api/v1/namespaces/vision/pods/lipt-doctor-x"


def ended(log: str, *, phase: str = "Succeeded") -> Answers:
    status = {"phase": phase, "containerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}
    return Answers({POD: {"status": status, "spec": {"nodeName": "a"}}, f"{POD}/log": log})


def findings(**changes: Any) -> str:
    well = {"packages": f"python 3, lipt {__version__}, torch 2", "workspace": "s3://b/x: write, read, list, delete"}
    return json.dumps({name: {"ok": True, "finding": text} for name, text in well.items()} | changes, indent=1)


def test_a_pod_tells_how_the_store_looks_from_inside_and_is_deleted() -> None:
    cluster = ended(f"a warning {{}}\n{findings()}\n")
    assert "s3://b/x: write, read, list, delete" in preflight.pod(site(cluster), workspace="s3://b/x", data="digits")
    (body,) = cluster.created
    spec, (container,) = body["spec"], body["spec"]["containers"]
    assert container["args"] == [
        "doctor",
        "/dev/null",
        "-o",
        "json",
        "--set",
        'workspace="s3://b/x"',
        "--set",
        'device="cpu"',
    ]
    assert spec["activeDeadlineSeconds"] == 120
    assert (spec["securityContext"]["runAsNonRoot"], spec["automountServiceAccountToken"]) == (True, False)
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert cluster.deleted == [POD]


@pytest.mark.parametrize(
    ("log", "message", "remedy"),
    [
        (
            findings(workspace={"ok": False, "finding": "s3://b/x: out of reach\n  -> check the store"}),
            "workspace, seen from a pod: s3://b/x: out of reach",
            "check the store",
        ),
        (findings(packages={"ok": True, "finding": "python 3, lipt 0.0.1"}), "holds python 3, lipt 0.0.1", "-p image="),
        ("exec: lipt: not found\n", "(Error, exit code 1): exec: lipt: not found", "-p image="),
        ("", "no output", "-p image="),
    ],
)
def test_what_a_pod_complains_about(log: str, message: str, remedy: str) -> None:
    cluster = ended(log, phase="Failed")
    with pytest.raises(RunError) as error:
        preflight.pod(site(cluster), workspace="s3://b/x", data="digits")
    assert message in error.value.message
    assert remedy in error.value.remedy
    assert cluster.deleted == [POD]


def test_a_pod_whose_image_is_not_there() -> None:
    waiting = {"reason": "ErrImagePull", "message": "not\nfound"}
    cluster = Answers({POD: {"status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}}})
    with pytest.raises(RunError, match="lipt:1: not found"):
        preflight.pod(site(cluster), workspace="s3://b/x", data="digits")
    assert cluster.deleted == [POD]


def test_a_pod_that_does_not_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_PATIENCE_S", -1.0)
    status: dict[str, Any] = {"phase": "Pending"}
    cluster = Answers({POD: {"status": status}})
    with pytest.raises(UnknownError):
        preflight.pod(site(cluster), workspace="s3://b/x", data="digits")
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    status["conditions"] = [unschedulable]
    with pytest.raises(RunError, match="0/3 nodes"):
        preflight.pod(site(cluster), workspace="s3://b/x", data="digits")
    assert cluster.deleted == [POD, POD]


def test_old_servers_and_missing_namespaces() -> None:
    version = {"major": "1", "minor": "28+", "gitVersion": "v1.28.3"}
    with pytest.raises(RunError, match=r"v1\.28\.3"):
        preflight.server(Answers({"/version": version}), "argo", "vision")  # type: ignore[arg-type]
    new = {"/version": version | {"minor": "34"}}
    with pytest.raises(RunError, match="no namespace vision"):
        preflight.server(Answers(new), "argo", "vision")  # type: ignore[arg-type]
    hidden = Answers(new | {"/api/v1/namespaces/vision": RefusedError("no")})
    assert "namespace vision" in preflight.server(hidden, "argo", "vision")  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["argo", "kubeflow"])
def test_the_shipped_pipelines_are_of_this_version(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with (ROOT / "pipelines/lipt.yaml").open(encoding="utf-8") as file:
        inputs = next(yaml.safe_load_all(file))["root"]["inputDefinitions"]["parameters"]
    defaults = {name: entry.get("defaultValue") for name, entry in inputs.items()}

    class Installed:
        def parameters(self) -> dict[str, Any]:
            return defaults

    monkeypatch.setattr(preflight, "engine_of", lambda *_: Installed())
    cluster: Any = Answers({"/apis/argoproj.io/v1alpha1": {}})
    assert preflight.pipeline(cluster, engine, "vision")[1] == defaults
    if engine == "kubeflow":
        defaults["image"] = "lipt:0.0.1"
        with pytest.raises(UsageError, match=r"of lipt 0\.0\.1, this is"):
            preflight.pipeline(cluster, engine, "vision")


def test_without_argo() -> None:
    with pytest.raises(RunError, match="no Argo Workflows"):
        preflight.pipeline(Answers(), "argo", "vision")  # type: ignore[arg-type]


def test_the_pods_parameters_reach_the_pod() -> None:
    cluster = ended(findings())
    changed = replace(site(cluster), pods=Pods(image="lipt:2", gpus=8, node_selector={"pool": "a"}, s3="mine"))
    preflight.pod(changed, workspace="s3://b/x", data="s3://b/data")
    spec = cluster.created[0]["spec"]
    assert (spec["nodeSelector"], spec["containers"][0]["image"]) == ({"pool": "a"}, "lipt:2")
    assert spec["containers"][0]["args"][-1] == 'data.source="s3://b/data"'
    assert spec["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "mine"
