"""`lipt plan --advise`: costs are those of the plan, the advice keeps to the limits, gains are measured ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from lipt.cli import cli
from lipt.config import load_config
from lipt.errors import UsageError
from lipt.forecast.advice import GAINS, SHARES, configured, settings_of
from lipt.runtime.context import Context
from tests.tiny import TINY

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def path(ran: Context, tmp_path: Path) -> str:
    written = tmp_path / "run.yaml"
    written.write_text(yaml.safe_dump(TINY | {"workspace": ran.config.workspace}))
    return str(written)


def shown(path: str, *options: str) -> str:
    found = CliRunner().invoke(cli, ["plan", path, "--calibrate", path, "--advise", *options])
    assert found.exit_code == 0, found.output
    return found.stdout


def advised(path: str, *options: str) -> dict[str, Any]:
    return dict(json.loads(shown(path, *options, "-o", "json")))


def test_each_option_costs_what_a_plan_of_its_settings_says(path: str, tmp_path: Path) -> None:
    options = advised(path)["options"]
    assert {(each["way"], each["share"]) for each in options} == {
        (way, share) for way in ("random", "theta_p", "trajectory", "rs2") for share in SHARES
    }
    for each in options[-4:]:
        config = configured(load_config(path), each["way"], each["share"])
        alone = tmp_path / "alone.yaml"
        alone.write_text(yaml.safe_dump(config.model_dump(mode="json")))
        planned = json.loads(CliRunner().invoke(cli, ["plan", str(alone), "--calibrate", path, "-o", "json"]).stdout)
        assert each["gpu_hours"] == pytest.approx(planned["gpu_hours"])
        assert each["read_bytes"] == pytest.approx(sum(stage["read"]["data"] for stage in planned["stages"]))
    stored = {(each["way"], each["share"]): each["stored_bytes"] for each in options}
    assert stored["random", 0.1] == pytest.approx(0.1 * stored["rs2", 0.1])
    scoring = {each["way"]: each["scoring_hours"] for each in options if each["share"] == 0.3}
    assert scoring["random"] == scoring["rs2"] == 0
    assert scoring["trajectory"] > scoring["theta_p"] > 0


def test_without_limits_all_images_are_kept_and_drawn_afresh(path: str) -> None:
    assert advised(path)["advice"]["settings"] == settings_of("rs2", 0.3)


def test_the_advice_keeps_to_the_limits(path: str) -> None:
    options = advised(path)["options"]
    whole = next(each["stored_bytes"] for each in options if each["way"] == "rs2")
    some = advised(path, "--storage", str(0.2 * whole / 1e9))
    assert some["advice"]["settings"] == {"select": {"algorithm": "stratified", "fraction": 0.2}}
    few = advised(path, "--storage", str(0.0123 * whole / 1e9))
    assert few["advice"]["settings"] == settings_of("theta_p", 0.012)
    hours = {(each["way"], each["share"]): each["gpu_hours"] for each in few["options"]}
    poor = advised(path, "--storage", str(0.0123 * whole / 1e9), "--gpu-hours", str(hours["random", 0.012] * 1.01))
    assert (poor["advice"]["way"], poor["advice"]["share"]) == ("random", 0.012)
    cheap = advised(path, "--gpu-hours", str(hours["rs2", 0.1] * 1.01))
    assert cheap["advice"]["settings"] == settings_of("rs2", 0.1)
    nothing = advised(path, "--gpu-hours", "1e-9")
    assert nothing["advice"] is None
    assert "nothing fits" in nothing["why"]


def test_the_settings_can_be_pasted(path: str, tmp_path: Path) -> None:
    text = shown(path, "--storage", "0.00002")
    assert "scores of 10 epochs (dual)" in text
    assert GAINS["trajectory", 0.1] in text
    assert "Measure on your data" in text
    settings = yaml.safe_load(text[text.index("select:") :])
    pasted = tmp_path / "pasted.yaml"
    pasted.write_text(yaml.safe_dump(TINY | settings))
    config = load_config(str(pasted))
    assert f"Advice: keep {100 * config.select.fraction:g} %" in text


def test_too_few_images_for_any_share_are_one_error(path: str) -> None:
    described = ["--images", "20", "--classes", "10", "--set", "data.image_size=8"]
    refused = CliRunner().invoke(cli, ["plan", path, "--advise", *described, "-m", "gpu_tflops=1"]).exception
    assert isinstance(refused, UsageError)
    assert "18 candidates" in refused.message


def test_limits_without_an_advice_are_refused(path: str) -> None:
    refused = CliRunner().invoke(cli, ["plan", path, "--storage", "3"]).exception
    assert isinstance(refused, UsageError)
    assert "--advise" in (refused.remedy or "")


@pytest.mark.parametrize("page", ["results.md", "howto/advice.md"])
def test_every_gain_is_a_measured_one(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert [gain for gain in GAINS.values() if gain not in text] == []
