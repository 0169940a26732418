"""Numbers for people, and the comparison on a terminal."""

import pytest
from report_samples import comparison, row
from rich.console import Console

from lipt.report.numbers import (
    exact,
    format_budget,
    format_bytes,
    format_flops,
    format_multiple,
    format_percent,
    format_points,
    format_seconds,
)
from lipt.report.text import comparison_table, stage_table, verdict_text
from lipt.report.verdict import judge


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_bytes(0), "0 B"),
        (format_bytes(999), "999 B"),
        (format_bytes(999_600), "1 MB"),
        (format_bytes(44_732_168), "44.7 MB"),
        (format_bytes(3e18), "3000 PB"),
        (format_bytes(None), "–"),
        (format_flops(1.11e15), "1.11 PFLOP"),
        (format_seconds(0), "0 s"),
        (format_seconds(0.0314), "31.4 ms"),
        (format_seconds(0.9999), "1 s"),
        (format_seconds(59.96), "60 s"),
        (format_seconds(99.97), "1 min 40 s"),
        (format_seconds(284.2), "4 min 44 s"),
        (format_seconds(3599.9), "1 h 00 min"),
        (format_seconds(7500), "2 h 05 min"),
        (format_percent(0.7412), "74.12 %"),
        (format_budget(0.005), "0.5 %"),
        (format_budget(1), "100 %"),
        (format_points(-0.0123), "−1.23"),
        (format_points(0.0), "+0.00"),
        (format_multiple(15.42), "15.4x"),
        (exact(44_732_168.0, "bytes"), "44,732,168 bytes"),
        (exact(None, "bytes"), "not measured"),
    ],
)
def test_numbers_for_people(shown, expected):
    assert shown == expected


def _print(*renderables):
    console = Console(width=180, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(*renderables)
    return captured.get()


def test_the_terminal_shows_both_budgets_and_the_distance_to_random():
    lines = _print(comparison_table(comparison())).splitlines()
    (ours,) = (line for line in lines if "LiPT + CCS" in line)
    (rs2,) = (line for line in lines if "RS2" in line)
    assert "78.40 ± 0.30 %" in ours
    assert "+1.97 ± 0.38" in ours
    cells = " ".join(rs2.split("epoch)")[1].split())
    assert cells == "84.83 ± 0.25 % – 100 % 10 % 30 4 min 50 s – 154 MB – 2.6 PFLOP"


def test_labels_are_not_markup():
    rows = [row("a", [0.5], "selected", label="[red]a[/red] [/nope]")]
    assert "[red]a[/red] [/nope]" in _print(comparison_table(rows))


def test_the_verdict_has_a_line_per_sentence():
    verdict = judge(comparison())
    assert verdict_text(verdict).plain.splitlines() == [verdict.headline, *(f"  {line}" for line in verdict.sentences)]


def test_stages_stand_in_the_order_run_whatever_the_first_row_skipped() -> None:
    short = row("random", [0.5], "random", stage_wall_s={"select": 1.0, "train": 2.0})
    long = row("lipt", [0.5], "selected", stage_wall_s={"initialise": 3.0, "merge": 4.0, "select": 1.0, "train": 2.0})
    table = stage_table([short, long])
    assert [column.header for column in table.columns] == ["wall-clock", "initialise", "merge", "select", "train"]
