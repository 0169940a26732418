"""A sweep runs each stage once, continues after an interruption, and predicts what is left."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

import lipt.flow.sweep
from lipt.adapters.store import StoreError
from lipt.adapters.store.file import FileStore
from lipt.cli import main
from lipt.config.sweep import ROWS
from lipt.errors import RunError
from lipt.forecast.kept_speeds import Speeds
from lipt.forecast.sizes import DataSize
from lipt.report.sweep import read_lines
from lipt.runtime.context import Context
from lipt.runtime.workspace import Workspace
from tests.tiny import TINY, digests

GRID = {"select.fraction": [0.1, 0.2], "part": {"all": {}, "merge": {"pretrain.prune": "none"}}}


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep of four points under two seeds."""
    monkeypatch.chdir(tmp_path)
    base = TINY | {"compare": {"seeds": [0, 1]}, "train": {"steps": 2, "batch_size": 32}}
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump({"base": base, "grid": GRID}, sort_keys=False))
    return path


@pytest.fixture
def known_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured."""

    def speeds(_ctx: Context, _data: DataSize, stages: Collection[str]) -> Speeds:
        return Speeds(measured="2026-11-30T00:00:00+00:00", busy=False, rates=dict.fromkeys(stages, 0.01))

    monkeypatch.setattr("lipt.forecast.sweep.speeds_here", speeds)


def planned(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    main(["sweep", str(path), "--dry-run", "-o", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_prediction_of_a_sweep_names_a_busy_machine(
    sweep: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lipt.forecast.kept_speeds.is_busy", lambda _device: True)
    main(["sweep", str(sweep), "--dry-run"])
    assert "this machine is busy, so the predicted times are unreliable\n  -> " in capsys.readouterr().err


@pytest.mark.usefixtures("known_speeds")
def test_the_time_of_a_sweep_is_predicted_before_and_after_ingestion_alike(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only ingestion tells how many blocks are scored. Before it, the time of all of them is counted."""
    base = yaml.safe_load(sweep.read_text())["base"] | {"score": {"block_images": 500}}
    sweep.write_text(yaml.safe_dump({"base": base, "grid": GRID}, sort_keys=False))
    before = planned(sweep, capsys)
    (note,) = before["assumptions"]
    assert note == "the images are not ingested yet: the time for this is not predicted"
    (sweep.parent / "base.yaml").write_text(yaml.safe_dump(base))
    main(["stage", "ingest", str(sweep.parent / "base.yaml")])
    after = planned(sweep, capsys)
    assert not after["assumptions"]
    assert after["stages"]["score"] > before["stages"]["score"]
    assert before["seconds"] == pytest.approx(after["seconds"], rel=0.02)


@pytest.mark.usefixtures("known_speeds")
def test_a_sweep_shares_stages_and_continues(
    sweep: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = planned(sweep, capsys)
    # Two seeds: one theta_* each, three jigsaws for each part, random subsets and RS2 for each fraction. A random
    # subset is trained longer for each choice.
    stages = {"initialise": 2, "dispatch": 2, "pretrain": 12, "merge": 4, "train": 2 * (2 * 4 + 2 * 2)}
    assert {name: before["stages"][name] for name in stages} == stages
    main(["sweep", str(sweep), "--dry-run"])
    assert capsys.readouterr().out.splitlines()[:2] == [
        "4 points x 4 rows x 2 seeds",
        "stage         times  time in all",
    ]
    assert (before["points"], before["rows"], before["seeds"]) == (4, 4, 2)
    assert not list(sweep.parent.glob("runs/train"))

    write = FileStore._write
    trained = 0

    def interrupted(self: FileStore, key: str, data: bytes) -> None:
        nonlocal trained
        trained += key.startswith("train/") and key.endswith("artifact.json")
        if trained == 13:
            raise KeyboardInterrupt
        write(self, key, data)

    monkeypatch.setattr(FileStore, "_write", interrupted)
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(sweep)])
    monkeypatch.setattr(FileStore, "_write", write)
    assert end.value.code == 130
    finished = read_lines(Path("tiny.jsonl").read_text(), "tiny.jsonl")
    assert [result.point["part"] for result in finished] == ["all", "merge"]
    left = planned(sweep, capsys)
    assert 10 <= left["stages"]["train"] <= 12  # under each seed, choices of equal cost share the longer training
    assert 0 < left["wall_s"] == pytest.approx(sum(left["seconds"].values()))

    main(["sweep", str(sweep), "-o", "json"])
    points = json.loads(capsys.readouterr().out)
    assert planned(sweep, capsys)["stages"] == {}
    assert [point["point"] for point in points] == [
        {"select.fraction": fraction, "part": part} for fraction in (0.1, 0.2) for part in ("all", "merge")
    ]
    assert [[row["name"] for row in point["rows"]] for point in points] == [list(ROWS)] * 4
    for point in points:
        random, longer, _, ours = point["rows"]
        assert longer["steps"] > ours["steps"] == random["steps"]
        assert longer["flops"] == pytest.approx(ours["flops"], rel=0.05)
        assert point["gain_over_longer"]["mean"] == pytest.approx(fmean(ours["accuracy"]) - fmean(longer["accuracy"]))
        gains = [mine - other for mine, other in zip(ours["accuracy"], random["accuracy"], strict=True)]
        assert point["gain"]["mean"] == pytest.approx(sum(gains) / 2)
        assert point["gain"]["half_width"] is None  # two seeds are too few

    # It has no report, but its artifacts are not garbage: not those of a point, nor what they were made from.
    unused = ["gc", "--days", "0", "--dry-run", "-o", "json"]
    main(unused)
    assert json.loads(capsys.readouterr().out)["artifacts"] == []
    notes = sorted(Path("runs/sweeps").iterdir())
    assert len(notes) == 4
    kept = notes[0].read_bytes()
    for note in notes[:2]:
        note.unlink()
    main(unused)
    listed = {entry["ref"].partition("/")[0] for entry in json.loads(capsys.readouterr().out)["artifacts"]}
    assert {"train", "evaluate"} <= listed
    assert "ingest" not in listed  # the other points need it, too
    notes[0].write_bytes(kept[:-1])
    with pytest.raises(SystemExit) as end:
        main(unused)
    assert end.value.code == 1
    assert f"{notes[0].name} is damaged" in capsys.readouterr().err

    # Stopped after its first point, a repetition leaves the results that were there.
    before, note = Path("tiny.jsonl").read_text(), lipt.flow.sweep.note_point

    def stopped(*given: Any) -> None:
        note(*given)
        patched.setattr(lipt.flow.sweep, "run_variants", Mock(side_effect=KeyboardInterrupt))

    with monkeypatch.context() as patched:
        patched.setattr(lipt.flow.sweep, "note_point", stopped)
        with pytest.raises(SystemExit):
            main(["sweep", str(sweep)])
        assert Path("tiny.jsonl").read_text() == before

    # The same sweep without an interruption makes the same artifacts.
    main(["sweep", str(sweep), "--set", "workspace=straight", "--results", "straight.jsonl"])
    assert digests(Workspace("runs")) == digests(Workspace("straight"))
    assert capsys.readouterr().out.splitlines()[-1] == "results: straight.jsonl"


def test_an_impossible_point_ends_the_sweep_before_the_first_run(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = yaml.safe_load(sweep.read_text())
    sweep.write_text(yaml.safe_dump(settings | {"grid": {"select.algorithm": ["ccs", "cssc"]}}))
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(sweep)])
    assert end.value.code == 2
    assert "lipt: select.algorithm=cssc: " in capsys.readouterr().err
    assert not list(sweep.parent.glob("runs/train"))


def test_the_subset_that_is_trained_longer_is_counted(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = TINY | {"compare": {"seeds": [0, 1], "variants": ["lipt", "random-longer"]}}
    sweep.write_text(yaml.safe_dump({"base": base, "grid": {"train.lr": [0.1, 0.2]}}))
    stages = planned(sweep, capsys)["stages"]
    assert (stages["select"], stages["train"]) == (2 * 2, 2 * 2 * 2)


def test_a_point_that_fails_stops_no_other(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = TINY | {"merge": {"method": "none"}, "compare": {"seeds": [0], "variants": ["lipt"]}}
    base |= {"select": {"algorithm": "stratified"}, "train": {"steps": 20, "batch_size": 32}}
    sweep.write_text(yaml.safe_dump({"base": base, "grid": {"train.lr": [0.1, 1000, 0.2]}}))
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(sweep)])
    assert end.value.code == 1
    table, told = capsys.readouterr()
    assert "failed: the training loss is " in told
    assert "-> lower train.lr" in told
    assert "lipt: train.lr=1000: the training loss is " in told.splitlines()[-2]
    assert "keeps its earlier results" not in told
    assert [line.split(" | ")[0] for line in table.splitlines()[2:4]] == ["| 0.1", "| 0.2"]  # the finished points
    assert table.splitlines()[-1] == "results: tiny.jsonl"
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(sweep), "-o", "json"])
    assert end.value.code == 1
    assert [point["point"]["train.lr"] for point in json.loads(capsys.readouterr().out)] == [0.1, 0.2]
    text = Path("tiny.jsonl").read_text()
    assert [result.point["train.lr"] for result in read_lines(text, "tiny.jsonl")] == [0.1, 0.2]

    run_point = lipt.flow.sweep.run_variants

    def fails(ctx: Context, *more: Any) -> Any:
        if ctx.config.train.lr == 0.1:
            raise RunError("it failed", "mend it")
        return run_point(ctx, *more)

    monkeypatch.setattr("lipt.flow.sweep.run_variants", fails)
    with pytest.raises(SystemExit):
        main(["sweep", str(sweep), "--set", "train.steps=21"])
    table, told = capsys.readouterr()
    assert "| 0.2 |" in table
    assert "results:" not in table
    assert "lipt: failed points:\n  - train.lr=0.1: it failed\n    -> mend it\n  - train.lr=1000: " in told
    assert "tiny.jsonl keeps its earlier results until all of their points are finished again" in told
    assert Path("tiny.jsonl").read_text() == text


def test_a_full_disk_ends_a_sweep_at_its_point(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would need the same disk."""
    begun = list[object]()

    def fails(*arguments: object) -> None:
        begun.append(arguments)
        raise StoreError("runs: No space left on device", "free space")

    monkeypatch.setattr("lipt.flow.sweep.run_variants", fails)
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(sweep)])
    assert end.value.code == 1
    assert len(begun) == 1
