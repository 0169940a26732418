"""The commands in the first lines of an example."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from lipt.cli import main
from tests.unit.cluster.installed import Installed
from tests.unit.cluster.servers import serving, use_cluster


def commands(path: Path) -> list[list[str]]:
    """The commands of `lipt` in the comments at the top of an example."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("#   lipt ")]
    return [
        shlex.split(re.sub(r"\(.*|FOLDER", lambda found: "photos" * (found[0] == "FOLDER"), line[4:])) for line in lines
    ]


def asks_a_cluster(words: list[str]) -> bool:
    return "--engine" in words and words[1] != "plan"


def sent(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The parameters that the example's `lipt submit` would send; before it, `lipt doctor` finds no fault in them."""
    doctor, submit = (words[1:] for words in commands(path) if asks_a_cluster(words))
    handler: type[Any] = type("Handler", (Installed,), {"sent": []})
    with serving(handler) as address:
        use_cluster(address, path.parent, monkeypatch)
        monkeypatch.setenv("KFP_ENDPOINT", address)
        capsys.readouterr()
        with pytest.raises(SystemExit):  # behind the server there are neither nodes nor a store
            main([*doctor, "-o", "json"])
        found = json.loads(capsys.readouterr().out)
        sure = ("packages", "model", "settings", "cluster", "pipeline", "rights", "admission")
        assert [name for name in sure if not found[name]["ok"]] == []
        main([*submit, "--dry-run"])
    parameters: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return parameters
