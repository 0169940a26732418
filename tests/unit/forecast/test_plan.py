"""`lipt plan`: prediction beside measurement, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from PIL import Image

from lipt.cli import cli
from lipt.config import load_config, override
from lipt.data.images import ImageSet
from lipt.errors import UsageError
from lipt.flow.address import report_folder
from lipt.forecast.sizes import DataSize
from lipt.forecast.speed import rates_here
from lipt.report.document import Document
from lipt.runtime.context import Context
from lipt.stages.ingest import ingest
from lipt.training.cuda_graphs import Replayed
from lipt.training.loop import Trainer
from tests.programs import on_terminal
from tests.tiny import TINY


def configured(ctx: Context, folder: Path, **changes: Any) -> str:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(TINY | {"workspace": ctx.config.workspace} | changes))
    return str(path)


def test_the_verb_shows_prediction_beside_measurement(ran: Context, tmp_path: Path) -> None:
    path = configured(ran, tmp_path)
    shown = CliRunner().invoke(cli, ["plan", path, "--calibrate", path])
    assert shown.exit_code == 0, shown.output
    for text in ("measured", "pretrain x 3", "total", "train x 2"):
        assert text in shown.output
    document = json.loads(CliRunner().invoke(cli, ["plan", path, "--calibrate", path, "-o", "json"]).output)
    outside_s = document["machine"]["start_s"] + document["machine"]["report_s"]  # a report knows neither
    assert document["machine"]["report_s"] > 0
    assert document["wall_s"] - outside_s == pytest.approx(sum(document["measured_wall_s"].values()), rel=0.5)
    assert document["wall_s"] == pytest.approx(sum(stage["wall_s"] for stage in document["stages"]))
    assert document["machine"]["fits"]["train"]["per_flop"] > 0
    report = Document.from_json(
        ran.workspace.store.read(f"{report_folder(ran.config)}/report.json", kind="other"), origin="the report"
    )
    walls = report.rows[0].stage_wall_s
    assert {stage: document["measured_wall_s"][stage] for stage in ("pretrain", "merge")} == {
        stage: pytest.approx(walls[stage]) for stage in ("pretrain", "merge")
    }


def test_a_plan_from_a_finished_run_uses_all_gpus_of_this_machine(
    ran: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a plan from what is measured here does: `processes` is `auto`, so a run would."""
    path, pretrain = configured(ran, tmp_path), dict[int, dict[str, float]]()
    for gpus in (1, 3):
        monkeypatch.setattr("lipt.cli.prediction.count_processes", lambda _ctx, gpus=gpus: gpus)
        planned = json.loads(CliRunner().invoke(cli, ["plan", path, "--calibrate", path, "-o", "json"]).output)
        pretrain[gpus] = next(stage for stage in planned["stages"] if stage["stage"] == "pretrain")
    alone_s, shared_s = (stage["wall_s"] - stage["start_s"] for stage in pretrain.values())
    assert shared_s < 0.7 * alone_s  # 3 jigsaws side by side; each process warms up


@pytest.mark.parametrize("options", [[], ["--advise"]])
def test_a_terminal_breaks_lines_between_words(ran: Context, tmp_path: Path, options: list[str]) -> None:
    path = configured(ran, tmp_path)
    lines = on_terminal(80, "-m", "lipt", "plan", path, "--calibrate", path, *options).splitlines()
    assert len(lines) > 5
    assert max(len(line) for line in lines if not line.startswith("lipt plan ")) <= 80  # a command is to be pasted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"select": {"algorithm": "facility_location", "options": {"neighbours": -3}}},
            "neighbours must be at least 1, not -3",
        ),
        (
            {"select": {"algorithm": "gradmatch", "options": {"batch_size": 0}}},
            "gradmatch: batch_size must be at least 1, not 0",
        ),
        (
            {"select": {"algorithm": "ccs", "fraction": 0.005}},
            "select.fraction: 0.005 of 1,294 candidates are 6 images for 10 classes",
        ),
        (
            {"train": {"steps": 3, "raptr": {}}},
            "train.raptr.keep: 4 stages need as many steps or more; the training has 3",
        ),
    ],
)
def test_a_plan_refuses_what_a_run_would(
    ran: Context, tmp_path: Path, changes: dict[str, dict[str, Any]], message: str
) -> None:
    for verb in ("plan", "run"):
        refused = CliRunner().invoke(cli, [verb, configured(ran, tmp_path, **changes)]).exception
        assert isinstance(refused, UsageError)
        assert refused.message == message


def test_another_gpu_replaces_the_speeds_found(ran: Context, tmp_path: Path) -> None:
    path = configured(ran, tmp_path)
    arguments = [path, "--calibrate", path, "-m", "gpu_tflops=1000", "-o", "json"]
    document = json.loads(CliRunner().invoke(cli, ["plan", *arguments]).output)
    assert set(document["machine"]["fits"]) == {"ingest", "dispatch", "select"}
    assert document["machine"]["gpu_tflops"] == 1000


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("latency=5", "did you mean 'latency_ms'"),
        ("latency_ms=x", "above 0"),
        ("store_gbps=0", "above 0"),
        ("latency_ms=inf", "above 0"),
    ],
)
def test_what_is_wrong_with_a_machine_is_said(pair: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").touch()
    refused = CliRunner().invoke(cli, ["plan", str(tmp_path / "run.yaml"), "-m", pair]).exception
    assert isinstance(refused, UsageError)
    assert message in str(refused)


@pytest.mark.parametrize("option", ["--classes", "--image-kb"])
def test_a_size_of_no_described_data_is_refused(option: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").touch()
    refused = CliRunner().invoke(cli, ["plan", str(tmp_path / "run.yaml"), option, "5"]).exception
    assert isinstance(refused, UsageError)
    assert (refused.message, refused.remedy) == (
        "--image-kb and --classes describe the data of --images",
        "add --images",
    )


def test_data_that_are_not_there_are_described(tmp_path: Path) -> None:
    path, data = tmp_path / "new.yaml", {"source": f"cifar10:{tmp_path / 'nothing'}"}  # a run would download it
    path.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "none"), "data": data}))
    refused = CliRunner().invoke(cli, ["plan", str(path), "--set", "compare.seeds=[0, 1]"])
    assert isinstance(refused.exception, UsageError)
    ingests = f"lipt stage ingest {path} --set 'compare.seeds=[0, 1]'"
    assert refused.exception.remedy.startswith(f"run `{ingests}` first, or give: --images N")
    options = ["--images", "1000000", "--image-kb", "2", "--classes", "10", "--engine", "argo", "--nodes", "10"]
    refused = CliRunner().invoke(cli, ["plan", str(path), *options])
    assert isinstance(refused.exception, UsageError)
    assert "image_size" in (refused.exception.remedy or "")
    shown = CliRunner().invoke(cli, ["plan", str(path), *options, "--set", "data.image_size=32"])
    assert shown.exit_code == 0, shown.output
    assert "initialise" in shown.output
    assert not (tmp_path / "none").exists()


def a_folder(root: Path) -> Path:
    """Files of many sizes, a split, and files that ingestion converts, or leaves out."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 300), ("test", 30)):
        for name in ("cat", "dog"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(256, size=(int(rng.integers(8, 60)), 20, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.{'bmp' if name == 'dog' else 'png'}")
            (folder / "about.txt").write_text("no image")
    return root


@pytest.mark.parametrize(("source", "thumbnails"), [("digits", None), ("folder", None), ("folder", 8)])
def test_a_plan_before_ingestion_predicts_what_one_after_it_does(
    tmp_path: Path, source: str, thumbnails: int | None
) -> None:
    path, small = tmp_path / "run.yaml", {"thumbnails": thumbnails}
    data = TINY["data"] if source == "digits" else {"source": str(a_folder(tmp_path / "photos")), "image_size": 12}
    scores = {"score": {"proxy": {"image_size": 8}}} if thumbnails else {}
    changes = {"workspace": str(tmp_path / "runs"), "data": data | small, "select": {"fraction": 0.2}}
    path.write_text(yaml.safe_dump(TINY | changes | scores))
    options = ["plan", str(path), "-m", "gpu_tflops=1", "-o", "json"]
    before = json.loads(CliRunner().invoke(cli, options).output)
    assert not (tmp_path / "runs").exists()
    told = f"data.source: {data['source']} is not ingested yet"
    left_out = " (left out: 4 .txt files)" if source == "folder" else ""
    assert before["assumptions"][0] == (
        f"{told}{left_out}: the sizes come from listing it and reading 64 of its images"
    )
    advice = CliRunner().invoke(cli, [*options[:4], "--advise", "--storage", "0.0001"]).output
    assert told in " ".join(advice.split())
    ctx = Context.of(load_config(str(path)))
    ingest(ctx).make()
    after = json.loads(CliRunner().invoke(cli, options).output)
    assert not any("not ingested" in note for note in after["assumptions"])
    assert [stage["stage"] for stage in before["stages"]] == [stage["stage"] for stage in after["stages"]]
    within = 1e-3 if source == "digits" else 0.02
    for one, other in zip(before["stages"], after["stages"], strict=True):
        assert one["flops"] == other["flops"]
        for way in ("read", "written"):  # the index has some bytes more or less
            assert one[way] | {"other": 0} == pytest.approx(other[way] | {"other": 0}, rel=within)
        assert one["memory_bytes"] == pytest.approx(other["memory_bytes"], rel=1e-3)
        assert one["wall_s"] == pytest.approx(other["wall_s"], rel=0.02, abs=1e-3)


def test_a_plan_before_ingestion_measures_here_and_names_broken_images(tmp_path: Path) -> None:
    path, photos = tmp_path / "run.yaml", a_folder(tmp_path / "photos")
    path.write_text(yaml.safe_dump(TINY | {"data": {"source": str(photos), "image_size": 12}}))
    (photos / "train/cat/0.png").write_bytes(b"no image")
    planned = json.loads(CliRunner().invoke(cli, ["plan", str(path), "-o", "json"]).output)
    assert "63 of its images; ingestion will refuse 1 more, such as: " in planned["assumptions"][0]
    assert any(note.startswith("decoding in one process, measured") for note in planned["assumptions"])
    elsewhere = CliRunner().invoke(cli, ["plan", str(path), "--set", f"data.source={tmp_path / 'none'}"]).exception
    assert isinstance(elsewhere, UsageError)
    assert "if the images are elsewhere, give their sizes: --images N" in (elsewhere.remedy or "")


@pytest.mark.parametrize(
    ("settings", "size"),
    [({}, 59), ({"processes": 3}, 20), ({"train": {"raptr": {}}}, 59)],
    ids=["alone", "shared", "raptr"],
)
def test_a_speed_is_that_of_the_steps_of_a_run(
    ran: Context, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], size: int
) -> None:
    """A process computes its part of a batch; a GPU replays the steps only of a process that trains alone."""
    seen: set[tuple[int, bool]] = set()

    class Watched(Trainer):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.replayed = Replayed()
            self.begun = False

        def run_epoch(self, images: ImageSet, **options: Any) -> None:
            if not self.begun:
                seen.add((self.recipe.batch_size, self.replayed is not None))
            self.begun, self.replayed = True, None  # there is no GPU here
            super().run_epoch(images, **options)

    monkeypatch.setattr("lipt.forecast.speed.Trainer", Watched)
    config = override(ran.config, {"train": {"batch_size": 64}, "select": {"fraction": 0.5}})
    ctx = replace(ran, config=override(config, settings))
    rates_here(ctx, DataSize.stored(ctx), ["train"])
    assert seen == {(size, not settings)}


def test_a_run_that_did_not_finish_calibrates_nothing(tmp_path: Path, ran: Context) -> None:
    path = configured(ran, tmp_path, seed=7)
    refused = CliRunner().invoke(cli, ["plan", path, "--calibrate", path])
    assert isinstance(refused.exception, UsageError)
    assert "no report" in refused.exception.message


def test_what_is_assumed_is_said_and_this_machine_is_measured(ran: Context, tmp_path: Path) -> None:
    """A GPU is assumed for a cluster alone; here the model is timed, stage by stage."""
    path = configured(ran, tmp_path)
    here = json.loads(CliRunner().invoke(cli, ["plan", path, "-o", "json"]).output)
    assert set(here["machine"]["rates"]) == {"initialise", "pretrain", "merge", "score", "train", "evaluate"}
    assert all(0 < rate < 5 for rate in here["machine"]["rates"].values())  # TFLOP/s; the assumption is 50
    assert any("measured just now with this model on this machine (CPU, " in note for note in here["assumptions"])
    assert set(here["machine"]["setups"]) == {"initialise", "pretrain", "merge", "train"}
    assert all(setup["part_s"] > 0 for setup in here["machine"]["setups"].values())
    assert 0 < here["machine"]["decode_s"]["whole"] < 0.01
    assert any(note.startswith("decoding in one process, measured just now: ") for note in here["assumptions"])
    crops = ["--set", "data.crop=resized", "--set", "data.image_size=8"]
    cropped = json.loads(CliRunner().invoke(cli, ["plan", path, *crops, "-o", "json"]).output)
    assert set(cropped["machine"]["decode_s"]) == {"crop", "whole"}
    assert [stage["start_s"] > 0 for stage in here["stages"]] == [True] + 8 * [False]
    cluster = CliRunner().invoke(cli, ["plan", path, "--engine", "argo", "-m", "latency_ms=7"]).output
    assert "compute: 50 TFLOP/s per GPU (assumed, -m gpu_tflops=…)" in cluster
    assert "store: 10 Gbit/s (assumed, -m store_gbps=…), 10 Gbit/s per node (assumed, -m node_gbps=…), " in cluster
    assert "7 ms per request\n" in cluster
    given = CliRunner().invoke(cli, ["plan", path, "-m", "gpu_tflops=2"]).output
    assert "compute: 2 TFLOP/s per GPU\n" in given


@pytest.mark.parametrize("options", [[], ["--advise"]])
def test_a_busy_machine_is_named(
    ran: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    arguments = ["plan", configured(ran, tmp_path), "-o", "json", *options]
    monkeypatch.setattr("lipt.forecast.kept_speeds.is_busy", lambda _device: True)
    warned = CliRunner().invoke(cli, arguments)
    assert json.loads(warned.stdout)
    assert warned.stderr.startswith("lipt: this machine is busy, so the predicted times are unreliable\n")
    assert "\n  -> " in warned.stderr
    assert CliRunner().invoke(cli, [*arguments, "-m", "gpu_tflops=1"]).stderr == ""  # nothing is measured


def test_large_images_are_timed_in_a_smaller_batch(tmp_path: Path) -> None:
    """A plan for what this machine could never train must not try to."""
    (tmp_path / "run.yaml").write_text(f"workspace: {tmp_path}/runs\nmodel: {{name: resnet18, width: 16}}\n")
    size = ["--images", "1000000", "--classes", "1000", "--set", "data.image_size=160"]
    document = json.loads(CliRunner().invoke(cli, ["plan", str(tmp_path / "run.yaml"), *size, "-o", "json"]).output)
    assert document["machine"]["rates"]["train"] > 0


def test_a_bound_is_said_to_be_one(tmp_path: Path) -> None:
    """How much InfoBatch leaves out depends on losses that nobody knows yet; a budget of steps does not."""
    (tmp_path / "run.yaml").write_text(f"workspace: {tmp_path}/runs\ntrain: {{draw: infobatch}}\n")
    size = [
        str(tmp_path / "run.yaml"),
        "--images",
        "10000",
        "--classes",
        "10",
        "--engine",
        "argo",
        "--set",
        "data.image_size=32",
    ]
    bound = "train: an upper bound, because draw: infobatch"
    assert bound in CliRunner().invoke(cli, ["plan", *size]).output
    assert bound not in CliRunner().invoke(cli, ["plan", *size, "--set", "train.steps=100"]).output
