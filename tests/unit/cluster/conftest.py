"""Fixtures of the tests of a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.cluster.kubeflow_server import Server
from tests.unit.cluster.servers import serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Server]]:
    """Kubeflow Pipelines."""
    empty = {"runs": [], "specs": {}, "posts": 0, "keeps": True, "refusals": [], "asked_with": []}
    handler = type("Handler", (Server,), empty)
    with serving(handler) as address:
        monkeypatch.setenv("KFP_ENDPOINT", address)
        yield handler
