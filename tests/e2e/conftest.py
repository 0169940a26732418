"""One reference run that nothing disturbs; when a test fails, what the cluster knows is written to `e2e-logs`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import ROOT, STORE, Run, kubectl, outcome

LOGS = ROOT / "e2e-logs"
#: Installs what is delivered; the overlay of the other tests comes on top.
FIRST = "test_first_hour.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first hour needs the cluster as it is delivered. Faults come last: a node that is lost takes the pods of
    earlier runs with it, which other tests look at. The end removes everything."""
    order = {FIRST: 0, "test_training_faults.py": 2, "test_faults.py": 3, "test_uninstall.py": 4}
    items.sort(key=lambda item: order.get(item.path.name, 1))


@pytest.fixture(autouse=True)
def cluster(request: pytest.FixtureRequest) -> None:
    """The cluster that the test needs."""
    if request.path.name != FIRST:
        request.getfixturevalue("overlay")


#: Of a controller that archives logs in a store of other teams, whose Secret is not in the namespace of the runs.
ARCHIVE = """
archiveLogs: true
s3:
  bucket: logs
  endpoint: nowhere.invalid
  accessKeySecret: {name: of-other-teams, key: accesskey}
  secretKeySecret: {name: of-other-teams, key: secretkey}
"""


@pytest.fixture(scope="session")
def overlay() -> None:
    """On top of what the README installs: runs on GPU nodes, a quota, a label of their own. Argo archives logs."""
    settings = json.dumps({"data": {"artifactRepository": ARCHIVE}})
    kubectl("patch", "configmap", "workflow-controller-configmap", "--type=merge", "-p", settings, namespace="argo")
    # Without a namespace, as the documentation says it: every object names its own.
    subprocess.run(["kubectl", "apply", "-k", ROOT / "tests/e2e/overlay"], check=True)
    kubectl("wait", "--for=condition=complete", "--timeout=5m", "job/lipt-setup", namespace=STORE)
    kubectl("rollout", "status", "deployment/minio", "--timeout=3m", namespace=STORE)


@pytest.fixture(scope="session")
def reference(overlay: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, bytes]]:
    """(an undisturbed run, what it left)."""
    run = Run(tmp_path_factory.mktemp("reference"), "reference")
    run.succeeds()
    return run, outcome(run.workspace)


@pytest.fixture
def same(reference: tuple[Run, dict[str, bytes]]) -> Any:
    """Asserts that a run left what the reference left, bit by bit."""

    def compare(run: Run) -> None:
        left, expected = outcome(run.workspace), reference[1]
        assert sorted(left) == sorted(expected)
        for key, record in expected.items():
            assert left[key] == record, f"{run.handle}: {key} differs"

    return compare


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
    report = yield
    if report.failed:
        collect(LOGS / item.name)
    return report


def collect(folder: Path) -> None:
    """Objects, events and logs of the namespace."""
    folder.mkdir(parents=True, exist_ok=True)
    views = {
        "objects.txt": ["get", "workflows,jobs,pods,events", "-o", "wide"],
        "pods.txt": ["describe", "pods"],
        "workflows.yaml": ["get", "workflows", "-o", "yaml"],
    }
    for name, arguments in views.items():
        (folder / name).write_text(kubectl(*arguments, check=False), encoding="utf-8")
    for pod in kubectl("get", "pods", "-o", "name", check=False).split():
        text = kubectl("logs", pod, "--all-containers", "--prefix", check=False)
        (folder / f"{pod.replace('/', '-')}.log").write_text(text, encoding="utf-8")
