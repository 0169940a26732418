"""The tables and figures of the paper as sweeps, how they are drawn again from their results, and its accounting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lipt.cli import main
from lipt.cli.sweep import Done
from lipt.errors import FailedPointError, RunError
from lipt.flow.paper import NAMES, PaperSweep, Profile
from lipt.flow.reporting.accounting import classic_epochs_read
from lipt.flow.sweep import check_points
from lipt.report.sweep import Result, to_lines
from lipt.runtime.context import Context
from tests.unit.report.report_samples import row


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("profile", ["cpu", "full"])
def test_every_paper_sweep_has_points_and_claims_about_them(name: str, profile: Profile) -> None:
    paper_sweep = PaperSweep.load(name)
    points = paper_sweep.sweep(profile).points
    assert {point.config.name for point in points} == {name}
    assert {point.config.profile for point in points} == {"paper"}
    results = [
        Result(
            point=dict(each.values), rows=[row("stratified", [0.5] * 3, "random"), row("lipt", [0.6] * 3, "selected")]
        )
        for each in points
    ]
    assert [claim.claim for claim in paper_sweep.claims if not claim.pairs(results)] == []
    if name not in ("fig2", "fig3"):  # the paper prints no numbers
        assert [str(point) for point in points if paper_sweep.number(point.values) is None] == []


@pytest.mark.parametrize(
    ("name", "point", "number"),
    [
        ("table1", {"method": "LiPT GraNd 10 %"}, "22 + 284 s"),
        ("table2", {"method": "LiPT", "select.fraction": 0.01}, 47.50),
        ("table3", {"part": "all", "select.fraction": 0.7}, 93.6),
        ("table3", {"problem": "WRN-50-2/ImageNet", "part": "merge", "select.fraction": 0.1}, 47.5),
        ("b1", {"method": "classic", "select.fraction": 0.5}, 84.41),
        ("b2", {"method": "LiPT", "kept": "20 %"}, 85.68),
        ("c", {"merge.method": "uniform", "select.fraction": 0.3}, 85.76),
        ("d", {"pretrain.prune": "random", "select.fraction": 0.2}, 72.81),
        ("d", {"pretrain.prune": "none", "select.fraction": 0.2}, None),
    ],
)
def test_numbers_of_the_paper(name: str, point: dict[str, str | float], number: float | str | None) -> None:
    assert PaperSweep.load(name).number(point) == number


def test_the_full_profile_is_the_protocol_of_the_paper() -> None:
    points = {str(point): point.config for point in PaperSweep.load("b2").sweep("full").points}
    config = points["kept=20 %, method=warm start"]
    assert (config.model.name, config.train.epochs, config.train.batch_size) == ("resnet18", 200, 256)
    assert (config.score.model, config.score.runs, config.score.epochs) == ("classic", 1, 20)
    assert (config.dispatch.jigsaws, config.pretrain.passes, config.merge.search) == (10, 5, "grid")
    points = {str(point): point.config for point in PaperSweep.load("table3").sweep("full").points}
    config = points["problem=WRN-28-10/CIFAR-100, select.fraction=0.7, part=merge"]
    assert (config.pretrain.prune, config.pretrain.augment) == ("none", "standard")
    assert (config.data.source, config.dispatch.batches) == ("cifar100:data", 5)


def test_the_cpu_profile_trains_on_whole_batches() -> None:
    """A last batch of a few images unsettles BatchNorm."""
    candidates = 1438 - round(0.11 * 1438)
    for name in NAMES:
        for point in PaperSweep.load(name).sweep("cpu").points:
            kept = round(point.config.select.fraction * candidates)
            assert kept % point.config.train.batch_size == 0 or kept < 32, point


@pytest.mark.parametrize("name", NAMES)
def test_every_point_of_the_cpu_profile_can_run(name: str) -> None:
    points = PaperSweep.load(name).sweep("cpu").points
    check_points(Context.of(points[0].config), points)


def drawn(folder: Path, name: str) -> tuple[str, str]:
    main(["reproduce", name, "--draw", "--results", str(folder)])
    return tuple((folder / f"{name}-cpu{suffix}").read_text() for suffix in (".md", ".svg"))  # type: ignore[return-value]


def test_a_table_is_drawn_again_from_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        Result(
            point=dict(point.values),
            rows=[
                row("stratified", [0.5, 0.51, 0.52], "random"),
                row("rs2", [0.7, 0.7, 0.7]),
                row("lipt", [0.6 + 0.1 * (point.values["method"] == "LiPT")] * 3, "selected"),
            ],
        )
        for point in PaperSweep.load("b1").sweep("cpu").points
    ]
    (tmp_path / "b1-cpu.jsonl").write_text(to_lines(results))
    page, picture = drawn(tmp_path, "b1")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [f"{tmp_path}/b1-cpu.md", f"{tmp_path}/b1-cpu.svg"]
    assert (
        "| 0.05 | LiPT | 61.6 | 70.0 ± 0.0 | 51.0 ± 1.0 | 70.0 ± 0.0 | 3 | **+19.0 ± 2.5** | 1,080 | 135,000 | – |"
        in page
    )
    assert "| LiPT beats ten classic runs | **+10.0 ± 0.0** | 4 | 3 | yes |" in page
    assert picture.count("<svg") == 1
    assert drawn(tmp_path, "b1") == (page, picture)


def test_a_part_of_a_table_has_files_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = PaperSweep.load("table3").sweep("full").only({"problem": "R18/CIFAR-10"}).points
    results = [Result(point=dict(points[0].values), rows=[row("lipt", [0.5], "selected")])]
    (tmp_path / "table3-full-problem-R18-CIFAR-10.jsonl").write_text(to_lines(results))
    part = ["--profile", "full", "--only", "problem=R18/CIFAR-10"]
    main(["reproduce", "table3", "--draw", *part, "--results", str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[-2] == f"{tmp_path}/table3-full-problem-R18-CIFAR-10.md"
    assert not list(tmp_path.glob("table3-full.*"))


def test_nothing_to_draw_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d-cpu.jsonl").touch()  # stopped before its first point
    (tmp_path / "b1-cpu.jsonl").write_text('{"point": {"x": 1}, "rows": []}')
    for arguments, code, says in (
        (["c", "--draw", "--results", str(tmp_path)], 1, "run it first, without --draw"),
        (["d", "--draw", "--results", str(tmp_path)], 1, "holds no results yet"),
        (["b1", "--draw", "--results", str(tmp_path)], 1, "no row is the selected one"),
        (["c", "--draw", "--set", "train.epochs=1"], 2, "--draw draws finished results"),
        (["c", "--only", "merge=greedy"], 2, "no such axis"),
        (["all", "--only", "select.fraction=0.1", "--results", str(tmp_path / "none")], 2, "no such axis"),
        (["c", "--set", "train.epoch=1"], 2, "--set train.epoch=1: unknown key 'train.epoch'"),
        (["e"], 2, "'e' is not one of"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["reproduce", *arguments])
        assert end.value.code == code
        assert says in capsys.readouterr().err
    assert not (tmp_path / "none").exists()  # an axis that the last table lacks stops all of them before the first


def test_a_table_with_a_failed_point_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> Any:
        raise RunError("it failed", "mend it")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lipt.flow.sweep.check_comparison", lambda _: [])
    monkeypatch.setattr("lipt.flow.sweep.run_variants", fails)
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "all", "--set", "compare.seeds=[0]"])
    assert end.value.code == 1
    told = capsys.readouterr().err
    assert told.count("== point 1 of ") == len(NAMES)
    assert "\n  - d: select.fraction=0.1, pretrain.prune=snip: it failed\n" in told
    assert told.endswith("\n  -> mend it\n")
    assert list((tmp_path / "paper").iterdir()) == []


def test_a_table_with_a_failed_point_says_how_to_draw_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    finished = [Result(point={"merge": "greedy"}, rows=[row("lipt", [0.5], "selected")])]
    done = Done(finished, saved=True, failed=FailedPointError("it failed", "mend it"))
    monkeypatch.setattr("lipt.cli.reproduce.run_and_save", lambda *_: done)
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "c", "--only", "select.fraction=0.1"])
    assert end.value.code == 1
    path, command = "paper/c-cpu-select.fraction-0.1.jsonl", "--profile=cpu --only=select.fraction=0.1 --results=paper"
    first, *more = capsys.readouterr().err.splitlines()
    assert first == f"lipt: {path} has the finished points of c; to draw them: lipt reproduce c {command} --draw"
    assert more == ["lipt: c: it failed", "  -> mend it"]


@pytest.mark.parametrize(
    ("classic", "cells"),
    [("grand", [44, 29, 17, 12, 10, 8]), ("gradmatch", [25, 29, 31, 32, 32, 32])],  # App. B.1 and B.2, "I/O saved" in %
)
def test_the_twelve_cells_of_the_paper(classic: str, cells: list[int]) -> None:
    """LiPT reads one epoch, and in five passes the 5.12 per cent of its ten workers."""
    saved = []
    for fraction in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5):
        before, main = classic_epochs_read(classic, fraction, epochs=200)
        saved.append(round(100 * (1 - (1 + 5 * 0.0512 + main) / (before + main))))
    assert saved == cells
