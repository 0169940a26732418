"""Speeds of this machine are measured once, and kept in the workspace."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner

from lipt.cli import cli
from lipt.forecast.machine import Setup
from lipt.forecast.sizes import DataSize
from lipt.runtime.context import Context
from lipt.training.precision import native_precision
from tests.tiny import TINY

_MODULE = "lipt.forecast.kept_speeds"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The stages of each measurement, which takes no time."""
    calls: list[list[str]] = []

    def rates_here(_ctx: Context, _data: DataSize, stages: Collection[str]) -> tuple[Any, Any]:
        calls.append([*stages])
        return dict.fromkeys(stages, 0.25), {"train": Setup(part_s=0.5, first_s=0.125)}

    monkeypatch.setattr(f"{_MODULE}.rates_here", rates_here)
    monkeypatch.setattr(f"{_MODULE}.decoding_here", lambda _ctx, _dataset: {"whole": 0.002})
    monkeypatch.setattr(f"{_MODULE}.is_busy", lambda _device: False)
    return calls


@pytest.fixture
def path(ran: Context, tmp_path: Path) -> str:
    written = tmp_path / "run.yaml"
    written.write_text(yaml.safe_dump(TINY | {"workspace": ran.config.workspace}))
    return str(written)


def said(*arguments: str) -> str:
    found = CliRunner().invoke(cli, [*arguments])
    assert found.exit_code == 0, found.output
    return " ".join(found.output.split())


def planned(*arguments: str) -> dict[str, Any]:
    """Without what depends on the start of this process."""
    document: dict[str, Any] = json.loads(CliRunner().invoke(cli, ["plan", *arguments, "-o", "json"]).stdout)
    return {name: document["machine"][name] for name in ("rates", "setups", "decode_s", "shares_cores")}


def test_a_second_plan_measures_nothing_and_says_so(path: str, ran: Context, measured: list[list[str]]) -> None:
    folder = Path(ran.config.workspace) / "speeds"
    first = planned(path)
    assert len(measured) == len([*folder.iterdir()]) == 1
    assert first["rates"]["train"] == 0.25
    assert first["setups"]["train"] == {"part_s": 0.5, "first_s": 0.125}
    assert planned(path, "--set", "train.epochs=9", "--set", "seed=3") == first  # as fast, only longer
    text = said("plan", path)
    assert len(measured) == 1
    assert "just now, in" not in text
    moment = r"2\d{3}-\d\d-\d\d \d\d:\d\d UTC"
    assert "just now with" not in text
    for line in (
        rf"compute, measured {moment} with this model",
        rf"decoding in one process, measured {moment}: ",
        rf"speeds of this machine: measured {moment}; to measure anew, delete {folder}",
    ):
        assert re.search(line, text), text
    shutil.rmtree(folder)
    text = said("plan", path)
    assert "measured just now with this model" in text
    assert re.search(r"speeds of this machine: measured just now, in [\d.]+ m?s", text)
    assert len(measured) == 2


#: The one that `precision: auto` does not take here.
OTHER_PRECISION = "fp32" if native_precision(torch.device("cpu")) == "bf16" else "bf16"


@pytest.mark.parametrize(
    "setting",
    ["model.width=8", "train.batch_size=16", f"precision={OTHER_PRECISION}", "pretrain.augment=none", "processes=2"],
)
def test_what_changes_a_speed_is_measured(path: str, measured: list[list[str]], setting: str) -> None:
    for _ in range(2):
        said("plan", path)
        said("plan", path, "--set", setting)
    assert len(measured) == 2


def test_another_machine_is_measured(path: str, measured: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    said("plan", path)
    monkeypatch.setattr(f"{_MODULE}.socket.gethostname", lambda: "another")
    said("plan", path)
    assert len(measured) == 2


def test_advice_uses_the_speeds_of_a_plan(path: str, measured: list[list[str]]) -> None:
    said("plan", path, "--advise")
    before = len(measured)
    assert "to measure anew, delete" in said("plan", path, "--advise")
    assert len(measured) == before == 2  # the network, and the narrower one


def test_dry_runs_use_kept_speeds(path: str, measured: list[list[str]], tmp_path: Path) -> None:
    comparison = ("compare", path, "--set", "compare.variants=[lipt, random]", "--dry-run")
    first = said(*comparison)
    assert "to measure anew" not in first
    assert re.search(r"speeds of this machine: measured just now, in [\d.]+ m?s", first)
    assert "to measure anew, delete" in said(*comparison)
    before = len(measured)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(yaml.safe_dump({"base": "run.yaml", "grid": {"train.lr": [0.1, 0.2]}}))
    said("sweep", str(sweep), "--dry-run")
    (line,) = json.loads(said("sweep", str(sweep), "--dry-run", "-o", "json"))["assumptions"]
    assert line.startswith("speeds of this machine: measured 2")
    assert len(measured) == before


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"digest": 3}', "EDITED"])
def test_a_damaged_file_is_measured_anew(path: str, ran: Context, measured: list[list[str]], text: str) -> None:
    first = planned(path)
    (file,) = (Path(ran.config.workspace) / "speeds").iterdir()
    file.write_text(file.read_text().replace("0.25", "0.0") if text == "EDITED" else text)
    assert planned(path) == planned(path) == first
    assert len(measured) == 2


def test_speeds_of_a_busy_machine_are_measured_again_once_it_is_idle(
    path: str, measured: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{_MODULE}.is_busy", lambda _device: True)
    for _ in range(2):  # not each time: it may stay busy
        assert "this machine is busy" in said("plan", path)
        assert len(measured) == 1
    monkeypatch.setattr(f"{_MODULE}.is_busy", lambda _device: False)
    assert "this machine is busy" not in said("plan", path)
    assert len(measured) == 2
    monkeypatch.setattr(f"{_MODULE}.is_busy", lambda _device: True)
    assert "this machine is busy" not in said("plan", path)  # the speeds are those of an idle one
    assert len(measured) == 2


def test_a_plan_makes_no_workspace(measured: list[list[str]], tmp_path: Path) -> None:
    config = tmp_path / "new.yaml"
    config.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "none")}))
    data = ("--images", "1000", "--classes", "10", "--set", "data.image_size=8")
    for _ in range(2):
        said("plan", str(config), *data)
    assert len(measured) == 2
    assert not (tmp_path / "none").exists()


def test_who_may_not_write_measures_each_time(path: str, ran: Context, measured: list[list[str]]) -> None:
    blocking = Path(ran.config.workspace) / "speeds"
    blocking.touch()  # a file in place of the folder
    try:
        assert planned(path) == planned(path)
    finally:
        blocking.unlink()
    assert len(measured) == 2
