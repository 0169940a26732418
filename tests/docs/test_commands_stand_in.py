"""The commands of the pages that need Kubeflow, or more nodes with GPUs than our clusters have.

The programs are real: `kfp`, and `lipt` in this process. A server on this machine takes what they send.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from lipt.cli import main
from tests.docs.commands import Command, all_commands
from tests.docs.pages import ROOT, written
from tests.docs.places import against_a_stand_in
from tests.docs.reader import fill
from tests.unit.cluster.installed import Installed
from tests.unit.cluster.servers import serving, use_cluster

COMMANDS = [command for command in all_commands() if against_a_stand_in(command)]
#: What a command of kfp asks the server to do; a list only reads.
REQUESTS = {
    "pipeline create": "POST /apis/v2beta1/pipelines/upload?name=lipt",
    "pipeline create-version": "POST /apis/v2beta1/pipelines/upload_version?name=0.2.0&pipelineid=p1",
    "pipeline delete-version": "DELETE /apis/v2beta1/pipelines/ID/versions/VERSION",
    "pipeline delete": "DELETE /apis/v2beta1/pipelines/ID",
    "run create": "POST /apis/v2beta1/runs",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Any]]:
    handler: type[Any] = type("Handler", (Installed,), {"sent": []})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        monkeypatch.setenv("KFP_ENDPOINT", address)  # of lipt
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", address)  # of kfp
        handler.address = address
        yield handler


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.words[0] == "kfp"], ids=str)
def test_kfp(command: Command, server: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from kfp.cli.cli import cli

    monkeypatch.chdir(ROOT)
    words = [word.replace("http://localhost:8888", server.address) for word in command.words[1:]]
    ended = CliRunner().invoke(cli, words, input="y\n", obj={}, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    verb = " ".join(words[2:4] if words[0] == "--endpoint" else words[:2])
    last = [request for request, _ in server.sent][-1:]
    assert len(last) == (verb in REQUESTS)
    assert all(request.startswith(REQUESTS[verb]) for request in last)


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.words[0] == "lipt"], ids=str)
def test_lipt(
    command: Command,
    server: type[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "photos.yaml").write_text(written(command.page)["photos.yaml"])
    # CONFIG of the pages about clusters: with data and workspace that pods reach.
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump({"workspace": "s3://lipt/runs", "data": {"source": "s3://lipt/data/photos"}})
    )
    words = ["config.yaml" if word == "CONFIG" else fill(word) for word in command.words[1:]]
    if words[0] == "doctor":
        with pytest.raises(SystemExit):  # no node, no Secret: nothing is behind the server
            main(words)
        found = dict(line.split(None, 2)[1::-1] for line in capsys.readouterr().out.splitlines() if line[:1] != " ")
        sure = ("packages", "model", "settings", "cluster", "pipeline", "rights")
        assert {name: found.get(name) for name in sure} == dict.fromkeys(sure, "ok")
    else:
        main(words)
        handle = capsys.readouterr().out.split()[-1]
        assert handle.startswith(f"{words[words.index('--engine') + 1]}/")
        given = [word.split("=")[-1] for word in words if word.startswith(("gpus=", "nodes=", "image="))]
        body = server.sent[-1][1].decode()
        assert all(value in body for value in given), body
