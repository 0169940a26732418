"""`lipt plan --advise`: costs are those of the plan, the advice keeps to the limits, gains are measured ones."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import click
import pytest
import torch
import yaml
from click.testing import CliRunner

from lipt.cli import cli
from lipt.config import load_config, override, parse_config
from lipt.config.sections import Proxy
from lipt.errors import UsageError
from lipt.flow.dag import has_swarm
from lipt.forecast.ways import GAINS, LABELS, RS2_GAINS, SHARES, _to_paste, configured, settings_of
from lipt.runtime.algorithm import proxy_width
from lipt.runtime.context import Context
from lipt.selection.auto import rule_by_passes
from lipt.selection.measured import (
    DUAL_GAINS,
    ELSEWHERE_GAINS,
    OTHER_KIND_GAINS,
    OTHER_NETWORK_GAINS,
    RULES_BY_PASSES,
    THETA_P_GAINS,
    WORTH,
)
from tests.programs import on_terminal
from tests.tiny import TINY

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = DOCS.parent / "examples"


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


def gain_of(option: dict[str, Any]) -> str:
    """The gain as tables write it."""
    points, half_width = option["gain_points"], option["gain_half_width_points"]
    assert (points is None) == (half_width is None) == (option["gain_steps"] is None)
    assert "gain" not in option
    return "" if points is None else f"{points:+.1f} ± {half_width:.1f}".replace("-", "−")


#: Ten times the digits: 1 % of them are 13 images per class.
MANY = ("--images", "14380", "--image-kb", "0.2", "--classes", "10", "--set", "data.image_size=8")


WAYS = ("random", "continued", "theta_p", "proxy", "trajectory", "rs2")


def test_each_option_costs_what_a_plan_of_its_settings_says(path: str, tmp_path: Path) -> None:
    options = advised(path)["options"]
    assert {(each["way"], each["share"]) for each in options} == {
        *((way, share) for way in WAYS for share in SHARES),
        ("all", 1.0),
    }
    for each in options[-len(WAYS) - 1 :]:
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
    assert scoring["trajectory"] > scoring["proxy"] > 0
    assert scoring["trajectory"] >= scoring["continued"] > 0  # which scores nothing
    assert scoring["trajectory"] > scoring["theta_p"] > 0


def test_a_proxy_costs_what_its_own_speed_says(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrower network does fewer FLOPs per second."""
    monkeypatch.setattr(
        "lipt.forecast.speed._rates",
        lambda ctx, _data, stages: (dict.fromkeys(stages, 1e-5 * ctx.config.model.width), {}),
    )

    def document(config: str, *options: str) -> dict[str, Any]:
        found = CliRunner().invoke(cli, ["plan", config, *options, "-o", "json"])
        assert found.exit_code == 0, found.output
        return dict(json.loads(found.stdout))

    for each in document(path, "--advise")["options"]:
        if each["share"] == 0.05 and each["way"] in ("proxy", "trajectory"):
            alone = tmp_path / "alone.yaml"
            config = configured(load_config(path), each["way"], 0.05)
            alone.write_text(yaml.safe_dump(config.model_dump(mode="json")))
            assert each["gpu_hours"] == pytest.approx(document(str(alone))["gpu_hours"], rel=0.02), each["way"]


def test_without_limits_there_is_no_advice(path: str) -> None:
    without = advised(path)
    assert without["advice"] is None
    assert "--storage GB" in without["why"]


def test_the_table_fits_80_columns_and_groups_what_can_be_compared(path: str) -> None:
    lines = on_terminal(80, "-m", "lipt", "plan", path, "--calibrate", path, "--advise").splitlines()
    text = " ".join(" ".join(lines).split())  # a busy machine is named first
    assert re.search(r"Your configuration keeps 10 %, trains \d+ steps, and sees each kept image 4 times", text)
    assert "The nearest of our measurements has 500 steps." in text
    (heading,) = (line for line in lines if line.startswith("keep "))
    for column in (" time ", "gain", "in steps"):
        assert column in heading
    assert ("GPU time" in heading) == torch.cuda.is_available()
    assert text.count("-v shows") == text.count("-v ") == 1
    assert "of it scoring, options without a measurable gain too" in text
    (own,) = (line for line in lines if " * " in line)
    assert re.match(r"10 % \(\d+\) \* +scores of theta_p \(ccs\) ", own)
    assert "* your configuration" in lines
    (note,) = (at for at, line in enumerate(lines) if line.startswith("in steps: "))
    assert lines[note + 1].startswith("  ")
    assert lines[note + 2].startswith("You pay for the 10 epochs once")
    assert "often enough: 100 times at 5 and 10 %. Otherwise" in text
    rows = [line for line in lines if re.search(r"%.*(RS2|theta_p|10 epochs|random).* ", line) and "points" not in line]
    measured = [int(row.split()[-1].replace(",", "")) for row in rows if "±" in row]
    assert measured == sorted(measured)
    assert len(measured) > 5
    assert "docs/results/other-data.md" in text


def test_the_row_of_the_configuration_is_marked_if_there_is_one(path: str) -> None:
    def marked(*settings: str) -> list[str]:
        options = [word for setting in settings for word in ("--set", setting)]
        return re.findall(r"^(.*) \*  +(.*?)  ", shown(path, *options), re.MULTILINE)

    assert marked("select.algorithm=random", "select.fraction=1", "train.epoch_fraction=0.05") == [
        ("all, 5 % per epoch", "fresh draws (RS2)")
    ]
    assert not marked("select.algorithm=herding")


def test_a_limit_that_is_no_number_names_its_unit() -> None:
    with pytest.raises(click.BadParameter, match="'5GB' is not a valid number of GB"):
        cli.main(["plan", "any.yaml", "--advise", "--storage", "5GB"], standalone_mode=False)


def test_without_limits_the_last_line_is_a_command_that_gives_one_recommendation(path: str) -> None:
    """With all options, in one line, however narrow the terminal is."""
    options = ["--calibrate", path, "-m", "latency_ms=7", *MANY, "--set", "compare.seeds=[0, 1]", "--advise"]
    lines = on_terminal(80, "-m", "lipt", "plan", path, *options).splitlines()
    program, *typed = shlex.split(lines[-1])
    assert program == "lipt"
    assert typed[-2] == "--storage"
    assert Counter(typed[:-2]) == Counter(["plan", path, *("--machine" if each == "-m" else each for each in options)])
    found = CliRunner().invoke(cli, typed)
    assert found.exit_code == 0, found.output
    assert "Advice: keep " in found.stdout


def rows(text: str) -> set[tuple[str, str]]:
    """(images, way to choose) of each row, without the star of the configuration."""
    found = re.findall(r"^(all.*?|[\d.]+ % \([\d,]+\))(?: \*)?  +(.*?)  ", text, re.MULTILINE)
    return {(kept, way) for kept, way in found if way in LABELS.values()}


def test_rows_without_a_measurable_gain_need_v(path: str) -> None:
    """Random images of the same share cost less, and may be as good."""
    options = advised(path)["options"]
    own = [each for each in options if (each["way"], each["share"]) == ("theta_p", 0.1)]
    gained = [each for each in options if each["gain_points"] and each["gain_points"] > each["gain_half_width_points"]]
    assert any(each["gain_points"] and each not in gained for each in options)
    references = [each for each in options if each["way"] in ("random", "all")]
    assert len(rows(shown(path))) == len([each for each in options if each in (*own, *gained, *references)])
    assert len(rows(shown(path, "-v"))) == len(options)


def test_rows_that_exceed_a_limit_need_v(path: str) -> None:
    options = advised(path, *MANY)["options"]
    limit = 1.01 * next(each["stored_bytes"] for each in options if each["share"] == 0.1)
    kept = {kept for kept, _ in rows(shown(path, *MANY, "--storage", str(limit / 1e9)))}
    assert {each.partition(" (")[0] for each in kept} == {"1 %", "5 %", "10 %"}
    assert "all (12,942)" in {kept for kept, _ in rows(shown(path, *MANY, "--storage", str(limit / 1e9), "-v"))}


def test_if_all_images_fit_they_are_kept(path: str) -> None:
    """And drawn afresh, if the time is limited, too."""
    assert advised(path, "--storage", "1000")["advice"]["settings"] == settings_of("all", 1)
    hours = {each["way"]: each["gpu_hours"] for each in advised(path)["options"] if each["share"] in (0.3, 1)}
    some = advised(path, "--storage", "1000", "--gpu-hours", str((hours["rs2"] + hours["all"]) / 2))
    assert some["advice"]["settings"] == settings_of("rs2", 0.3)


def test_the_advice_keeps_to_the_limits(path: str) -> None:
    options = advised(path, *MANY)["options"]
    whole = next(each["stored_bytes"] for each in options if each["way"] == "rs2")
    some = advised(path, *MANY, "--storage", str(0.3 * whole / 1e9))
    assert some["advice"]["settings"] == {"select": {"algorithm": "stratified", "fraction": 0.3}}
    few = advised(path, *MANY, "--storage", str(0.0123 * whole / 1e9))
    assert few["advice"]["settings"] == settings_of("theta_p", 0.012)
    hours = {(each["way"], each["share"]): each["gpu_hours"] for each in few["options"]}
    poor = advised(
        path, *MANY, "--storage", str(0.0123 * whole / 1e9), "--gpu-hours", str(hours["random", 0.012] * 1.01)
    )
    assert (poor["advice"]["way"], poor["advice"]["share"]) == ("random", 0.012)
    assert "scores of theta_p exceed your limits" in poor["why"]
    assert f"scores of theta_p gained {THETA_P_GAINS[500][0.01]} points at 1 % in 500 steps; " in few["why"]
    cheap = advised(path, *MANY, "--gpu-hours", str(hours["rs2", 0.1] * 1.01))
    assert cheap["advice"]["settings"] == settings_of("rs2", 0.1)
    nothing = advised(path, *MANY, "--gpu-hours", "1e-9")
    assert nothing["advice"] is None
    assert re.search(r"nothing fits.* of transfer and [\d.]*[1-9]\d* m?s of computing$", nothing["why"])
    reads = {(each["way"], each["share"]): each["read_bytes"] for each in options}
    assert reads["random", 0.2] < min(reads["theta_p", 0.01], reads["trajectory", 0.01])  # a score reads all images
    carried = advised(path, *MANY, "--transfer", str(reads["random", 0.2] * 1.001 / 1e9))
    assert carried["advice"]["settings"] == {"select": {"algorithm": "stratified", "fraction": 0.2}}


@pytest.mark.parametrize(
    ("share", "epochs", "way", "other"),
    [
        (0.012, 101, "theta_p", ""),
        (0.02, 101, "random", ""),
        (0.035, 99, "random", ""),
        (0.035, 101, "proxy", ""),
        (0.051, 99, "continued", "class-balanced random"),
        (0.051, 101, "continued", "10 epochs, half width"),
        (0.1, 101, "continued", "10 epochs (auto)"),
        (0.2, 101, "continued", "class-balanced random"),
        (0.26, 101, "random", ""),
    ],
)
def test_the_advice_follows_the_measurements(path: str, share: float, epochs: int, way: str, other: str) -> None:
    whole = next(each["stored_bytes"] for each in advised(path, *MANY)["options"] if each["way"] == "rs2")
    limit = str(share * 1.001 * whole / 1e9)
    found = advised(path, *MANY, "--storage", limit, "--set", f"train.epochs={epochs}")
    width = (load_config(path).model.width or 64) // 2
    assert (found["advice"]["way"], found["advice"]["share"]) == (way, share)
    assert found["advice"]["settings"] == settings_of(way, share, width if way == "proxy" else None)  # type: ignore[arg-type]
    assert ("If your training must start from random weights: " + other in found["why"]) == bool(other)
    if way == "proxy":
        assert f"101 times, and {WORTH[0].told} (measured in 4,000 steps; this one has " in found["why"]
    if way == "continued" and share == 0.1:
        assert "gained most (measured in 2,000 steps; this one has " in found["why"]


def test_a_scorer_of_the_configuration_does_not_change_what_an_option_costs(path: str) -> None:
    plain = advised(path)["options"]
    own = advised(path, "--set", "score={model: trajectory, runs: 2, epochs: 3, disjoint: true, proxy: {width: 2}}")[
        "options"
    ]
    assert [each["gpu_hours"] for each in own] == pytest.approx([each["gpu_hours"] for each in plain])
    settings = {each["way"]: each["settings"].get("score", {}) for each in own}
    assert settings["trajectory"]["proxy"] is None
    assert not settings["trajectory"]["disjoint"]
    assert settings["random"] == {}


@pytest.mark.parametrize(
    "example", sorted(path.name for path in EXAMPLES.glob("*.yaml") if "\nmodel:" in path.read_text())
)
def test_the_settings_to_paste_give_what_they_cost(example: str) -> None:
    """Whatever the configuration says: its race, its draws and its options go."""
    config = load_config(str(EXAMPLES / example))
    for way in LABELS:
        if way == "proxy" and proxy_width(config) is None:
            continue
        settings = _to_paste(config, way, 0.1)
        pasted, costed = override(config, settings), configured(config, way, 0.1)
        assert pasted.select == costed.select
        assert pasted.train.model_copy(update={"random_baseline": False}) == costed.train
        if "score" in settings:
            assert pasted.score == costed.score


def test_of_another_proxy_nothing_stays_beside_the_narrower_network() -> None:
    proxy = {"name": "vit_small", "width": 32, "image_size": 16}
    config = parse_config(TINY | {"score": {"proxy": proxy}})
    narrower = Proxy(width=proxy_width(config))
    assert configured(config, "proxy", 0.05).score.proxy == narrower
    assert override(config, _to_paste(config, "proxy", 0.05)).score.proxy == narrower


def test_scores_of_theta_p_have_a_swarm_even_if_the_configuration_has_none() -> None:
    config = parse_config(TINY | {"merge": {"method": "none"}})
    assert has_swarm(configured(config, "theta_p", 0.1))
    assert has_swarm(override(config, _to_paste(config, "theta_p", 0.1)))
    assert "merge" not in _to_paste(parse_config(TINY), "theta_p", 0.1)


def test_a_plan_says_when_a_proxy_would_pay(path: str) -> None:
    def notes(*options: str) -> str:
        planned = ["plan", path, "--set", "select={algorithm: auto, fraction: .05, race: null}", "-o", "json"]
        return "\n".join(json.loads(CliRunner().invoke(cli, [*planned, *options]).stdout)["assumptions"])

    assert "auto takes ccs up to 5 %" in notes("--set", "train.epochs=99")
    assert "worth more than their cost" not in notes("--set", "train.epochs=99")
    assert "worth more than their cost" not in notes("--set", "train.steps=3999")
    at_5 = notes("--set", "train.steps=4000")
    assert "sees each image 1,333 times" in at_5
    assert f"at half its width were worth more than their cost: {WORTH[0].gain} points at 5 %" in at_5
    at_10 = notes("--set", "train.steps=8000", "--set", "select.fraction=0.1")
    assert f"itself were worth more than their cost: {WORTH[1].gain} points at 10 %" in at_10


@pytest.mark.parametrize("name", ["vit_small", "torchvision.resnet18"])
def test_no_proxy_of_networks_without_a_measured_one(name: str) -> None:
    assert proxy_width(load_config(None, [f"model={{name: {name}, width: null}}"])) is None


def test_the_settings_can_be_pasted(path: str, tmp_path: Path) -> None:
    text = shown(path, *MANY, "--storage", "0.002")
    assert "10 epochs (auto)" in text
    assert DUAL_GAINS[500][0.05] in text
    assert "measure on your data" in text
    settings = yaml.safe_load(text[text.index("select:") :])
    pasted = tmp_path / "pasted.yaml"
    pasted.write_text(yaml.safe_dump(TINY | settings))
    config = load_config(str(pasted))
    assert f"Advice: keep a random {100 * config.select.fraction:g} %" in text
    assert "\nWhy: the largest share that fits; " in text


def test_the_gain_of_fresh_draws_is_that_of_the_nearest_number_of_steps(path: str) -> None:
    for steps, measured in ((200, 500), (600, 500), (2500, 2000)):
        found = advised(path, "--set", f"train.steps={steps}")["options"]
        drawn = {each["share"]: gain_of(each) for each in found if each["way"] == "rs2"}
        assert drawn == {share: RS2_GAINS[measured][share] for share in drawn}


@pytest.mark.parametrize(("steps", "measured"), [(20, 500), (1500, 2000), (9000, 8000)])
def test_the_gain_of_a_trajectory_is_that_of_the_nearest_number_of_steps(path: str, steps: int, measured: int) -> None:
    """From 25 passes on or more it may be the gain of another rule, which `auto` takes there."""
    found = advised(path, "--set", f"train.steps={steps}")["options"]
    options = [each for each in found if each["way"] == "trajectory"]
    for each in options:
        long = rule_by_passes(each["share"], each["passes"], 10)
        assert gain_of(each) == (long.gain if long else DUAL_GAINS[measured][each["share"]])
        assert each["gain_steps"] == (long.steps if long else measured)
    assert any(each["passes"] >= 50 for each in options) == (steps > 20)


def test_too_few_images_for_any_share_are_one_error(path: str) -> None:
    described = ["--images", "20", "--classes", "10", "--set", "data.image_size=8"]
    refused = CliRunner().invoke(cli, ["plan", path, "--advise", *described, "-m", "gpu_tflops=1"]).exception
    assert isinstance(refused, UsageError)
    assert "18 candidates" in refused.message


def test_the_number_of_images_stands_beside_the_share(path: str) -> None:
    text = shown(path)
    assert re.search(r"^10 % \(129\) +class-balanced random", text, re.MULTILINE)
    assert re.search(r"^all \(1,294\) +no choice", text, re.MULTILINE)
    assert re.search(r"^all, 1 % per epoch +fresh draws", text, re.MULTILINE)
    assert "Advice: keep a random 6.8 % (880 images), and start" in shown(path, *MANY, "--storage", "0.002")


def test_a_subset_with_few_images_per_class_is_not_advised(path: str) -> None:
    described = ("--images", "44", "--image-kb", "0.2", "--classes", "5", "--set", "data.image_size=8")
    few = (*described, "--storage", "0.0000271")
    text = shown(path, *few)
    why = "30 % (12 images for 5 classes) is the largest share that fits; fewer than 10 images per class are too few: "
    assert f"Advice: {why}raise your limits, or train on all images." in " ".join(text.split())
    assert "select:" not in text
    assert advised(path, *few)["advice"] is None
    assert advised(path, *described, "--storage", "1")["advice"]["way"] == "all"


def test_limits_without_an_advice_are_refused(path: str) -> None:
    refused = CliRunner().invoke(cli, ["plan", path, "--storage", "3"]).exception
    assert isinstance(refused, UsageError)
    assert "--advise" in (refused.remedy or "")


def test_every_gain_is_a_measured_one() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("results/*.md"))
    named = [gain for way in GAINS.values() for gains in way.values() for gain in gains.values()]
    named += [*OTHER_NETWORK_GAINS.values(), *OTHER_KIND_GAINS.values(), *(each.gain for each in WORTH)]
    named += [gain for each in RULES_BY_PASSES for gain in (each.over_dual, each.gain)]
    assert [gain for gain in named if gain not in text] == []
    fashion = (DOCS / "results/other-data.md").read_text(encoding="utf-8")
    by_steps = [each for by_share in ELSEWHERE_GAINS.values() for each in by_share.values()]
    elsewhere = [gain for each in by_steps for by_data in each.values() for gain in by_data.values()]
    assert [gain for gain in elsewhere if f"{gain}**" not in fashion and f"| {gain} |" not in fashion] == []
