"""LIPT_METRICS: the figures of a run in the programs that a user has."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lipt.errors import UsageError
from lipt.metrics import check_metrics
from tests.programs import lipt
from tests.tiny import TINY

EPOCHS = 4


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs the tiny configuration under a value of LIPT_METRICS; returns stderr."""
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "runs")}))

    def start(value: str, *changes: str, **variables: str) -> str:
        settings = [part for change in changes for part in ("--set", change)]
        done = lipt("run", str(config), *settings, LIPT_METRICS=value, **variables)
        assert done.returncode == 0, done.stderr
        return done.stderr

    return start


def test_tensorboard(run: Callable[..., str], tmp_path: Path) -> None:
    run(f"tensorboard:{tmp_path}/board")
    board = EventAccumulator(str(tmp_path / "board")).Reload()
    losses = board.Scalars("train ccs/loss")
    assert len(losses) == EPOCHS
    assert [event.step for event in losses] == [5, 10, 15, 20]
    wanted = {"initialise/loss", "pretrain/0/loss", "train ccs/images_per_s", "evaluate/accuracy", "merge/seconds"}
    wanted |= {"stratified/train stratified/loss", "stratified/evaluate/accuracy"}
    assert wanted <= set(board.Tags()["scalars"])
    (bytes_read,) = board.Scalars("train ccs/read_bytes")
    assert bytes_read.value > 0


def test_the_runs_of_a_comparison_are_told_apart(tmp_path: Path) -> None:
    config = tmp_path / "tiny.yaml"
    compare = {"variants": ["lipt", "random"], "seeds": [0, 1]}
    config.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "runs"), "compare": compare}))
    done = lipt("compare", str(config), LIPT_METRICS=f"tensorboard:{tmp_path}/board")
    assert done.returncode == 0, done.stderr
    board = EventAccumulator(str(tmp_path / "board")).Reload()
    for name in ("lipt/seed 0/train ccs", "lipt/seed 1/train ccs", "random/seed 0/train random"):
        assert [event.step for event in board.Scalars(f"{name}/loss")] == [5, 10, 15, 20]
    accuracies = [name for name in board.Tags()["scalars"] if name.endswith("evaluate/accuracy")]
    assert len(accuracies) == 4
    assert all(len(board.Scalars(name)) == 1 for name in accuracies)


def test_mlflow(run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a server or a database needs more than mlflow-skinny
    store = f"file://{tmp_path}/mlflow"
    assert "continues without it" not in run("mlflow:digits", "select.algorithm=stratified", MLFLOW_TRACKING_URI=store)
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("digits")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    history = client.get_metric_history(found.info.run_id, "train stratified/loss")
    assert [each.step for each in history] == [5, 10, 15, 20]


SERVED = """
import sys
from lipt.progress import Reporter
reporter = Reporter()
reporter.measured("pretrain[3]", 5, {"loss": 1.5, "images_per_s": 800})
reporter.measured("pretrain[3]", 10, {"loss": 0.5, "images_per_s": 900})
print("ready", flush=True)
sys.stdin.read()
"""


def test_prometheus() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
    environment = os.environ | {"LIPT_METRICS": f"prometheus:{port}"}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with urllib.request.urlopen(f"http://localhost:{port}/metrics") as answer:
            text = answer.read().decode()
        process.terminate()
    assert 'lipt_loss{stage="pretrain[3]"} 0.5\n' in text
    assert 'lipt_step{stage="pretrain[3]"} 10.0\n' in text


def test_a_run_goes_on_when_figures_cannot_be_delivered(run: Callable[..., str]) -> None:
    with socket.create_server(("", 0)) as taken:
        said = run(f"prometheus:{taken.getsockname()[1]}", "select.algorithm=stratified")
    assert said.count("the run continues without it") == 1
    assert "cannot be used: Address already in use" in said
    assert "evaluate" in said


@pytest.mark.parametrize(
    ("value", "message", "remedy"),
    [
        ("tensorbord:x", "no such program", "did you mean 'tensorboard'"),
        ("tensorboard", "not of the form", "LIPT_METRICS=tensorboard:FOLDER"),
        ("prometheus:http", "not of the form", "LIPT_METRICS=prometheus:PORT"),
        ("prometheus:70000", "not of the form", "LIPT_METRICS=prometheus:PORT"),
    ],
)
def test_a_wrong_value_is_refused_before_the_run(
    value: str, message: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIPT_METRICS", value)
    with pytest.raises(UsageError, match=message) as error:
        check_metrics()
    assert remedy in error.value.remedy


def test_a_missing_package_is_named_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIPT_METRICS", "prometheus:9090")
    monkeypatch.setattr("lipt.metrics.find_spec", lambda _name: None)
    with pytest.raises(UsageError) as error:
        check_metrics()
    assert error.value.remedy == "pip install prometheus-client"
