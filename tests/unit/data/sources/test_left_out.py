"""What a source leaves out is told to whoever ingests it."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pytest

from lipt.cli import main
from lipt.config import parse_config
from lipt.errors import RunError
from lipt.progress import Reporter
from lipt.runtime.context import Context
from lipt.stages.ingest import ingest
from tests.unit.data.sources.files import image, tree

FILES = {f"{name}/{i}.png": image(i) for name in ("cat", "dog") for i in range(4)} | {"cat/a.txt": b"", "dog/b": b""}
LEFT_OUT = {".txt files": 1, "files without a suffix": 1}
TOLD = "ingest              left out: 1 .txt file, 1 file without a suffix\n"


def test_lipt_ingest_says_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["ingest", str(tree(tmp_path / "pets", FILES)), str(tmp_path / "store")])
    told = capsys.readouterr()
    assert told.err == f"{TOLD}pets: 6 train, 2 test images of 2 classes, 0.0 MB\n"
    assert told.out == f"file://{tmp_path}/store\n"
    main(["ingest", str(tmp_path / "pets"), str(tmp_path / "again"), "-o", "json"])
    assert json.loads(capsys.readouterr().out)["left_out"] == LEFT_OUT


def test_the_ingest_stage_says_and_keeps_what_it_leaves_out(tmp_path: Path) -> None:
    source, said = tree(tmp_path / "pets", FILES), StringIO()
    config = parse_config({"data": {"source": str(source)}, "workspace": str(tmp_path / "work")})
    artifact = ingest(Context.of(config, Reporter(said))).make()
    assert artifact.summary["left_out"] == LEFT_OUT
    assert said.getvalue().startswith(TOLD)


def test_lipt_ingest_names_every_unreadable_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree(tmp_path / "pets", FILES | {f"cat/broken-{i}.png": b"" for i in range(12)})
    with pytest.raises(SystemExit):
        main(["ingest", str(tmp_path / "pets"), str(tmp_path / "store")])
    _, *lines = capsys.readouterr().err.splitlines()
    named = [line for line in lines if line.startswith(str(tmp_path)) and " is not a readable image: " in line]
    assert sorted(line.partition(" ")[0] for line in named) == sorted(
        f"{tmp_path}/pets/cat/broken-{i}.png" for i in range(12)
    )
    assert any("12 images cannot be ingested" in line for line in lines)


def test_the_ingest_stage_names_every_unreadable_image_even_if_the_first_one_is(tmp_path: Path) -> None:
    broken = {f"{name}.png": b"" for name in ("cat/0", "cat/2", "dog/1")}
    source = tree(tmp_path / "pets", FILES | broken)
    config = parse_config({"data": {"source": str(source), "image_size": 4}, "workspace": str(tmp_path / "work")})
    with pytest.raises(RunError, match="3 images cannot be ingested:") as caught:
        ingest(Context.of(config, Reporter(StringIO()))).make()
    assert all(f"{source / name} is not a readable image" in caught.value.message for name in broken)


def test_a_suffix_that_cannot_be_printed_is_spelled_out(tmp_path: Path) -> None:
    """The artifact of an ingestion is UTF-8, and a terminal obeys escape sequences."""
    source, said = tree(tmp_path / "pets", FILES), StringIO()
    for name in (b"x.\xff", b"y.\x1b[1m"):
        Path(os.fsdecode(os.fsencode(source / "cat") + b"/" + name)).touch()
    config = parse_config({"data": {"source": str(source)}, "workspace": str(tmp_path / "work")})
    left_out = ingest(Context.of(config, Reporter(said))).make().summary["left_out"]
    assert left_out == LEFT_OUT | {r".\udcff files": 1, r".\x1b[1m files": 1}
    assert "\x1b" not in said.getvalue()
