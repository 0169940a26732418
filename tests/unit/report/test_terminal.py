"""The comparison and the verdict on terminals of different widths, and in a pipe."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from report_samples import comparison, document, row
from rich.console import Console

from lipt.config import parse_config
from lipt.flow.address import report_folder
from lipt.report.comparison import COLUMNS, comparison_groups
from lipt.report.document import RaceRow
from lipt.report.html_page import render
from lipt.report.next_step import Origin
from lipt.report.sweep import LEGEND, Claim, Result, claim_rows, table_texts
from lipt.report.terminal import (
    column_importance,
    comparison_table,
    fitted,
    print_report,
    print_sweep,
    race_importance,
    stage_importance,
    stage_table,
    sweep_importance,
    sweep_table,
    verdict_text,
)
from lipt.report.verdict import judge
from tests.programs import lipt, on_terminal


def printed(table: object, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 100, 140, 250])
def test_every_figure_that_is_shown_is_whole(width: int) -> None:
    rows = comparison()
    table, left_out = fitted(lambda shown: comparison_table(rows, shown), column_importance(rows), width)
    lines = printed(table, width)
    assert all(len(line) <= width for line in lines)
    assert "…" not in "".join(lines)
    kept = [index for index, column in enumerate(COLUMNS) if column.heading not in left_out]
    assert {"accuracy", "vs random"} <= {COLUMNS[index].heading for index in kept}
    for line in (line for group in comparison_groups(rows) for line in group):
        (shown,) = [text for text in lines if text.startswith(line.label)]
        cells = " ".join((*line.results, *line.costs)[index].text for index in kept)
        assert " ".join(shown.removeprefix(line.label).split()) == " ".join(cells.split())
    assert bool(left_out) == (width < 200)


def test_without_a_width_nothing_is_left_out() -> None:
    rows = comparison()
    assert fitted(lambda shown: comparison_table(rows, shown), column_importance(rows), None)[1] == []
    assert sorted(column_importance(rows)) == sorted(column.heading for column in COLUMNS)


def test_at_80_columns_the_budget_that_differs_stays_and_what_is_equal_goes_first() -> None:
    """Two runs that differ in nothing but how much they keep, as side by side."""
    rows = [
        row(name, [accuracy], role, label=f"{label} [quickstart-{share}]", kept_fraction=share, epoch_fraction=share)
        for share in (0.05, 0.02)
        for name, label, role, accuracy in (
            ("lipt", "LiPT, auto (ccs)", "selected", 0.8 + share),
            ("stratified", "Class-balanced random", "random", 0.7 + share),
        )
    ]
    importance = column_importance(rows)
    assert importance[:3] == ["accuracy", "data kept", "vs random"]
    table, left_out = fitted(lambda shown: comparison_table(rows, shown), importance, 80)
    assert {"5 %", "2 %"} <= set("  ".join(printed(table, 80)).split("  "))
    assert "data kept" not in left_out
    equal = {"sd", "worst class", "epochs", "steps", "images", "wall-clock", "pre-training", "data", "models", "FLOPs"}
    assert set(importance[-len(equal) :]) == equal
    same = [each.model_copy(update={"kept_fraction": 0.1, "epoch_fraction": 0.1}) for each in rows]
    assert column_importance(same)[:2] == ["accuracy", "vs random"]
    pool = [same[0], same[1].model_copy(update={"epoch_fraction": 0.05})]
    assert column_importance(pool)[:3] == ["accuracy", "per epoch", "vs random"]


def test_a_long_label_is_broken_before_the_difference_from_random_is_left_out() -> None:
    long = "Class-balanced random, continued from theta_p [your-folder-0123abcd]"
    rows = [
        row("lipt", [0.8], "selected", label="LiPT, auto (ccs)"),
        row("continued", [0.7], "other", label=long, kept_fraction=0.05),
        row("random", [0.6], "random", label="Class-balanced random"),
    ]
    table, left_out = fitted(lambda shown: comparison_table(rows, shown), column_importance(rows), 80)
    assert {"accuracy", "data kept", "vs random"}.isdisjoint(left_out)
    lines = printed(table, 80)
    assert max(map(len, lines)) <= 80
    assert all(word in " ".join(lines) for word in long.split())


def test_the_longest_stages_stay() -> None:
    rows = comparison()
    importance = stage_importance(rows)
    table, left_out = fitted(lambda shown: stage_table(rows, shown), importance, 70)
    assert left_out == importance[-len(left_out) :]
    assert [str(column.header) for column in table.columns][1:] == [
        stage
        for stage in ("initialise", "dispatch", "pretrain", "merge", "score", "select", "train", "evaluate")
        if stage in importance and stage not in left_out
    ]


def test_the_terminal_shows_both_budgets_and_the_distance_to_random() -> None:
    lines = printed(comparison_table(comparison(), column_importance(comparison())), 180)
    (ours,) = (line for line in lines if "LiPT + CCS" in line)
    (rs2,) = (line for line in lines if "RS2" in line)
    assert "78.40 %  0.30  +1.97 ± 0.38" in ours
    cells = " ".join(rs2.split("epoch)")[1].split())
    assert cells == "84.83 % 0.25 – – 100 % 10 % 30 1,080 135,000 4 min 50 s – 154 MB – 2.6 PFLOP"


def test_a_sweep_shows_what_fits_its_gains_first_and_its_claims() -> None:
    swept = [
        Result(
            point={"select.algorithm": rule, "share [%]": share},
            rows=[row("stratified", [0.5, 0.5, 0.5], "random"), row("rs2", [0.6] * 3), row("lipt", ours, "selected")],
        )
        for rule, ours, share in [("ccs", [0.6, 0.61, 0.62], 0.1), ("grand", [0.5, 0.4, 0.6], 0.1)]
    ]
    found = table_texts(swept)
    table, left_out = fitted(lambda shown: sweep_table(found, shown), sweep_importance(found), 80)
    assert [" ".join(line.split()) for line in printed(table, 80)] == [
        "select.algorithm share [%] ours random n ours − random",
        "ccs 0.1 61.0 ± 1.0 50.0 ± 0.0 3 +11.0 ± 2.5",
        "grand 0.1 50.0 ± 10.0 50.0 ± 0.0 3 +0.0 ± 24.8",
    ]
    assert left_out == ["RS2", "steps", "images seen", "pre-training in epochs"]
    assert sweep_importance(found)[:3] == ["ours", *found.gains, "n"]


def test_the_claims_of_a_sweep_follow_it_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("stratified", [0.5, 0.51, 0.5], "random"), row("lipt", [0.6, 0.6, 0.6], "selected")]
    swept = [Result(point={"rule": "ccs"}, rows=rows)]
    claims = [Claim(claim="it beats random", better={"rule": "ccs"}, worse="stratified")]
    print_sweep(table_texts(swept), claim_rows(claims, swept), whole=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [LEGEND, "", "it beats random: yes (+9.7 ± 1.4, n 3)"]


def test_labels_are_not_markup() -> None:
    rows = [row("a", [0.5], "selected", label="[red]a[/red] [/nope]")]
    assert "[red]a[/red] [/nope]" in "".join(printed(comparison_table(rows, column_importance(rows)), 180))


def test_the_verdict_has_a_line_per_sentence() -> None:
    verdict = judge(comparison())
    assert verdict_text(verdict).plain.splitlines() == [verdict.headline, *(f"  {line}" for line in verdict.sentences)]


def test_the_sentences_of_several_runs_stand_below_the_name_of_each() -> None:
    ours = [
        row("lipt", [accuracy] * 3, "selected", label=f"LiPT [{name}]", reason="so it is")
        for name, accuracy in (("[red]a", 0.8), ("b", 0.9))
    ]
    verdict = judge([*ours, row("random", [0.7] * 3, "random")])
    lines = verdict_text(verdict).plain.splitlines()
    assert lines[0] == verdict.headline
    assert [line for line in lines[1:] if not line.startswith("    ")] == [
        "  [red]a",
        "  b",
        "  Why this algorithm: so it is.",
    ]
    assert [line for line in lines if line.startswith("    LiPT [b] beats")] == lines[lines.index("  b") + 1 :][:1]


def test_stages_stand_in_the_order_run_whatever_the_first_row_skipped() -> None:
    short = row("random", [0.5], "random", stage_wall_s={"select": 1.0, "train": 2.0})
    long = row("lipt", [0.5], "selected", stage_wall_s={"initialise": 3.0, "merge": 4.0, "select": 1.0, "train": 2.0})
    table = stage_table([short, long], ["initialise", "merge", "select", "train"])
    assert [str(column.header) for column in table.columns] == ["wall-clock", "initialise", "merge", "select", "train"]


def test_the_race_names_its_rounds_and_its_winner(capsys: pytest.CaptureFixture[str]) -> None:
    race = [
        RaceRow(label="Class-balanced random", accuracies=[0.41]),
        RaceRow(label="ccs (score: aum)", accuracies=[0.55, 0.6234], won=True),
    ]
    raced = document(race=race, race_rounds=[0.1, 0.3])
    assert race_importance(raced) == ["result", "30 % of the steps", "10 % of the steps"]
    print_report(raced, judge(raced.rows), whole=True)
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("race"))
    assert [" ".join(line.split()) for line in lines[start : start + 4]] == [
        "race of seed 0, validation accuracy 10 % of the steps 30 % of the steps result",
        "Class-balanced random 41.00 % – –",
        "ccs (score: aum) 55.00 % 62.34 % won",
        "",
    ]
    print_report(document(), judge(raced.rows), whole=True)
    assert "race" not in capsys.readouterr().out


def test_rounds_of_a_race_that_are_close_have_a_column_each(capsys: pytest.CaptureFixture[str]) -> None:
    race = [RaceRow(label="ccs", accuracies=[0.55, 0.6234], won=True)]
    raced = document(race=race, race_rounds=[0.1234, 0.12341])
    print_report(raced, judge(raced.rows), whole=True)
    assert re.search(
        r"12\.34 % of the steps +12\.341 % of the steps.*\nccs +55\.00 % +62\.34 %", capsys.readouterr().out
    )
    assert '>after 12.34 % of the steps</th><th scope="col">after 12.341 % of the steps<' in render(raced)


def test_the_race_tells_how_much_its_accuracies_may_be_off(capsys: pytest.CaptureFixture[str]) -> None:
    """Six of 144 images between two contestants prove nothing."""
    race = [
        RaceRow(label="ccs", accuracies=[0.5, 0.8611]),
        RaceRow(label="stratified", accuracies=[0.5, 0.9028], won=True),
        RaceRow(label="herding", accuracies=[0.5]),  # out: its larger error decides nothing
    ]
    raced = document(race=race, race_rounds=[0.1, 0.3], race_images=144)
    print_report(raced, judge(raced.rows), whole=True)
    said = "measured on 144 validation images, an accuracy of the last round has a 95 % error of up to ±5.73 points."
    assert said in capsys.readouterr().out
    assert said in render(raced)


def test_the_terminal_names_what_was_lost_and_why_as_the_page_does(capsys: pytest.CaptureFixture[str]) -> None:
    lost = "trajectory model 1 was lost: the training loss is nan after 12 steps"
    whole = document()
    fewer = document(provenance=whole.provenance.model_copy(update={"notes": [lost]}))
    print_report(fewer, judge(fewer.rows), whole=True)
    assert f"\n{lost}\n" in capsys.readouterr().out
    assert lost in render(fewer)


def test_the_command_line_at_80_columns_in_a_pipe_and_with_v(tmp_path: Path) -> None:
    settings = {"name": "tiny", "workspace": str(tmp_path)}
    config = tmp_path / "tiny.yaml"
    config.write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
    stored = tmp_path / f"{report_folder(parse_config(settings))}/report.json"
    stored.parent.mkdir(parents=True)
    stored.write_text(document().model_dump_json())
    narrow = on_terminal(80, "-m", "lipt", "report", str(config)).splitlines()
    last = narrow.pop()
    assert last.endswith("report.html")
    assert max(map(len, (line.rstrip() for line in narrow))) <= 80
    assert "…" not in "".join(narrow)
    (hint, _) = [line for line in narrow if line.startswith("-v shows ")]
    assert "steps" in hint
    verdict = "\n".join(line.rstrip() for line in narrow[narrow.index(hint) :])
    sentences = [line for line in verdict.splitlines() if line.startswith("  ") and not line.startswith("    ")]
    assert len(sentences) == len(judge(document().rows).common)
    assert all(line.lstrip()[0].isupper() for line in sentences)  # what goes on is indented further
    wide = on_terminal(80, "-m", "lipt", "report", str(config), "-v")
    piped = lipt("report", str(config)).stdout
    for text in (wide, piped):
        assert "-v shows" not in text
        assert all(column.heading in text for column in COLUMNS)


def test_the_report_ends_with_a_command_that_a_narrow_terminal_leaves_whole(tmp_path: Path) -> None:
    """It names the configuration and the options that were typed."""
    config, option = tmp_path / "tiny.yaml", "select.fraction=0.1"
    config.write_text(f"name: tiny\nworkspace: {tmp_path}\n")
    settings = {"name": "tiny", "workspace": str(tmp_path), "select": {"fraction": 0.1}}
    stored = tmp_path / f"{report_folder(parse_config(settings))}/report.json"
    stored.parent.mkdir(parents=True)
    rows = [row("selected", [0.8], "selected"), row("stratified", [0.7], "random")]
    stored.write_text(document(rows=rows).model_dump_json())
    lines = [
        line.rstrip() for line in on_terminal(80, "-m", "lipt", "report", str(config), "--set", option).splitlines()
    ]
    step = judge(rows).next_step
    assert step is not None
    command = step.commands({"tiny": Origin(str(config), [option])})[0].splitlines()
    assert lines[-len(command) - 4 : -2] == [step.sentence, "", *command]
    assert f"  --set {option} \\" in command
