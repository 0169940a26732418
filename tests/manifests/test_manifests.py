"""Labels, resources, images and parameters of what manifests/ would put on a cluster."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from lipt import __version__
from lipt.adapters.cluster.job_manifest import FIRST_POD, SERVICE
from lipt.adapters.minio_setup import main as setup
from tests.manifests.objects import MANIFESTS, Object, built, each_pod, kinds, pods_of, with_defaults, worker_job


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


def test_resources_are_requested() -> None:
    for name, pod in each_pod():
        for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
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


def test_pages_name_this_version() -> None:
    root = MANIFESTS.parent
    for page in [*root.glob("*.md"), *root.glob("docs/**/*.md"), *MANIFESTS.rglob("*.md"), *MANIFESTS.rglob("*.yaml")]:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"(?:\blipt:|newTag: |\A# Changelog[^#]*## )(\d[\w.]*)", text)) <= {__version__}, page


def test_pages_link_to_nothing_outside_of_the_folder() -> None:
    """`lipt pipeline export manifests` writes this folder alone."""
    for page in MANIFESTS.rglob("*.md"):
        for link in re.findall(r"\]\((?!https://|#)([^)#]+)", page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            assert target.exists(), link
            assert target.is_relative_to(MANIFESTS.resolve()), link


def test_the_store_and_its_set_up_fit() -> None:
    overlay = built(MANIFESTS / "overlays" / "kind")
    service = kinds(overlay, "Service")["minio"]
    name, namespace, port = *(service["metadata"][key] for key in ("name", "namespace")), service["spec"]["ports"][0]
    endpoint = kinds(overlay, "ConfigMap")["lipt-s3"]["data"]["endpoint"]
    assert endpoint == f"http://{name}.{namespace}:{port['port']}"
    (container,) = kinds(overlay, "Job")["lipt-setup"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", setup.__module__]
    assert container["args"] == ["--bucket", "lipt", "--root-secret", "minio-root", "--user-secret", "lipt-s3"]
    values = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert (values["LIPT_S3_ENDPOINT"], values["LIPT_RUNS_NAMESPACE"]) == (f"http://{name}:{port['port']}", "lipt")


def test_runs_in_another_namespace(tmp_path: Path) -> None:
    """Its name is in one file; MinIO stays where it is."""
    shutil.copytree(MANIFESTS, tmp_path, dirs_exist_ok=True)
    base = tmp_path / "base" / "kustomization.yaml"
    base.write_text(base.read_text().replace("namespace: lipt\n", "namespace: vision\n"))
    objects = [one for one in built(tmp_path / "overlays" / "kind") if one["kind"] != "Namespace"]
    assert {one["metadata"]["namespace"] for one in objects} == {"vision", "lipt-store"}
    (container,) = kinds(objects, "Job")["lipt-setup"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "LIPT_RUNS_NAMESPACE", "value": "vision"} in container["env"]
    namespaces = kinds(built(tmp_path / "overlays" / "kind"), "Namespace")
    assert namespaces["vision"]["metadata"]["labels"]["lipt.dev/runs"] == "true"
    assert set(namespaces) == {"vision", "lipt-store"}


def test_argo_archives_nothing_of_a_run() -> None:
    """A controller that archives logs would want a Secret in this namespace, and each box would wait for it."""
    objects = built(MANIFESTS / "overlays" / "kind")
    reference = kinds(objects, "WorkflowTemplate")["lipt"]["spec"]["artifactRepositoryRef"]
    repository = kinds(objects, "ConfigMap")[reference["configMap"]]
    assert repository["metadata"]["namespace"] == "lipt"
    assert yaml.safe_load(repository["data"][reference["key"]]) == {"archiveLogs": False}


def test_the_quota_is_that_of_the_runs(components: Path) -> None:
    found = [one for one in built(components) if one["kind"] in ("ResourceQuota", "LimitRange")]
    assert sorted(one["kind"] for one in found) == ["LimitRange", "ResourceQuota"]
    assert {one["metadata"]["namespace"] for one in found} == {"lipt"}


@pytest.mark.parametrize("name", ["kind", "kubeflow"])
def test_the_pods_of_a_training_find_each_other(name: str) -> None:
    objects, job = built(MANIFESTS / "overlays" / name), worker_job(1, together=True)
    service, labels = kinds(objects, "Service")[SERVICE], job["spec"]["template"]["metadata"]["labels"]
    spec = service["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert spec["selector"].items() <= labels.items()
    assert not spec["selector"].items() <= worker_job(1)["spec"]["template"]["metadata"]["labels"].items()
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    (first,) = [entry["value"] for entry in pod["containers"][0]["env"] if entry["name"] == FIRST_POD]
    job_name = labels["lipt.dev/job"]
    assert first == f"{job_name}-0.{service['metadata']['name']}:{spec['ports'][0]['port']}"
    assert len(f"{job_name}-999") <= 63  # a host name
    for rules in kinds(objects, "NetworkPolicy").values():
        if rules["spec"]["podSelector"].get("matchLabels") == spec["selector"]:
            assert [peer for rule in rules["spec"]["ingress"] for peer in rule["from"]] == [
                peer for rule in rules["spec"]["egress"] for peer in rule["to"]
            ]
            assert "ports" not in rules["spec"]["ingress"][0]  # their processes choose them
            return
    raise AssertionError("no rule lets them reach each other")


def test_the_gpu_component(components: Path) -> None:
    def parameters(folder: Path) -> dict[str, Any]:
        (template,) = kinds(built(folder), "WorkflowTemplate").values()
        return {one["name"]: one.get("value") for one in template["spec"]["arguments"]["parameters"]}

    before, after = parameters(MANIFESTS / "overlays" / "kind"), parameters(components)
    assert {name for name in before if before[name] != after[name]} == {"gpus", "tolerations"}
    assert after["gpus"] == "1"
    assert json.loads(after["tolerations"])[0]["key"] == "nvidia.com/gpu"
    assert json.loads(after["node_selector"]) == {}
