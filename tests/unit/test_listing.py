"""`lipt ls`: what tells runs of one name apart, and the sweeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lipt.cli import main
from lipt.report.document import Provenance
from tests.programs import on_terminal
from tests.unit.report.report_samples import document

SETTINGS = {
    "digits-1": {"train": {"epochs": 10}, "select": {"algorithm": "ccs"}},
    "digits-2": {"train": {"epochs": 20}, "select": {"algorithm": "ccs"}},
    "digits-3": {"train": {"epochs": 10}, "select": {"algorithm": "facility_location"}},
    "other-1": {"train": {"epochs": 30}, "select": {"algorithm": "grand"}},
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Three runs of one name, one of another, and a sweep of two points."""
    for number, (run, settings) in enumerate(SETTINGS.items()):
        made = document(
            title=run.partition("-")[0],
            run_id=run,
            created=f"2026-11-0{number + 1}T12:00:00+00:00",
            ledger=[],
            provenance=Provenance(config_yaml=yaml.safe_dump(settings)),
        )
        folder = tmp_path / "reports" / run
        folder.mkdir(parents=True)
        (folder / "report.json").write_text(made.model_dump_json())
    (tmp_path / "sweeps").mkdir()
    for point in ("grid-of-two-1a2b3c4d", "grid-of-two-5e6f7a8b"):
        (tmp_path / f"sweeps/{point}.json").write_text(json.dumps(["ingest/0", f"evaluate/{point[-1]}"]))
    return tmp_path


def test_runs_of_one_name_show_the_settings_that_most_others_lack(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["ls", str(workspace)])
    lines = capsys.readouterr().out.splitlines()
    told = {lines[place - 1].split()[0]: line.strip() for place, line in enumerate(lines) if line.startswith("  ")}
    assert told == {"digits-2": "train.epochs=20", "digits-3": "select.algorithm=facility_location"}
    main(["ls", str(workspace), "-o", "json"])
    listed = json.loads(capsys.readouterr().out)
    assert {run["run"]: run["differs"] for run in listed if run["differs"]} == {
        "digits-2": {"train.epochs": "20"},
        "digits-3": {"select.algorithm": "facility_location"},
    }


def test_a_sweep_is_listed_with_its_points(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["ls", str(workspace), "-o", "json"])
    (sweep,) = (run for run in json.loads(capsys.readouterr().out) if run["points"])
    # its artifacts are lost, so it has no date
    assert sweep == {
        "run": "grid-of-two",
        "points": 2,
        "created": "",
        "stages": 3,
        "accuracy": None,
        "num_bytes": 0,
        "differs": {},
    }
    main(["ls", str(workspace)])
    assert "grid-of-two (sweeps, 2 finished points)" in capsys.readouterr().out


def test_a_damaged_list_of_a_sweep_is_named_and_the_runs_are_listed(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    next((workspace / "sweeps").iterdir()).write_text("{")
    main(["ls", str(workspace)])
    out, err = capsys.readouterr()
    assert "digits-1" in out
    assert "not listed: " in err


def test_a_narrow_terminal_shortens_the_settings(workspace: Path) -> None:
    lines = on_terminal(30, "-m", "lipt", "ls", str(workspace)).splitlines()
    (line,) = (line.rstrip() for line in lines if "select.algorithm" in line)
    assert line == "  select.algorithm=facility_l…"
