"""What manifests/ would put on a cluster is valid to the last field, and is what kustomize builds."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hera.workflows import models
from kubernetes_validate import validate

from tests.manifests.kustomize import Object, canonical, load
from tests.manifests.objects import MANIFESTS, built, files, kinds, pods_of

KUBERNETES = ("1.33", "1.37")  # the oldest with all that is used here, the newest of the schemas


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


@pytest.mark.skipif(
    not shutil.which("kubectl") and not shutil.which("kustomize"),
    reason="a double check of kustomize.py, where there is a kustomize",
)
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
