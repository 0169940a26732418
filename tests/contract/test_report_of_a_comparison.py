"""`lipt report|export HANDLE` of a run of the pipeline `lipt-compare`: of the comparison, not of a run beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from lipt.cli import main
from lipt.flow.compare import run_with_baseline
from lipt.pods.boxes import compare_box
from lipt.pods.spec import PARAMETERS, configure
from lipt.runtime.context import Context
from tests.docs.pages import ROOT
from tests.tiny import TINY
from tests.unit.cluster.servers import JsonHandler, serving, use_cluster

PIPELINE: dict[str, Any] = next(yaml.safe_load_all((ROOT / "pipelines/compare.yaml").read_text()))


class Kubeflow(JsonHandler):
    """Has one finished run of `lipt-compare`."""

    parameters: dict[str, Any]

    def do_GET(self) -> None:
        if urlsplit(self.path).path.endswith("/runs/ours"):
            run = {"run_id": "ours", "state": "SUCCEEDED", "pipeline_spec": PIPELINE}
            self.answer(run | {"runtime_config": {"parameters": self.parameters}})
        elif self.path.endswith("/healthz"):
            self.answer({"multi_user": False})
        else:
            self.send_error(404)


def test_the_handle_of_a_comparison_shows_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own = {"data": {**TINY["data"]}, "compare": {"variants": ["stratified", "lipt"]}, "merge": {"method": "none"}}
    own["data"].pop("source"), own["data"].pop("chunk_mb")
    given = {"config": yaml.safe_dump(own | {"device": "auto"}), "workspace": str(tmp_path / "runs"), "data": "digits"}
    given |= {"model": "resnet18", "width": 4, "algorithm": "ccs", "fraction": 0.1, "epochs": 1, "seeds": [0, 1]}
    inputs = PIPELINE["root"]["inputDefinitions"]["parameters"]
    known = {name: entry.get("defaultValue") for name, entry in inputs.items()} | given
    config = configure(known["config"], **{name: value for name, value in known.items() if name in PARAMETERS})
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    compare_box(config, engine="kubeflow", gpus="2", cpu="1")
    run_with_baseline(Context.of(config))  # later, with the same configuration
    handler = type("Handler", (Kubeflow,), {"parameters": given})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        monkeypatch.setenv("KFP_ENDPOINT", address)
        assert "this pod has asked for 2 GPUs, but torch sees none" in capsys.readouterr().err
        main(["report", "kubeflow/vision/ours", "-o", "json"])
        shown = json.loads(capsys.readouterr().out)
        main(["export", "kubeflow/vision/ours", "--to", "list.txt"])
    told = capsys.readouterr().err
    assert "config.yaml beside its report with --set seed=1, then export that run" in told
    (chosen,) = (tmp_path / "runs/reports").glob("*-compare/chosen.txt")
    assert Path("list.txt").read_text() == chosen.read_text()
    assert [row["seeds"] for row in shown["rows"]] == [[0, 1], [0, 1]]
    assert [str(path) for path in tmp_path.glob("*-compare.html")] == [shown["report"]]
