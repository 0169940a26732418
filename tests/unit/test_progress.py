"""What a person sees while stages run, on a terminal and in the log of a pod."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lipt import metrics
from lipt.progress import Reporter, make_reporter
from tests.programs import on_terminal


def until(stream: io.StringIO, text: str) -> str:
    deadline = time.monotonic() + 10
    while text not in stream.getvalue():
        assert time.monotonic() < deadline, stream.getvalue()
        time.sleep(0.01)
    return stream.getvalue()


def test_a_long_stage_says_where_it_stands_and_when_it_will_end() -> None:
    stream = io.StringIO()
    reporter = Reporter(stream, every_s=0.05)
    reporter.started("train ccs")
    assert re.match(r"train ccs +0 s\n", until(stream, "\n"))  # it lives, and nothing is known yet
    reporter.advance("train ccs", 1000, 5000, "images, epoch 1 of 4")
    time.sleep(0.2)
    reporter.advance("train ccs", 2000, 5000, "images, epoch 2 of 4")
    text = until(stream, "left")
    assert re.search(r"train ccs +0 s  2,000 of 5,000 images, epoch 2 of 4  [\d,]+ images/s  \d+ s left\n", text)
    reporter.done("train ccs", 1.0, {})
    said = stream.getvalue()
    time.sleep(0.2)
    assert stream.getvalue() == said


def test_a_stage_that_goes_on_is_as_fast_as_what_it_does_now() -> None:
    """What an earlier attempt had done counts as done, not as done just now."""
    reporter = Reporter(io.StringIO(), every_s=60)
    reporter.started("train")
    reporter.advance("train", 900_000, 1_000_000, "images")
    time.sleep(0.1)
    reporter.advance("train", 900_010, 1_000_000, "images")
    (rate,) = re.findall(r"([\d,.]+) images/s", reporter.running["train"].line())
    assert float(rate.replace(",", "")) < 110
    reporter.close()


def test_an_unknown_total_is_not_a_total_of_nothing() -> None:
    reporter = Reporter(io.StringIO(), every_s=60)
    reporter.started("merge")
    assert reporter.running["merge"].counts() == ""
    reporter.advance("merge", 12, 0, "models")
    assert reporter.running["merge"].counts() == "12 models"
    assert "left" not in reporter.running["merge"].line()
    reporter.close()


_STAGES = """
from lipt.progress import make_reporter
reporter = make_reporter()
def draw():  # at once, not ten times per second: the test does not depend on how busy the machine is
    if hasattr(reporter, "bars"):
        reporter.bars.refresh()
reporter.started("initialise")
for done in range(0, 115_000_001, 23_000_000):
    reporter.advance("initialise", done, 115_000_000, "images, epoch 3 of 12, loss 0.512")
    draw()
reporter.done("initialise", 1.0, {"accuracy": 0.5})
reporter.started("merge")
reporter.advance("merge", 12, 0, "models")
draw()
reporter.done("merge", 1.0, {})
reporter.close()
"""


@pytest.mark.parametrize("columns", [80, 120])
def test_figures_are_whole_on_a_terminal(columns: int) -> None:
    shown = on_terminal(columns, "-c", _STAGES)
    frames = [line for line in re.split(r"[\r\n]", shown) if line.strip()]
    assert all(len(frame.rstrip()) <= columns for frame in frames)
    assert "None" not in shown
    assert "12/0" not in shown
    assert "…" not in shown
    assert any("23,000,000 of 115,000,000" in frame for frame in frames)
    assert any("12 models" in frame for frame in frames)
    assert ("epoch 3 of 12, loss 0.512" in shown) == (columns == 120)
    assert "initialise               1.0 s  accuracy 50.00 %" in shown


def test_a_pipe_gets_lines(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as log:
        subprocess.run([sys.executable, "-c", _STAGES], stderr=log, check=True)
    assert (tmp_path / "log").read_text().splitlines() == [
        "initialise               1.0 s  accuracy 50.00 %",
        "merge                    1.0 s",
    ]


_MERGED = {
    "best_single": 2,
    "best_single_accuracy": 0.7,
    "accuracy": 0.7847,
    "theta_star_accuracy": 0.25,
    "uniform_accuracy": 0.76,
}


@pytest.mark.parametrize("verbose", [False, True])
def test_a_merge_shows_internal_facts_only_with_v(verbose: bool) -> None:
    reporter = Reporter(stream := io.StringIO(), verbose=verbose)
    reporter.done("merge", 1.0, _MERGED)
    line = stream.getvalue().rstrip()
    assert "accuracy 78.47 %  theta_* 25.00 %" in line
    assert ("uniform_accuracy 76.00 %" in line) == verbose
    assert verbose or len(line) <= 80


def test_facts_keep_their_order_in_whatever_order_a_summary_is_stored() -> None:
    reporter = Reporter(stream := io.StringIO())
    summary = {"train": 1438, "zeal": 2, "test": 359}
    reporter.done("ingest", 1.0, summary)
    reporter.skipped("ingest", dict(sorted(summary.items())))
    assert [line[32:] for line in stream.getvalue().splitlines()] == 2 * ["train 1,438  test 359  zeal 2"]


def test_a_share_is_shown_in_per_cent() -> None:
    reporter = Reporter(stream := io.StringIO())
    reporter.done("dispatch", 1.0, {"jigsaws": 6, "share": 192 / 1294})
    assert stream.getvalue().rstrip().endswith("jigsaws 6  share 14.84 %")


def test_the_longest_label_of_a_baseline_does_not_shift_its_line() -> None:
    reporter = Reporter(stream := io.StringIO())
    for label in ("merge", "select stratified"):
        reporter.done(label, 1.0, {"images": 2})
        reporter.skipped(label, {"images": 2})
    assert {line.index("images") for line in stream.getvalue().splitlines()} == {32}


def test_parts_that_are_up_to_date_share_a_line() -> None:
    reporter = Reporter(stream := io.StringIO())
    for index in (*range(4), 5):
        reporter.skipped(f"pretrain[{index}]", {"density": 0.9})
    for index in range(2):
        reporter.planned(f"pretrain[{6 + index}]")
    reporter.skipped("merge", {})
    reporter.skipped("score[0]", {"models": 1})
    reporter.close()
    assert stream.getvalue().splitlines() == [
        "pretrain[0-3,5]     up to date",
        "pretrain[6-7]        would run",
        "merge               up to date",
        "score[0]            up to date  models 1",
    ]


def test_parts_do_not_wait_for_a_stage_to_finish() -> None:
    reporter = Reporter(stream := io.StringIO(), every_s=60)
    reporter.skipped("pretrain[0]", {})
    reporter.started("merge")
    assert stream.getvalue() == "pretrain[0]         up to date\n"
    reporter.close()


def test_quiet_hides_progress_but_no_warning_and_no_loss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: object) -> None:
        raise ValueError("no such server")

    monkeypatch.setattr(metrics, "log", refuse)
    reporter = make_reporter(quiet=True)
    reporter.skipped("pretrain[0]", {"density": 0.9})
    reporter.planned("pretrain[1]")
    reporter.started("merge")
    for _ in range(2):
        reporter.measured("merge", 1, {"loss": 0.5})
        reporter.warn("auto has no measured gain")
    reporter.say("-- random, seed 1")
    reporter.note("merge", "waits")
    reporter.alert("pretrain[1] lost: out of memory")
    reporter.alert("left out: 3 files of .txt", "ingest")
    reporter.done("merge", 1.0, {})
    reporter.close()
    assert capsys.readouterr().err.splitlines() == [
        "LIPT_METRICS: ValueError: no such server; the run continues without it",
        "warning: auto has no measured gain",
        "pretrain[1] lost: out of memory",
        "ingest              left out: 3 files of .txt",
    ]
