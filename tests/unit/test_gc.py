"""`lipt gc` in a workspace where no run has finished."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lipt.cli import main


@pytest.mark.parametrize("damaged", [False, True])
def test_half_written_files_are_removed_where_it_is_unknown_which_artifacts_are_needed(
    damaged: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They may be what fills the disk, so that no run can finish."""
    report, left, kept = (
        tmp_path / name for name in ("reports/x-1/report.json", ".lipt-tmp-0", "train/0/artifact.json")
    )
    for path in (report, kept) if damaged else (kept,):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    main(["gc", str(tmp_path), "--yes"])
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "removed 0 artifacts, 0 B, and 1 half-written file, 4 B"
    assert err.startswith("lipt: artifacts stay: ")
    assert (left.exists(), kept.exists()) == (False, True)
    with pytest.raises(SystemExit) as end:
        main(["gc", str(tmp_path), "--yes"])  # now there is nothing that it could do
    assert end.value.code == 1
