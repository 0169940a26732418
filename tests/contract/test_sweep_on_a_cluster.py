"""`lipt sweep --engine` and `lipt reproduce --engine` with a real object store; the runs themselves are done here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
import yaml

from lipt import __version__
from lipt.cli import main
from lipt.flow.compare import run_with_baseline
from lipt.pods.spec import PARAMETERS, configure
from lipt.runtime.context import Context
from tests.docs.pages import ROOT
from tests.tiny import TINY
from tests.unit.cluster.servers import JsonHandler, serving, use_cluster

TEMPLATE: dict[str, Any] = yaml.safe_load((ROOT / "manifests/base/workflowtemplate.yaml").read_text())
PIPELINE: dict[str, Any] = next(yaml.safe_load_all((ROOT / "pipelines/lipt.yaml").read_text()))


class Engine(JsonHandler):
    """Argo, which does a run when somebody asks for its state; and Kubeflow Pipelines with the pipeline alone."""

    workflows: ClassVar[dict[str, dict[str, Any]]] = {}

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        version = {"pipeline_id": "p1", "pipeline_version_id": "v1", "pipeline_spec": PIPELINE}
        if path.endswith("/workflowtemplates/lipt"):
            self.answer(TEMPLATE | {"metadata": {"labels": {"app.kubernetes.io/version": __version__}}})
        elif path.endswith("/healthz"):
            self.answer({"multi_user": False})
        elif path.endswith("/pipelines"):
            self.answer({"pipelines": [{"pipeline_id": "p1", "display_name": "lipt"}], "total_size": 1})
        elif path.endswith("/versions"):
            self.answer({"pipeline_versions": [version], "total_size": 1})
        elif (workflow := self.workflows.get(path.rpartition("/")[2])) is not None:
            values = {each["name"]: each["value"] for each in workflow["spec"]["arguments"]["parameters"]}
            settings = {name: value for name, value in values.items() if name in PARAMETERS}
            run_with_baseline(Context.of(configure(values["config"], **settings)))
            self.answer(workflow | {"status": {"phase": "Succeeded"}})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        workflow = self.body()
        self.workflows[workflow["metadata"]["name"]] = workflow
        self.answer(workflow)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Engine]]:
    handler: type[Engine] = type("Handler", (Engine,), {"workflows": {}})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        monkeypatch.setenv("KFP_ENDPOINT", address)
        monkeypatch.setattr("lipt.pods.sweep.POLL_S", 0.0)
        monkeypatch.chdir(tmp_path)
        yield handler


def write(workspace: str) -> None:
    compare = {"seeds": [0, 1], "variants": ["stratified", "lipt"]}
    base = TINY | {"workspace": workspace, "train": {"steps": 2, "batch_size": 32}, "compare": compare}
    document = {"base": base, "grid": {"select.fraction": [0.1, 0.2]}}
    Path("sweep.yaml").write_text(yaml.safe_dump(document))


def said(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    capsys.readouterr()
    main([*command, "-o", "json"])
    return json.loads(capsys.readouterr().out)


def test_a_sweep_on_a_cluster_and_then_on_this_machine(
    s3: str, engine: type[Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    write(f"{s3}/swept")
    place = ("--engine", "argo", "-n", "vision", "-p", "memory=3Gi", "--at-once", "5")
    size = {"points": 2, "rows": 2, "seeds": 2}
    assert said(capsys, "sweep", "sweep.yaml", *place, "--dry-run") == size | {"runs": 8, "finished": 0}
    assert not engine.workflows
    points = said(capsys, "sweep", "sweep.yaml", *place)
    assert [point["point"] for point in points] == [{"select.fraction": share} for share in (0.1, 0.2)]
    assert [row["seeds"] for point in points for row in point["rows"]] == [[0, 1]] * 4
    assert len(engine.workflows) == 8
    for workflow in engine.workflows.values():
        values = {each["name"]: each["value"] for each in workflow["spec"]["arguments"]["parameters"]}
        assert (values["memory"], values["random_baseline"]) == ("3Gi", "false")
        assert workflow["metadata"]["name"].startswith("tiny-")
    assert said(capsys, "sweep", "sweep.yaml", *place) == points
    assert said(capsys, "sweep", "sweep.yaml", "--dry-run")["stages"] == {}
    assert len(engine.workflows) == 8
    # Kubeflow Pipelines would start the same runs, and finds them finished.
    assert said(capsys, "sweep", "sweep.yaml", "--engine", "kubeflow", "--dry-run")["finished"] == 8
    main(["sweep", "sweep.yaml", "--engine", "kubeflow"])
    assert "| 0.2 |" in capsys.readouterr().out


NETWORK = """
from torch import nn

def net(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes))
"""


def test_runs_of_a_network_whose_code_has_changed_are_run_again(
    s3: str, engine: type[Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("net_of_a_sweep.py").write_text(NETWORK)
    base = TINY | {"workspace": f"{s3}/network", "model": {"name": "net_of_a_sweep:net", "width": None}}
    base |= {"train": {"steps": 2, "batch_size": 32}, "compare": {"seeds": [0], "variants": ["stratified", "lipt"]}}
    Path("sweep.yaml").write_text(yaml.safe_dump({"base": base, "grid": {"select.fraction": [0.1]}}))
    place = ("--engine", "argo", "-n", "vision")
    said(capsys, "sweep", "sweep.yaml", *place)
    assert said(capsys, "sweep", "sweep.yaml", *place, "--dry-run")["finished"] == 2
    Path("net_of_a_sweep.py").write_text(NETWORK.replace("4", "5"))
    assert said(capsys, "sweep", "sweep.yaml", *place, "--dry-run")["finished"] == 0
    assert len(engine.workflows) == 2
    said(capsys, "sweep", "sweep.yaml", *place)
    assert len(engine.workflows) == 4
    assert said(capsys, "sweep", "sweep.yaml", *place, "--dry-run")["finished"] == 2


def test_a_table_of_the_paper_as_runs(s3: str, engine: type[Engine], capsys: pytest.CaptureFixture[str]) -> None:
    """The profile `paper` sets what rows and tables change."""
    main(["reproduce", "b1", "--engine", "argo", "--set", f"workspace={s3}/paper", "--dry-run"])
    assert "points x 4 rows x 3 seeds: " in capsys.readouterr().out
    for name in ("table1", "table2", "fig3"):
        main(["reproduce", name, "--engine", "kubeflow", "--set", f"workspace={s3}/paper", "--dry-run"])
        assert " runs, of which 0 are finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says", "remedy"),
    [
        (["-p", "gpus=1"], "-n, -p and --at-once are for runs on a cluster", "add --engine argo or --engine kubeflow"),
        (["--engine", "argo"], "workspace: runs is a folder on this machine", "--set workspace=s3://BUCKET/PREFIX"),
        (
            ["--engine", "argo", "--set", "workspace=s3://lipt/x", "-p", "seed=1"],
            "-p seed=1: seed is a setting",
            "--set seed=",
        ),
        (
            ["--engine", "argo", "--set", "workspace=s3://lipt/x", "--set", "dispatch.jigsaws=41"],
            "need 1,312 candidates, the data set has",
            "",
        ),
    ],
)
def test_what_cannot_run_on_a_cluster_is_refused(
    engine: type[Engine], options: list[str], says: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write("runs")
    with pytest.raises(SystemExit) as end:
        main(["sweep", "sweep.yaml", *options])
    error = capsys.readouterr().err
    assert end.value.code in (1, 2)
    assert says in error
    assert remedy in error
    assert not engine.workflows
