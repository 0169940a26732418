"""The verbs of every day on a workspace with two finished runs, as a user calls them."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from lipt.cli import main
from lipt.errors import UsageError
from tests.programs import lipt, lipt_here
from tests.tiny import TINY

SMALL = TINY | {
    "select": {"algorithm": "stratified", "fraction": 0.1},
    "train": {"epochs": 1, "random_baseline": False},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a.yaml` and `b.yaml` have run; they differ in the seed and share the data set."""
    folder = tmp_path_factory.mktemp("daily")
    for seed, (name, command) in enumerate({"a": lipt, "b": lipt_here}.items()):
        config = SMALL | {"name": name, "seed": seed, "workspace": str(folder / "runs")}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
        ended = command("run", str(folder / f"{name}.yaml"), "-q")
        assert (ended.returncode, ended.stderr) == (0, "")  # -q: no progress
    return folder


def runs_of(folder: Path) -> list[dict[str, object]]:
    return json.loads(lipt_here("ls", str(folder / "runs"), "-o", "json").stdout)  # type: ignore[no-any-return]


def test_ls_shows_each_run_with_its_date_accuracy_and_size(folder: Path) -> None:
    first, second = runs_of(folder)
    assert (str(first["run"])[:2], str(second["run"])[:2]) == ("a-", "b-")
    document = json.loads((folder / f"runs/reports/{first['run']}/report.json").read_text())
    assert first["accuracy"] == document["rows"][0]["accuracy"][0]
    assert first["stages"] == len(document["ledger"]) == 4  # ingest, select, train, evaluate
    data = sum(path.stat().st_size for path in folder.glob("runs/chunks/**/*") if path.is_file())
    assert int(str(first["num_bytes"])) > data
    shown = lipt_here("ls", str(folder / "runs")).stdout.splitlines()
    assert len(shown) == 3
    assert re.search(rf"{first['run']} +20..-..-.. ..:.. +4 +[\d.]+ % +[\d.]+ [kM]B", shown[1])


def test_ls_of_an_empty_workspace_says_so(tmp_path: Path) -> None:
    ended = lipt_here("ls", str(tmp_path))
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "no finished run" in ended.stderr


def test_ls_during_the_first_run_does_not_ask_for_another(tmp_path: Path) -> None:
    (tmp_path / "train/key").mkdir(parents=True)
    (tmp_path / "train/key/checkpoint").touch()
    assert (
        f"lipt: {tmp_path} has no finished run\n  -> if one is going on, wait" in lipt_here("ls", str(tmp_path)).stderr
    )


@pytest.mark.parametrize("verb", ["ls", "gc"])
def test_a_workspace_that_is_no_folder_is_an_error(verb: str, tmp_path: Path) -> None:
    ended = lipt_here(verb, str(tmp_path / "nowhere"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"lipt: there is no folder {tmp_path}/nowhere\n  -> ")


@pytest.mark.parametrize("verb", ["ls", "gc"])
def test_the_handle_of_a_run_is_no_workspace(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([verb, "argo/lipt/tiny-1"])
    assert ended.value.code == UsageError.exit_code
    told = capsys.readouterr().err
    assert told.startswith("lipt: argo/lipt/tiny-1 is the handle of a run, not its workspace\n  -> name the workspace")
    assert "`lipt status argo/lipt/tiny-1` shows the run" in told


def test_ls_names_the_report_that_it_cannot_read_and_lists_the_others(folder: Path) -> None:
    old = folder / "runs/reports/old-1/report.json"
    old.parent.mkdir()
    old.write_text("{}")
    try:
        assert len(runs_of(folder)) == 2
        told = lipt_here("ls", str(folder / "runs")).stderr
    finally:
        shutil.rmtree(old.parent)
    assert "not listed: " in told
    assert "reports/old-1/report.json is damaged, or another version of lipt wrote it" in told
    assert "\n  -> " in told


def test_open_starts_the_browser_and_prints_the_path(folder: Path, tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    run = f"{folder}/runs/reports/{runs_of(folder)[0]['run']}"
    for address in (str(folder / "a.yaml"), run, f"{run}/report.html"):
        ended = lipt("open", address, BROWSER=str(browser))
        assert ended.stdout.strip() == f"{run}/report.html", ended.stderr
        assert opened.read_text().strip() == f"file://{run}/report.html"


def test_several_reports_stand_side_by_side(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = lipt_here("report", str(folder / "a.yaml"), str(folder / "b.yaml"))
    assert ended.returncode == 0, ended.stderr
    names = [run["run"] for run in runs_of(folder)]
    assert all(f"Class-balanced random [{name}]" in ended.stdout for name in names)
    place = Path(ended.stdout.splitlines()[-1])
    assert place.parent == tmp_path  # the whole path, as that of `lipt run`
    page = place.read_text()
    for told in (ended.stdout, page):
        assert (
            f"compare {names[0]} and {names[1]} over 5 seeds, each with its other settings unchanged. Runs whose"
            in told
        )
        # They differ only in the seed, which a comparison does not take from them: one command answers for both.
        assert [f"lipt compare {folder}/{name}.yaml" in told for name in "ab"] == [True, False]
    assert "Yes: the data, the test images and the network are the same." in page
    rows = json.loads(lipt_here("report", str(folder / "a.yaml"), str(folder / "b.yaml"), "-o", "json").stdout)["rows"]
    assert [row["seeds"] for row in rows] == [[0], [1]]
    differ = page.partition("<caption>Settings that differ</caption>")[2].partition("</table>")[0]
    assert re.findall(r"<code>(.*?)</code>", differ) == ["seed"]
    assert re.findall(r"<td>(.*?)</td>", differ) == ["0", "1"]
    assert page.count("are candidates, from which to choose") == 1  # what is the same is said once
    for name in names:
        assert f'<a href="file://{folder}/runs/reports/{name}/report.html">{name}</a>' in page
    assert "No comparison with random shows a difference." in ended.stdout


def test_runs_of_one_name_are_told_apart_by_their_workspaces(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder / "runs/reports", tmp_path / "copy/runs/reports")
    name, other = (str(run["run"]) for run in runs_of(folder))
    places = [f"{folder}/runs/reports/{name}", f"copy/runs/reports/{name}", f"{folder}/runs/reports/{other}"]
    ended = lipt_here("report", *places)
    names = [f"{name}, {folder.name}/runs", f"{name}, copy/runs", other]
    assert all(f"Class-balanced random [{each}]" in ended.stdout for each in names), ended.stderr
    page = Path(ended.stdout.splitlines()[-1]).read_text()
    for each, place in zip(names, places, strict=True):
        assert f'<a href="file://{Path(place).absolute()}/report.html">{each}</a>' in page


def test_a_run_that_is_named_twice_is_shown_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    once, twice = (lipt_here("report", *[str(folder / "a.yaml")] * times).stdout for times in (1, 2))
    assert once == twice
    assert list(tmp_path.iterdir()) == []


def test_a_run_and_a_comparison_of_one_configuration_both_keep_their_report(tmp_path: Path) -> None:
    config = tmp_path / "both.yaml"
    compare = {"seeds": [0, 1], "variants": ["stratified", "lipt"]}
    config.write_text(yaml.safe_dump(SMALL | {"compare": compare, "workspace": str(tmp_path / "runs")}))
    for verb in ("compare", "run"):
        assert lipt_here(verb, str(config)).returncode == 0
        seeds = [row["seeds"] for row in json.loads(lipt_here("report", str(config), "-o", "json").stdout)["rows"]]
        assert seeds == ([[0, 1]] * 2 if verb == "compare" else [[0]])  # the later one
    run, comparison = sorted(each["run"] for each in runs_of(tmp_path))
    assert comparison == f"{run}-compare"
    unused = json.loads(lipt_here("gc", str(tmp_path / "runs"), "--days", "0", "--dry-run", "-o", "json").stdout)
    assert unused["artifacts"] == []
    page = tmp_path / "runs/reports" / comparison / "report.html"
    assert f"reports/{comparison}/chosen.txt" in page.read_text()


def test_runs_on_other_data_are_shown_but_not_compared(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other.yaml"
    data = TINY["data"] | {"test_fraction": 0.3}
    other.write_text(yaml.safe_dump(SMALL | {"name": "other", "data": data, "workspace": str(tmp_path / "runs")}))
    assert lipt_here("run", str(other)).returncode == 0
    ended = lipt_here("report", str(folder / "a.yaml"), str(other))
    page = (tmp_path / ended.stdout.splitlines()[-1]).read_text()
    assert "No. The data and the test images differ" in page
    assert "359 test images" in page
    table = page.partition("<caption>Accuracy of each method</caption>")[2].partition("</table>")[0]
    assert table.count("<tbody>") == 2  # a group of its own for each


def test_a_page_that_cannot_be_written_hides_no_verdict(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    both = [str(folder / "a.yaml"), str(folder / "b.yaml")]
    page = Path(lipt_here("report", *both).stdout.splitlines()[-1])
    page.unlink()
    page.mkdir()  # unlike the rights of a folder, this also stops root
    ended = lipt_here("report", *both)
    assert ended.returncode == 1
    assert "No comparison with random shows a difference." in ended.stdout
    assert page.name not in ended.stdout
    assert re.fullmatch(rf"lipt: file://{page}: Is a directory\n  -> .+\n", ended.stderr)
    ended = lipt_here("report", *both, "-o", "json")
    assert (ended.returncode, json.loads(ended.stdout)["report"]) == (1, None)


@pytest.mark.parametrize("rendered", [True, False])
@pytest.mark.parametrize("verb", ["report", "report -o json", "open"])
def test_a_read_only_workspace_shows_its_reports(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    rendered: bool,
) -> None:
    def is_read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    (run,) = shutil.copytree(folder / "runs/reports", tmp_path / "runs/reports").glob("a-*")
    page, opened = run / "report.html", list[str]()
    if not rendered:
        page.unlink()
    monkeypatch.setattr(os, "replace", is_read_only)
    monkeypatch.setattr("webbrowser.open", opened.append)
    with nullcontext() if rendered else pytest.raises(SystemExit):
        main([*verb.split(), str(run)])
    out, err = capsys.readouterr()
    assert [page.is_file(), f"{page}" in out] == [rendered, rendered]
    assert opened == [page.as_uri()] * (verb == "open" and rendered)
    assert ("Class-balanced random" in out) == (verb != "open")
    why = f"file://{page}: Read-only file system\n"
    said = (
        f"lipt: the page is not written again: {why}" if rendered else f"lipt: {why}  -> the file system is read-only"
    )
    assert err.startswith(said)


@pytest.mark.parametrize("verb", ["report", "open"])
def test_settings_cannot_change_a_run_of_the_workspace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main([verb, f"{tmp_path}/runs/reports/a-1", "--set", "foo=1"])
    assert end.value.code == 2
    assert "--set cannot change a finished run" in capsys.readouterr().err


def test_the_names_that_ls_prints_are_names_of_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the usual workspace, which is `runs`."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.chdir(folder)
    main(["ls"])
    first, second = (line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:2] in ("a-", "b-"))
    main(["report", first])
    shown = capsys.readouterr().out
    for place in (f"runs/reports/{first}", f"runs/reports/{first}/report.json"):
        main(["report", place])
        assert shown == capsys.readouterr().out
    main(["open", second])
    assert opened == [(folder / f"runs/reports/{second}/report.html").as_uri()]
    main(["export", second, "--to", "named.txt"])
    assert (folder / "named.txt").read_text() == (folder / f"runs/reports/{second}/chosen.txt").read_text()
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["report", first, "--set", "foo=1"])
    assert "--set cannot change a finished run" in capsys.readouterr().err
    (folder / first).write_text("seed: 7")  # a configuration that is called like a run
    with pytest.raises(SystemExit):
        main(["report", first])
    assert f"has no report of {first}" in capsys.readouterr().err
    (folder / first).unlink()


def test_a_name_that_fits_no_run_is_told_what_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*names: str) -> str:
        with pytest.raises(SystemExit) as end:
            main(["report", *names])
        assert end.value.code == 2
        return capsys.readouterr().err

    assert "a run in runs (lipt ls lists them), WORKSPACE/reports/RUN, or" in said("quickstart-8c857717")
    assert list(tmp_path.iterdir()) == []
    for name in ("quickstart-8c857717", "quickstart-0123abcd"):
        (tmp_path / "runs/reports" / name).mkdir(parents=True)
        (tmp_path / "runs/reports" / name / "report.json").touch()
    assert "did you mean quickstart-8c857717?" in said("quickstart-8c857771")
    assert "did you mean quickstart-0123abcd or quickstart-8c857717?" in said("quickstart")
    for wrong in ("../runs/reports", ".", "", "reports/quickstart-8c857717"):
        assert f"lipt: {wrong}: neither a configuration nor a run" in said(wrong)
    (tmp_path / "runs/sweeps").mkdir()
    (tmp_path / "runs/sweeps/grid-0123abcd").touch()
    assert "grid is a sweep, which has no report of its own\n  -> lipt sweep FILE" in said("grid")
    for several in (("wrong", "quickstart", "wrong"), ("quickstart", "wrong")):  # each is named, once
        assert all(said(*several).count(f"- {name}: neither a") == 1 for name in ("wrong", "quickstart"))


def test_gc_lists_first_and_removes_only_what_no_report_refers_to(folder: Path) -> None:
    runs = folder / "runs"
    used = {str(path.parent) for path in runs.glob("*/*/artifact.json")}
    made = lipt_here("stage", "ingest", str(folder / "a.yaml")).stdout.strip()
    unused = lipt_here("stage", "initialise", str(folder / "a.yaml"), "--in", f"dataset={made}").stdout.strip()
    assert "nothing to remove that is 7 days old" in lipt_here("gc", str(runs), "--dry-run").stdout
    listed = lipt_here("gc", str(runs), "--dry-run", "--days", "0").stdout.splitlines()
    assert [line.split()[0] for line in listed[:-1]] == [unused]
    assert "nothing removed" in listed[-1]
    assert (runs / unused / "artifact.json").exists()
    ask = [sys.executable, "-m", "lipt", "gc", str(runs), "--days", "0"]
    for command in (ask, ["sh", "-c", f"{shlex.join(ask)} <&-"], [*ask, "-o", "json"]):
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert ended.returncode == 2
        said = "-o json asks no question" if "json" in command else "no answer; nothing was removed"
        assert ended.stderr.endswith(f"lipt: {said}\n  -> add --yes, or --dry-run\n")
    assert subprocess.run(ask, input="n\n", text=True).returncode == 0
    assert (runs / unused / "artifact.json").exists()
    removed = lipt_here("gc", str(runs), "--days", "0", "--yes").stdout.splitlines()
    assert removed[0].startswith(unused)
    assert removed[-1].startswith("removed 1 artifact, ")
    assert {str(path.parent) for path in runs.glob("*/*/artifact.json")} == used
    assert "would run" not in lipt_here("run", str(folder / "a.yaml"), "--dry-run").stderr


def test_gc_removes_what_killed_processes_left_half_written(folder: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(folder / "runs", runs)
    old, young = runs / "train/.lipt-tmp-0", runs / "select/.lipt-tmp-1"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    shown = lipt_here("gc", str(runs), "--dry-run").stdout.splitlines()
    assert [shown[0].split()[0], shown[-1]] == [
        "train/.lipt-tmp-0",
        "0 artifacts, 0 B, and 1 half-written file, 4 B, nothing removed",
    ]
    assert old.exists()
    removed = json.loads(lipt_here("gc", str(runs), "--yes", "-o", "json").stdout)
    assert removed == {"removed": True, "artifacts": [], "leftovers": {"train/.lipt-tmp-0": 4}}
    assert (old.exists(), young.exists()) == (False, True)  # the writer of a young one may still live


def test_gc_lists_an_artifact_that_cannot_be_read_as_unfinished(folder: Path, tmp_path: Path) -> None:
    """No report refers to it, so no run would ever repair it, and gc would stop at it forever."""
    shutil.copytree(folder / "runs", tmp_path / "runs")
    marker = tmp_path / "runs/evaluate/0000000000000001/artifact.json"
    shutil.copytree(next((tmp_path / "runs/evaluate").iterdir()), marker.parent)
    marker.write_bytes(marker.read_bytes()[:100])
    ended = lipt_here("gc", str(tmp_path / "runs"), "--days", "0", "--dry-run")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.search(rf"^evaluate/{marker.parent.name}  \d+ B  0 days old  unfinished$", ended.stdout, re.MULTILINE)


def test_gc_removes_nothing_where_a_report_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "runs/reports/x-1/report.json"
    report.parent.mkdir(parents=True)
    assert lipt_here("gc", str(tmp_path / "runs")).returncode == 1  # no report at all
    report.write_text("{}")
    ended = lipt_here("gc", str(tmp_path / "runs"), "--yes")
    assert ended.returncode == 1
    assert "another version of lipt wrote it" in ended.stderr


def test_help_groups_the_verbs_and_each_has_an_example() -> None:
    shown = lipt_here("--help").stdout
    groups = [line.rstrip(":") for line in shown.splitlines() if re.fullmatch(r"[A-Z][a-z ]+:", line)]
    assert groups[-2:] == ["For pods and developers", "Begin"]
    verbs = re.findall(r"^  ([a-z]+)  ", shown, re.MULTILINE)
    assert verbs[-2:] == ["stage", "box"]
    assert len(verbs) > 15
    for verb in ("run", "report", "gc", "select"):
        example = lipt_here(verb, "--help", COLUMNS="80").stdout.partition("Example: ")[2]
        assert example.startswith(f"lipt {verb} ")
        assert all(line.endswith("\\") for line in example.splitlines()[:-1])  # a shell takes it as it stands
