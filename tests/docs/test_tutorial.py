"""The output in the tutorial has the labels and the shape of what a run prints. Its numbers depend on the machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lipt.cli import main
from lipt.report.document import Document
from lipt.report.verdict import judge
from tests.docs.pages import ROOT, blocks

PAGE = "docs/start/tutorial.md"
SMALL = ["model.width=4", "dispatch.jigsaws=2", "train.epochs=1", "device=cpu"]


def shape(line: str) -> str:
    """A line without its numbers."""
    return " ".join(re.sub(r"[-−+]?\d[\d,.]*", "N", line).split())


def test_the_output_in_the_tutorial_is_that_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stages, verdict = (block.code for block in blocks("text") if block.page == PAGE)
    main(["run", str(ROOT / "examples/01-quickstart.yaml"), *(w for change in SMALL for w in ("--set", change))])
    printed = [shape(line) for line in capsys.readouterr().err.splitlines()]
    first = "pretrain[N]"
    assert len([line for line in printed if line.startswith(first)]) == 2
    printed = [line for at, line in enumerate(printed) if not (line.startswith(first) and printed[at - 1] == line)]
    shown = [shape(line) for line in stages.splitlines() if line != "…"]
    assert len(printed) == len(shown)
    for there, here in zip(shown, printed, strict=True):
        assert there == here or (there.endswith(" …") and here.startswith(there[:-2]))

    (report,) = tmp_path.glob("runs/reports/*/report.json")
    rows = Document.from_json(report.read_bytes(), origin=str(report)).rows  # of so short a training at chance
    learned = [row.model_copy(update={"accuracy": [0.8 + 0.05 * at]}) for at, row in enumerate(rows)]
    assert shape(judge(learned).headline) == shape(verdict)
