"""A run that finds everything finished, and a dry run: quick, and what is there stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lipt.adapters.store.file import FileStore
from lipt.config import parse_config
from lipt.flow.address import report_folder
from lipt.flow.compare import run_comparison, run_with_baseline
from lipt.report.document import Document
from lipt.report.html_page import render
from lipt.runtime.context import Context
from tests.programs import run_python
from tests.tiny import TINY

#: Seconds to import, and needed only where something is trained, drawn or downloaded.
HEAVY = {"torchvision", "matplotlib", "jinja2", "minio", "kubernetes", "kfp", "torch._dynamo", "torch._inductor"}

RUNS = """
import sys
from lipt.cli import main
main(["run", sys.argv[1]])
main(["run", sys.argv[1], "--dry-run", "--set", "select.algorithm=ccs"])
print(*sys.modules)
"""


def test_it_imports_nothing_that_trains_or_draws_and_leaves_the_report(tmp_path: Path) -> None:
    settings = TINY | {"workspace": str(tmp_path / "runs"), "select": {"algorithm": "random"}, "train": {"epochs": 1}}
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(settings))
    ctx = Context.of(parse_config(settings))
    document = run_with_baseline(ctx)
    assert document is not None
    files = [tmp_path / "runs" / f"{report_folder(ctx.config)}/report.{kind}" for kind in ("html", "json")]
    before = [file.read_bytes() for file in files]
    *shown, modules = run_python("-c", RUNS, str(path)).splitlines()
    assert [file.read_bytes() for file in files] == before
    assert "by earlier runs, 0 s by this one" in " ".join(shown)
    assert not HEAVY & set(modules.split())
    assert "torch" in modules.split()  # of what is imported, all is listed


def test_a_report_that_is_gone_or_damaged_is_written_again(tmp_path: Path) -> None:
    changes = {"workspace": str(tmp_path), "select": {"algorithm": "random"}, "train": {"epochs": 1}}
    ctx = Context.of(parse_config(TINY | changes))
    run_with_baseline(ctx)
    html, document = (tmp_path / f"{report_folder(ctx.config)}/report.{kind}" for kind in ("html", "json"))
    html.unlink()
    run_with_baseline(Context.of(ctx.config))
    assert html.is_file()
    document.write_text("{")
    again = run_with_baseline(Context.of(ctx.config))
    assert again is not None
    assert all(row.earlier for row in again.ledger)
    assert document.read_text() == again.model_dump_json(indent=1)


def test_a_report_that_was_half_written_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"workspace": str(tmp_path), "select": {"algorithm": "random"}, "train": {"epochs": 1}}
    ctx, written, write = Context.of(parse_config(TINY | changes)), list[str](), FileStore._write
    run_with_baseline(ctx)
    for path in tmp_path.glob("evaluate/*/artifact.json"):
        path.unlink()

    def stops(self: FileStore, key: str, data: bytes) -> None:
        written.append(Path(key).stem)
        if written.count("report") == 2:
            raise KeyboardInterrupt
        write(self, key, data)

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "_write", stops)
        with pytest.raises(KeyboardInterrupt):
            run_with_baseline(Context.of(ctx.config))
    run_with_baseline(Context.of(ctx.config))
    html, document = (tmp_path / f"{report_folder(ctx.config)}/report.{kind}" for kind in ("html", "json"))
    assert html.read_text() == render(Document.from_json(document.read_bytes(), origin="the report"))


def test_a_repeated_comparison_leaves_its_report(tmp_path: Path) -> None:
    """Its rows are shown in another order than they run: `full` runs before `lipt`."""
    changes = {"select": {"algorithm": "random"}, "train": {"epochs": 1}}
    compare = {"seeds": [0], "variants": ["full", "lipt"]}
    ctx = Context.of(parse_config(TINY | changes | {"workspace": str(tmp_path), "compare": compare}))
    run_comparison(ctx)
    path = tmp_path / report_folder(ctx.config, comparison=True) / "report.json"
    before = path.read_bytes()
    again = run_comparison(Context.of(ctx.config))
    assert again is not None
    assert all(row.earlier for row in again.ledger)
    assert path.read_bytes() == before
