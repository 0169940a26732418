"""Starting a run on Kubeflow Pipelines, against a server that loses the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from lipt.adapters.cluster.kubeflow import Kubeflow
from lipt.errors import TransientError
from tests.unit.cluster.answers import Answers

_API = "/apis/v2beta1"


class Server(BaseHTTPRequestHandler):
    """Keeps the runs that are posted, or loses them as well; the connection breaks before a POST is answered."""

    runs: list[dict[str, Any]]
    posts: int
    keeps: bool

    def do_GET(self) -> None:
        path = urlsplit(self.path).path.removeprefix(_API)
        version = {
            "pipeline_id": "p1",
            "pipeline_version_id": "v1",
            "pipeline_spec": {"root": {"inputDefinitions": {}}},
        }
        self._answer(
            {
                "/pipelines": {"pipelines": [{"pipeline_id": "p1", "display_name": "lipt"}], "total_size": 1},
                "/pipelines/p1/versions": {"pipeline_versions": [version], "total_size": 1},
                "/experiments": {"experiments": [{"experiment_id": "e1", "display_name": "lipt"}], "total_size": 1},
                "/runs": {"runs": [{"run_id": "another", "display_name": "tiny"}, *self.runs]},
            }.get(path, {})
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).posts += 1
        if self.keeps:
            self.runs.append(body | {"run_id": "ours"})
        self.close_connection = True

    def _answer(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Not on the test's output."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Server]]:
    handler = type("Handler", (Server,), {"runs": [], "posts": 0, "keeps": True})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        monkeypatch.setenv("KFP_ENDPOINT", f"http://127.0.0.1:{running.server_port}")
        yield handler
        running.shutdown()


def test_a_run_whose_answer_was_lost_is_found_and_not_started_again(server: type[Server]) -> None:
    assert Kubeflow(Answers(), "vision").submit("tiny", {}) == "ours"
    assert server.posts == 1
    assert server.runs[0]["display_name"].startswith("tiny-")


def test_a_run_that_never_arrived_is_an_error(server: type[Server]) -> None:
    server.keeps = False
    with pytest.raises(TransientError, match="cannot be reached"):
        Kubeflow(Answers(), "vision").submit("tiny", {})
    assert server.posts == 1
