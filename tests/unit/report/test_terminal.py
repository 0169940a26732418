"""Tables on terminals of different widths, and in a pipe."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from report_samples import comparison, document
from rich.console import Console

from lipt.config import parse_config
from lipt.flow.report import report_key
from lipt.report.table import COLUMNS, comparison_groups
from lipt.report.terminal import fitted
from lipt.report.text import column_importance, comparison_table, stage_importance, stage_table
from tests.programs import lipt, on_terminal


def printed(table: object, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 100, 140, 250])
def test_every_figure_that_is_shown_is_whole(width: int) -> None:
    rows = comparison()
    table, left_out = fitted(lambda shown: comparison_table(rows, shown), column_importance(), width)
    lines = printed(table, width)
    assert all(len(line) <= width for line in lines)
    assert "…" not in "".join(lines)
    kept = [index for index, column in enumerate(COLUMNS) if column.heading not in left_out]
    assert {"accuracy", "vs random"} <= {COLUMNS[index].heading for index in kept}
    for line in (line for group in comparison_groups(rows) for line in group):
        (shown,) = [text for text in lines if text.startswith(line.label)]
        cells = " ".join(line.cells[index].text for index in kept)
        assert " ".join(shown.removeprefix(line.label).split()) == " ".join(cells.split())
    assert bool(left_out) == (width < 200)


def test_without_a_width_nothing_is_left_out() -> None:
    rows = comparison()
    assert fitted(lambda shown: comparison_table(rows, shown), column_importance(), None)[1] == []
    assert sorted(column_importance()) == sorted(column.heading for column in COLUMNS)


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


def test_the_command_line_at_80_columns_in_a_pipe_and_with_v(tmp_path: Path) -> None:
    settings = {"name": "tiny", "workspace": str(tmp_path)}
    config = tmp_path / "tiny.yaml"
    config.write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
    stored = tmp_path / report_key(parse_config(settings), "json")
    stored.parent.mkdir(parents=True)
    stored.write_text(document().model_dump_json())
    narrow = on_terminal(80, "-m", "lipt", "report", str(config)).splitlines()
    last = narrow.pop()
    assert last.endswith("report.html")
    assert max(map(len, (line.rstrip() for line in narrow))) <= 80
    assert "…" not in "".join(narrow)
    (hint, _) = [line for line in narrow if line.startswith("-v shows ")]
    assert "epochs" in hint
    wide = on_terminal(80, "-m", "lipt", "report", str(config), "-v")
    piped = lipt("report", str(config)).stdout
    for text in (wide, piped):
        assert "-v shows" not in text
        assert all(column.heading in text for column in COLUMNS)
