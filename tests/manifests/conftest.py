"""The overlays that are shipped, and one as a user would write it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.manifests.objects import MANIFESTS, Object, built

GPU = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../overlays/kind]
components: [../components/gpu, ../components/ephemeral, ../components/quota]
"""


PLAIN = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../base, ../store, ../store/runs]
"""


CLOSED = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../overlays/kind]
components: [../components/api-server]
"""


METRICS = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../overlays/kind]
components: [../components/metrics]
"""


OPENSHIFT = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../base]
components: [../components/openshift]
"""


@pytest.fixture(scope="session")
def components(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An overlay over overlays/kind with every component, as a user would write it."""
    copy = tmp_path_factory.mktemp("manifests")
    shutil.copytree(MANIFESTS, copy, dirs_exist_ok=True)
    for name, text in {
        "mine": GPU,
        "plain": PLAIN,
        "closed": CLOSED,
        "metrics": METRICS,
        "openshift": OPENSHIFT,
    }.items():
        (copy / name).mkdir()
        (copy / name / "kustomization.yaml").write_text(text, encoding="utf-8")
    return copy / "mine"


@pytest.fixture(params=["kind", "kubeflow", "components"])
def folder(request: pytest.FixtureRequest, components: Path) -> Path:
    return components if request.param == "components" else MANIFESTS / "overlays" / request.param


@pytest.fixture
def overlay(folder: Path) -> list[Object]:
    return built(folder)
