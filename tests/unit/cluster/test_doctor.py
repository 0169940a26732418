"""`lipt doctor --engine` against an API server that stops answering."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lipt.adapters.cluster.api import Cluster
from lipt.cli import main
from tests.conftest import free_port
from tests.unit.cluster.servers import JsonHandler, serving, use_cluster


class Dying(JsonHandler):
    """Says that it is there, and nothing more."""

    asked: set[str]

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/version":
            self.answer({"major": "1", "minor": "34", "gitVersion": "v1.34.0"})
        elif path == "/api/v1/namespaces/vision":
            self.answer({})
        else:
            self.asked.add(path)
            self.close_connection = True

    do_POST = do_GET


def test_an_api_server_that_no_longer_answers_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server: type[Any] = type("Handler", (Dying,), {"asked": set()})
    (tmp_path / "tiny.yaml").write_text("workspace: s3://lipt/tiny")
    with serving(server) as address:
        use_cluster(address, tmp_path, monkeypatch)
        with pytest.raises(SystemExit) as end:
            main(["doctor", str(tmp_path / "tiny.yaml"), "--engine", "argo", "-n", "vision", "-o", "json"])
    assert end.value.code == 1
    findings = json.loads(capsys.readouterr().out)
    assert list(findings) == ["packages", "model", "settings", "cluster"]
    assert findings["cluster"]["finding"].startswith(f"the Kubernetes API server {address} is unreachable: ")
    assert server.asked == {"/apis/argoproj.io/v1alpha1/namespaces/vision/workflowtemplates/lipt"}


def test_a_cluster_that_never_answers_is_given_up_in_a_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_cluster(f"http://127.0.0.1:{free_port()}", tmp_path, monkeypatch)
    (tmp_path / "tiny.yaml").write_text("workspace: s3://lipt/tiny")
    asked: list[float] = []
    once = Cluster._once

    def noted(*arguments: Any) -> str:
        asked.append(time.monotonic())
        return once(*arguments)

    monkeypatch.setattr(Cluster, "_once", noted)
    with pytest.raises(SystemExit):
        main(["doctor", str(tmp_path / "tiny.yaml"), "--engine", "argo", "-o", "json"])
    assert "is unreachable: [Errno 111] Connection refused" in json.loads(capsys.readouterr().out)["cluster"]["finding"]
    assert asked[-1] - asked[0] < 6
