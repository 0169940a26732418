"""The example in CONTRIBUTING.md: a stage is a file, a row of the table and a call."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

import lipt
from tests.tiny import TINY

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package in which the page's three steps are done; returns the folder that holds it."""
    section = PAGE[PAGE.index("## Add a stage") :]
    file, row, call = (
        dedent(code)
        for code in re.findall(r"^ {3}```(?:python|text)\n(.*?)^ {3}```", section, re.DOTALL | re.MULTILINE)
    )
    copy = tmp_path / "src" / "lipt"
    shutil.copytree(Path(lipt.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "stages" / "audit.py").write_text(file)
    edit(copy / "pipeline.py", '    StageRow("race"', f'    {row}    StageRow("race"')
    edit(
        copy / "flow/dag.py",
        "from lipt.stages.dispatch",
        "from lipt.stages.audit import audit\nfrom lipt.stages.dispatch",
    )
    edit(
        copy / "flow/dag.py",
        "    return Race.of(ctx, prepared.dataset, scores, *scoring.start).run(race_elsewhere)\n",
        "    subset = Race.of(ctx, prepared.dataset, scores, *scoring.start).run(race_elsewhere)\n"
        f"    {call}    return subset\n",
    )
    return copy.parent


def edit(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))


def test_the_example_is_a_stage(package: Path, tmp_path: Path) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "runs")}))

    def lipt_(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "import sys; from lipt.cli import main; main(sys.argv[1:])", *arguments]
        environment = os.environ | {"PYTHONPATH": str(package)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    shown = lipt_("run", str(config), "--set", "select.algorithm=stratified", "--set", "train.epochs=1").stderr
    assert re.search(r"^audit +\S+ s +fewest 12 +most 13$", shown, re.MULTILINE), shown
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs" / "audit").rglob("artifact.json")]
    assert sorted(sum(record["summary"]["per_class"]) for record in records) == [129, 1294]  # the choice, all for RS2
    refs = [f"subset={record['inputs'][0]}" for record in records]
    assert all("up to date" in lipt_("stage", "audit", str(config), "--in", ref).stderr for ref in refs)
