"""The file with the results of a sweep: what it never replaces, and what cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import yaml

from lipt.cli import main
from lipt.cli.sweep import run_and_save
from lipt.config import load_sweep
from lipt.errors import RunError
from lipt.report.sweep import Result, to_lines
from tests.tiny import TINY
from tests.unit.report.report_samples import row


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep of two points."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump({"base": TINY, "grid": {"select.fraction": [0.1, 0.2]}}))
    return path


#: A result of another sweep.
OTHER = Result(point={"train.steps": 7}, rows=[row("lipt", [0.5], "selected")])


@pytest.mark.parametrize("target", ["tiny.yaml", "base.yaml"])
def test_results_never_replace_what_the_sweep_reads(
    sweep: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = yaml.safe_load(sweep.read_text())
    Path("base.yaml").write_text(yaml.safe_dump(settings["base"]))
    sweep.write_text(yaml.safe_dump({"base": "base.yaml", "grid": {"select.fraction": [0.1]}}))
    before = Path(target).read_bytes()
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(sweep), "--results", target])
    assert end.value.code == 2
    assert f"--results {target} is {sweep.parent}/{target}, which this command reads" in capsys.readouterr().err
    assert Path(target).read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"my lab notes", "notes is no file of a sweep's results"),
        (b"\xff\xfe", "notes is no file of a sweep's results"),
        (to_lines([OTHER]).encode(), "notes has results of other points, such as train.steps=7"),
    ],
)
def test_results_replace_nothing_but_results_of_the_same_points(
    sweep: Path, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("notes").write_bytes(content)
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(sweep), "--results", "notes"])
    assert end.value.code == 2
    assert f"{message}\n  -> name another file with --results, or move this one" in capsys.readouterr().err
    assert Path("notes").read_bytes() == content
    assert not list(sweep.parent.glob("runs/train"))


def test_results_that_cannot_be_written_are_one_error(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(sweep), "--results", f"{sweep}/tiny.jsonl"])
    assert end.value.code == 1
    assert f"cannot write {sweep}/tiny.jsonl" in capsys.readouterr().err
    assert not list(sweep.parent.glob("runs/train"))


Save = Callable[[list[object]], None]


def test_two_sweeps_can_have_one_file_of_results(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, found, replace = Barrier(2), load_sweep(str(sweep)), os.replace

    def replaces_at_the_same_time(source: Path, target: Path) -> None:
        if Path(target).name == "tiny.jsonl":
            both.wait(60)
        replace(source, target)

    def saves_once(_ctx: object, _points: object, save: Save) -> list[object]:
        save([Result(point={"select.fraction": 0.1}, rows=OTHER.rows)])
        return []

    monkeypatch.setattr(os, "replace", replaces_at_the_same_time)
    monkeypatch.setattr("lipt.flow.sweep.run_sweep", saves_once)
    with ThreadPoolExecutor() as threads:
        for ended in [threads.submit(run_and_save, found, Path("tiny.jsonl"), None) for _ in range(2)]:
            assert ended.result().results == []
    assert sorted(path.name for path in sweep.parent.iterdir() if path.is_file()) == ["tiny.jsonl", "tiny.yaml"]


def test_the_same_sweep_in_another_process_loses_no_results(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has finished a point more since this one began."""
    found = load_sweep(str(sweep))
    first, second = (Result(point={"select.fraction": fraction}, rows=OTHER.rows) for fraction in (0.1, 0.2))

    def beside_another(_ctx: object, _points: object, save: Save) -> list[object]:
        Path("tiny.jsonl").write_text(to_lines([first, second]))
        save([first])
        return []

    monkeypatch.setattr("lipt.flow.sweep.run_sweep", beside_another)
    run_and_save(found, Path("tiny.jsonl"), None)
    assert Path("tiny.jsonl").read_text() == to_lines([first, second])


def test_another_sweep_that_has_taken_the_file_does_not_stop_this_one(
    sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had begun before the other wrote there."""

    def beside_another(_ctx: object, _points: object, save: Save) -> list[object]:
        Path("tiny.jsonl").write_text(to_lines([OTHER]))
        save([own])
        return []

    own = Result(point={"select.fraction": 0.1}, rows=OTHER.rows)
    monkeypatch.setattr("lipt.flow.sweep.run_sweep", beside_another)
    run_and_save(load_sweep(str(sweep)), Path("tiny.jsonl"), None)
    assert Path("tiny.jsonl").read_text() == to_lines([own])


def test_a_file_that_can_be_read_no_more_ends_a_sweep_with_one_error(
    sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def becomes_a_folder(_ctx: object, _points: object, save: Save) -> list[object]:
        Path("tiny.jsonl").unlink()
        Path("tiny.jsonl").mkdir()
        save([])
        return []

    monkeypatch.setattr("lipt.flow.sweep.run_sweep", becomes_a_folder)
    with pytest.raises(RunError, match=r"cannot read tiny.jsonl: Is a directory\n  -> name another file"):
        run_and_save(load_sweep(str(sweep)), Path("tiny.jsonl"), None)


def test_a_full_disk_ends_a_sweep_with_one_error(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def saves_once(_ctx: object, _points: object, save: Save) -> list[object]:
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", is_full)
            save([])
        return []

    monkeypatch.setattr("lipt.flow.sweep.run_sweep", saves_once)
    before = sorted(sweep.parent.rglob("*"))
    with pytest.raises(RunError, match=r"tiny.jsonl: No space left on device") as error:
        run_and_save(load_sweep(str(sweep)), sweep.parent / "tiny.jsonl", None)
    assert "free space" in error.value.remedy
    assert sorted(sweep.parent.rglob("*")) == before


@pytest.mark.parametrize("kept", [False, True])
def test_a_sweep_that_is_stopped_before_its_first_point_leaves_no_empty_file(
    kept: bool, sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was there stays, also an empty one."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    if kept:
        Path("tiny.jsonl").touch()
    monkeypatch.setattr("lipt.flow.sweep.run_sweep", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_and_save(load_sweep(str(sweep)), Path("tiny.jsonl"), None)
    assert Path("tiny.jsonl").exists() == kept
