"""`lipt logs -f`, `status --wait` and `cancel` against a server that answers as Kubernetes with Argo does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.programs import lipt
from tests.unit.cluster.servers import JsonHandler, serving, use_cluster

RUN = "/apis/argoproj.io/v1alpha1/namespaces/vision/workflows/tiny-1"
HANDLE = "argo/vision/tiny-1"
LABEL = "workflows.argoproj.io/workflow=tiny-1"


class Server(JsonHandler):
    """A run of one pod. It ends after `rounds` looks at its state, or when it is stopped."""

    rounds: int
    change: dict[str, Any] | None
    deleted: list[str]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        mine, cls = parse_qs(url.query).get("labelSelector") == [LABEL], type(self)
        if url.path == RUN:
            cls.rounds -= 1
            phase = "Succeeded" if cls.rounds < 0 else "Running"
            self.answer({"spec": {}, "status": {"phase": phase}})
        elif url.path.endswith("/jobs"):
            self.answer({"items": [{"metadata": {"name": "tiny-1-pretrain"}}]})
        elif url.path.endswith("/log"):
            self.answer({"lines": "first" if self.rounds > 0 else "first second"})
        else:
            labels = {"app.kubernetes.io/component": "select"}
            metadata = {"name": "pod-a", "creationTimestamp": "1", "labels": labels}
            pod = {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": {}}
            self.answer({"items": [pod] if mine else []})

    def do_DELETE(self) -> None:
        self.deleted.append(self.path.rsplit("/", 1)[1])
        self.answer({})

    def do_PATCH(self) -> None:
        type(self).change = self.body() | {"path": self.path}
        self.answer({})


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Server]]:
    handler = type("Handler", (Server,), {"rounds": 1, "change": None, "deleted": []})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield handler


def test_logs_are_followed_until_the_run_ends(server: type[Server]) -> None:
    server.rounds = 2
    ended = lipt("logs", "-f", HANDLE)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[:2] == ["== pod-a (select)", '{"lines": "first"}']
    assert ended.stdout.count("== pod-a") == 1
    assert ended.stdout.endswith('{"lines": "first second"}\n')
    assert lipt("logs", "-f", HANDLE, "-o", "json").returncode == 2


def test_status_waits_for_the_end(server: type[Server]) -> None:
    server.rounds = 2
    assert lipt("status", HANDLE, "--wait").stdout.splitlines()[-1] == "Succeeded"
    assert server.rounds == -1


def test_cancel_stops_a_run_that_has_not_ended(server: type[Server]) -> None:
    assert lipt("cancel", HANDLE).stdout == f"{HANDLE} is being stopped\n"
    assert server.change == {"spec": {"shutdown": "Terminate"}, "path": RUN}
    assert server.deleted == ["tiny-1-pretrain"]  # its workers, too: they would outlive its boxes
    server.change = None
    assert lipt("cancel", HANDLE).stdout == f"{HANDLE} has ended already: Succeeded\n"
    assert server.change is None
