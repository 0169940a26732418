"""What manifests/ would put on a cluster: valid to the last field, least rights, restricted pods, no secrets."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hera.workflows import models
from kubernetes_validate import validate

from lipt import __version__
from lipt.adapters.cluster.manifest import Pods, job_manifest
from lipt.adapters.setup import main as setup
from tests.manifests.kustomize import Object, build, canonical, load

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
KUBERNETES = ("1.33", "1.37")  # the oldest with all that is used here, the newest of the schemas

GPU = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: elsewhere
resources: [../overlays/kind]
components: [../components/gpu, ../components/ephemeral]
"""


@pytest.fixture(scope="session")
def components(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An overlay over overlays/kind with every component, as a user would write it."""
    copy = tmp_path_factory.mktemp("manifests")
    shutil.copytree(MANIFESTS, copy, dirs_exist_ok=True)
    (copy / "mine").mkdir()
    (copy / "mine" / "kustomization.yaml").write_text(GPU, encoding="utf-8")
    return copy / "mine"


@cache
def built(folder: Path) -> list[Object]:
    return build(folder)


@pytest.fixture(params=["kind", "kubeflow", "components"])
def folder(request: pytest.FixtureRequest, components: Path) -> Path:
    return components if request.param == "components" else MANIFESTS / "overlays" / request.param


@pytest.fixture
def overlay(folder: Path) -> list[Object]:
    return built(folder)


def files() -> list[Path]:
    return sorted(path for path in MANIFESTS.rglob("*.yaml") if path.name != "kustomization.yaml")


def each_object() -> Iterator[Object]:
    """Every object of every file, and of every overlay as built."""
    for path in files():
        yield from load(path)
    for name in ("kind", "kubeflow"):
        yield from built(MANIFESTS / "overlays" / name)
    for gpus in (0, 1):
        yield worker_job(gpus)


def worker_job(gpus: int) -> Object:
    """What a box that spreads its work creates."""
    pods = Pods(image="lipt:0.1.0", gpus=gpus, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "x", "uid": "u"}
    job = job_manifest(
        pods, run="x", owner=owner, name="pretrain", arguments=["box", "worker"], completions=4, may_fail=2
    )
    job["metadata"]["name"] = "worker"
    return job


def kinds(objects: list[Object], kind: str) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def pods_of(one: Object) -> list[tuple[str, Object]]:
    """The pods that an object leads to, by name."""
    name = f"{one['kind']}/{one['metadata'].get('name', one['metadata'].get('generateName'))}"
    if one["kind"] in ("Deployment", "Job"):
        return [(name, {"apiVersion": "v1", "kind": "Pod", **one["spec"]["template"]})]
    if one["kind"] in ("WorkflowTemplate", "Workflow"):
        spec = one["spec"]
        return [(f"{name}/{box['name']}", pod_of(spec, box)) for box in spec.get("templates", []) if "container" in box]
    return []


def pod_of(spec: Object, box: Object) -> Object:
    """The pod that Argo makes of a template, its own containers `init` and `wait` included."""
    patches = [json.loads(with_defaults(spec, text["podSpecPatch"])) for text in (spec, box) if "podSpecPatch" in text]
    containers: dict[str, Object] = {
        "main": {"name": "main", **box["container"]},
        "wait": {"name": "wait", "image": "argoexec:v3.7.14"},
        "init": {"name": "init", "image": "argoexec:v3.7.14"},
    }
    rest: Object = {}
    for patch in patches:
        for container in patch.pop("containers", []) + patch.pop("initContainers", []):
            containers[container["name"]] |= container
        rest |= patch
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": spec.get("podMetadata", {}).get("labels", {}) | box.get("metadata", {}).get("labels", {})
        },
        "spec": {
            "serviceAccountName": spec.get("serviceAccountName"),
            "securityContext": box.get("securityContext", spec.get("securityContext", {})),
            "initContainers": [containers.pop("init")],
            "containers": list(containers.values()),
            "volumes": spec.get("volumes", []) + box.get("volumes", []),
            **rest,
        },
    }


def with_defaults(spec: Object, text: str) -> str:
    values = {one["name"]: one.get("value", "") for one in spec["arguments"]["parameters"]}
    return re.sub(r"{{workflow\.parameters\.(\w+)}}", lambda match: values[match[1]], text)


def each_pod() -> Iterator[tuple[str, Object]]:
    for one in each_object():
        yield from pods_of(one)


def check(one: Object, version: str) -> None:
    """Valid to the last field; raises otherwise."""
    if not one["apiVersion"].startswith("argoproj.io/"):
        validate(one, version, strict=True)
        return
    # The models of Argo's own API drop what they do not know: nothing may be lost.
    model = getattr(models, one["kind"]).model_validate(one)
    assert json.loads(model.model_dump_json(by_alias=True, exclude_unset=True)) == one


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_files_are_valid(path: Path, version: str) -> None:
    for one in load(path):
        check(one, version)


@pytest.mark.parametrize("version", KUBERNETES)
def test_overlays_are_valid(overlay: list[Object], version: str) -> None:
    for one in overlay:
        check(one, version)
        for _, pod in pods_of(one):
            validate(pod, version, strict=True)


def test_the_check_finds_unknown_fields() -> None:
    deployment = kinds(built(MANIFESTS / "overlays" / "kind"), "Deployment")["minio"]
    broken = json.loads(json.dumps(deployment).replace('"readinessProbe"', '"readynessProbe"'))
    with pytest.raises(Exception, match="readynessProbe"):
        check(broken, KUBERNETES[0])
    template = json.loads(json.dumps(load(MANIFESTS / "base" / "workflowtemplate.yaml")[0]))
    template["spec"]["entryPoint"] = "x"
    with pytest.raises(AssertionError):
        check(template, KUBERNETES[0])


@pytest.mark.skipif(not shutil.which("kubectl") and not shutil.which("kustomize"), reason="neither is installed")
def test_kustomize_builds_the_same(folder: Path) -> None:
    command = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]
    text = subprocess.run([*command, str(folder)], check=True, capture_output=True, text=True).stdout
    assert canonical(list(yaml.safe_load_all(text))) == canonical(built(folder))


def test_nothing_is_left_out() -> None:
    """Every file is part of a kustomization, an example, or a run to create by hand."""
    used = set()
    for path in MANIFESTS.rglob("kustomization.yaml"):
        (kustomization,) = load(path)
        used |= {(path.parent / entry).resolve() for entry in kustomization.get("resources", [])}
    alone = [path for path in files() if path not in used]
    assert all(path.name.endswith(".example.yaml") or path.parent.name == "run" for path in alone), alone


def test_labels(overlay: list[Object]) -> None:
    for one in overlay:
        labels = {key.removeprefix("app.kubernetes.io/"): value for key, value in one["metadata"]["labels"].items()}
        assert {"name", "part-of", "component", "managed-by"} <= set(labels), one["metadata"]["name"]
        assert labels["part-of"] == "lipt"


def test_labels_of_pods(overlay: list[Object]) -> None:
    """Without them the network rules leave a pod alone with itself."""
    for one in overlay:
        for name, pod in pods_of(one):
            assert pod["metadata"]["labels"].get("app.kubernetes.io/part-of") == "lipt", name


def test_pods_are_restricted() -> None:
    """Pod Security level `restricted`, and more: a numeric user, a read-only root file system."""
    names = set()
    for name, pod in each_pod():
        names.add(name)
        spec = pod["spec"]
        ours = spec.get("securityContext", {})
        assert ours.get("runAsNonRoot") is True, name
        assert ours.get("runAsUser", 0) > 0, name
        assert ours.get("seccompProfile") == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        for container in spec.get("initContainers", []) + spec["containers"]:
            context = container.get("securityContext", {})
            where = f"{name}/{container['name']}"
            assert context.get("allowPrivilegeEscalation") is False, where
            assert context.get("readOnlyRootFilesystem") is True, where
            assert context.get("capabilities") == {"drop": ["ALL"]}, where
            assert not context.get("privileged"), where
            assert context.get("runAsUser", 1) > 0, where
        for volume in spec.get("volumes", []):
            assert not {"hostPath", "nfs"} & set(volume), name
    assert {"Deployment/minio", "Job/lipt-setup", "WorkflowTemplate/lipt/train", "Job/worker"} <= names


def test_the_namespace_enforces_it() -> None:
    (namespace,) = kinds(built(MANIFESTS / "overlays" / "kind"), "Namespace").values()
    level = "pod-security.kubernetes.io"
    assert {namespace["metadata"]["labels"][f"{level}/{mode}"] for mode in ("enforce", "audit", "warn")} == {
        "restricted"
    }


def test_resources_are_requested() -> None:
    for name, pod in each_pod():
        for container in pod["spec"]["containers"]:
            if container["name"] != "wait":
                resources = container["resources"]
                assert {"cpu", "memory"} <= set(resources["requests"]), name
                assert "memory" in resources["limits"], name


def test_images_are_pinned(overlay: list[Object]) -> None:
    images = {
        container["image"]
        for one in overlay
        for _, pod in pods_of(one)
        for container in pod["spec"]["containers"]
        if not container["image"].startswith("{{")
    }
    for template in kinds(overlay, "WorkflowTemplate").values():
        images.add(with_defaults(template["spec"], "{{workflow.parameters.image}}"))
    for image in images:
        assert re.search(r"(:[\w.-]+|@sha256:[0-9a-f]{64})$", image), image
        assert not image.endswith(":latest"), image
    if kinds(overlay, "Job"):
        assert f"lipt:{__version__}" in images


def test_no_secrets_in_files() -> None:
    assert not [one["metadata"]["name"] for one in each_object() if one["kind"] == "Secret"]
    for path in MANIFESTS.rglob("*.yaml"):
        assert not re.search(r"(?i)(password|secretkey|accesskey)['\"]?\s*[:=]\s*['\"]?[\w/+]{16,}", path.read_text())


RIGHTS = {
    "lipt-run": {
        "batch/jobs": {"create", "get", "delete"},
        "/pods": {"get", "list", "patch", "delete"},
        "argoproj.io/workflowtaskresults": {"create", "patch"},
    },
    "lipt-setup": {"/secrets": {"create"}, "/secrets/minio-root": {"get"}, "/secrets/lipt-s3": {"get"}},
}


def test_least_rights(overlay: list[Object]) -> None:
    assert not kinds(overlay, "ClusterRole")
    assert not kinds(overlay, "ClusterRoleBinding")
    for name, role in kinds(overlay, "Role").items():
        rights: dict[str, set[str]] = {}
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for only in rule.get("resourceNames", [""]):
                        key = f"{group}/{resource}" + (f"/{only}" if only else "")
                        rights.setdefault(key, set()).update(rule["verbs"])
        assert rights == RIGHTS[name]


def test_bindings_lead_somewhere(overlay: list[Object]) -> None:
    roles = kinds(overlay, "Role")
    for binding in kinds(overlay, "RoleBinding").values():
        assert binding["roleRef"]["name"] in roles
        for subject in binding["subjects"]:
            assert subject["namespace"] == binding["metadata"]["namespace"]


def test_pods_without_an_account_have_no_token(overlay: list[Object]) -> None:
    accounts = kinds(overlay, "ServiceAccount")
    for one in overlay:
        for name, pod in pods_of(one):
            account = pod["spec"].get("serviceAccountName")
            assert account in accounts if account else pod["spec"]["automountServiceAccountToken"] is False, name


def test_network_rules_know_our_pods() -> None:
    """Each selector finds pods by labels that they carry."""
    overlay = built(MANIFESTS / "overlays" / "kind")
    policies = kinds(overlay, "NetworkPolicy")
    assert policies["default-deny"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    labels = {name: pod["metadata"]["labels"] for one in overlay for name, pod in pods_of(one)}

    def meant(policy: str) -> set[str]:
        selector = policies[policy]["spec"]["podSelector"]
        found = {name for name in labels if selector["matchLabels"].items() <= labels[name].items()}
        for expression in selector.get("matchExpressions", []):
            key, values = expression["key"], expression.get("values", [])
            if expression["operator"] == "NotIn":
                found = {name for name in found if labels[name].get(key) not in values}
            else:
                assert expression["operator"] == "DoesNotExist"
                found = {name for name in found if key not in labels[name]}
        return found

    assert meant("minio") == {"Deployment/minio"}
    assert meant("lipt") == meant("lipt-api-server") == set(labels) - {"Deployment/minio"}


def test_the_store_and_its_set_up_fit() -> None:
    overlay = built(MANIFESTS / "overlays" / "kind")
    (service,) = kinds(overlay, "Service").values()
    endpoint = kinds(overlay, "ConfigMap")["lipt-s3"]["data"]["endpoint"]
    assert endpoint == f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    (container,) = kinds(overlay, "Job")["lipt-setup"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", setup.__module__]
    assert container["args"] == ["--bucket", "lipt", "--root-secret", "minio-root", "--user-secret", "lipt-s3"]


def test_the_gpu_component(components: Path) -> None:
    def parameters(folder: Path) -> dict[str, Any]:
        (template,) = kinds(built(folder), "WorkflowTemplate").values()
        return {one["name"]: one.get("value") for one in template["spec"]["arguments"]["parameters"]}

    before, after = parameters(MANIFESTS / "overlays" / "kind"), parameters(components)
    assert {name for name in before if before[name] != after[name]} == {"gpus", "tolerations"}
    assert after["gpus"] == "1"
    assert json.loads(after["tolerations"])[0]["key"] == "nvidia.com/gpu"
    assert json.loads(after["node_selector"]) == {}
