"""What manifests/ would put on a cluster is valid to the last field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hera.workflows import models
from kubernetes_validate import validate

from tests.manifests.objects import MANIFESTS, Object, built, files, kinds, load, pods_of

KUBERNETES = ("1.33", "1.37")  # the oldest with all that is used here, the newest of the schemas


def check(one: Object, version: str) -> None:
    """Valid to the last field; raises otherwise."""
    if one["kind"] == "PodMonitor":
        return  # of an operator whose schema no library brings
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


def test_nothing_is_left_out() -> None:
    """Every file is part of a kustomization, an example, or a run to create by hand."""
    used = set()
    for path in MANIFESTS.rglob("kustomization.yaml"):
        (kustomization,) = load(path)
        used |= {(path.parent / entry).resolve() for entry in kustomization.get("resources", [])}
    alone = [path for path in files() if path not in used]
    assert all(path.name.endswith(".example.yaml") or path.parent.name == "run" for path in alone), alone
