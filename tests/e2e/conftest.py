"""One reference run that nothing disturbs; when a test fails, what the cluster knows is written to `e2e-logs`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import ROOT, Run, kubectl, outcome

LOGS = ROOT / "e2e-logs"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Faults come last: a node that is lost takes the pods of earlier runs with it, which other tests look at."""
    items.sort(key=lambda item: item.path.name == "test_faults.py")


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, bytes]]:
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
