"""One reference run that nothing disturbs; when a test fails, what the cluster knows is written to `e2e-logs`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import ROOT, STORE, Run, kubectl, outcome
from tests.e2e.turns import one_at_a_time, turn

LOGS = ROOT / "e2e-logs"
#: Installs what is delivered; the overlay of the other tests comes on top.
FIRST = "test_first_hour.py"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: disturbs other tests, or measures what they would disturb")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the GPU nodes are one group, one after the other: their deadlines would pass while they wait.
    Those that want the cluster alone come last: a lost node takes pods of earlier runs with it that others look at."""

    def order(item: pytest.Item) -> int:
        return 2 if item.get_closest_marker("alone") else 0 if item.get_closest_marker("xdist_group") else 1

    items.sort(key=order)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Not a fixture: those of the session are set up before those of the test."""
    assert item.config.cache
    with turn(item.config.cache.mkdir("e2e"), alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.fixture(autouse=True)
def cluster(request: pytest.FixtureRequest) -> None:
    """The cluster that the test needs."""
    if request.path.name != FIRST:
        request.getfixturevalue("overlay")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder of both processes."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(scope="session")
def overlay(shared: Path) -> None:
    """On top of what the README installs: runs on GPU nodes, a quota."""
    with one_at_a_time(shared / "overlay.lock"):
        # Without a namespace, as the documentation says it: every object names its own.
        subprocess.run(["kubectl", "apply", "-k", ROOT / "tests/e2e/overlay"], check=True)
        kubectl("wait", "--for=condition=complete", "--timeout=5m", "job/lipt-setup", namespace=STORE)
        kubectl("rollout", "status", "deployment/minio", "--timeout=3m", namespace=STORE)


@pytest.fixture(scope="session")
def reference(overlay: None, shared: Path) -> tuple[Run, dict[str, bytes]]:
    """(an undisturbed run, what it left)."""
    handle = shared / "reference.handle"
    with one_at_a_time(shared / "reference.lock"):
        if handle.exists():
            run = Run.known(shared, "reference", handle.read_text(encoding="utf-8"))
        else:
            run = Run(shared, "reference")
            run.succeeds()
            handle.write_text(run.handle, encoding="utf-8")
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
