"""Servers on this machine that answer in JSON, for the clients of Kubernetes and of Kubeflow Pipelines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from kubernetes.config import kube_config


class JsonHandler(BaseHTTPRequestHandler):
    """Reads and answers requests whose bodies are JSON."""

    def body(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return document

    def answer(self, document: dict[str, Any], status: int = 200) -> None:
        self.answer_text(json.dumps(document), status)

    def answer_text(self, text: str, status: int = 200, *, kind: str = "application/json") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Not on the test's output."""


class Login(JsonHandler):
    """Answers every question with the page of a login, as a proxy does when a session has ended."""

    def do_GET(self) -> None:
        self.answer_text("<html>Log in</html>", kind="text/html; charset=utf-8")


@contextmanager
def serving(handler: type[JsonHandler]) -> Iterator[str]:
    """The address of a server that runs until the end of the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()  # first: its thread would go on with a socket that is closed


def use_cluster(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a kubeconfig that names the API server at `address`, and make it the default."""
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "config").write_text(yaml.safe_dump(kubeconfig))
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(folder / "config"))
