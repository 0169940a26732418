"""`lipt ingest` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lipt.cli as lipt_cli
from lipt.adapters.store import open_store
from lipt.adapters.store.file import FileStore
from lipt.config import parse_config
from lipt.errors import RunError
from lipt.pods.boxes import ingest_box
from lipt.runtime.chunk_store import write_chunks
from tests.tiny import write_store


def by_command(place: str) -> None:
    lipt_cli.main(["ingest", "digits", place])


def by_pipeline(place: str) -> None:
    ingest_box(parse_config({"data": {"source": "digits"}}), place)


@pytest.mark.parametrize("ingest", [by_command, by_pipeline])
def test_of_two_ingests_into_one_place_one_waits(
    ingest: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = []

    def write(*given: Any) -> Any:
        claims.append(sorted(path.name.split("-")[0] for path in (tmp_path / "store").iterdir()))
        return write_chunks(*given)

    monkeypatch.setattr("lipt.runtime.chunk_store.write_chunks", write)
    ingest(str(tmp_path / "store"))
    assert claims == [["lease"]]
    assert not list((tmp_path / "store").glob("lease*"))


def test_the_traffic_of_an_ingest_is_that_of_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The claim and its beats, of which a slow machine writes more, do not count."""
    lipt_cli.main(["ingest", "digits", str(tmp_path / "store"), "-o", "json"])
    told = json.loads(capsys.readouterr().out)["traffic"]
    alone = open_store(str(tmp_path / "alone"))
    write_store(parse_config({"data": {"source": "digits"}}).data, alone)
    assert told == alone.traffic.as_dict()


def test_a_finished_ingest_repeats_where_nothing_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_store: FileStore, key: str, *_: Any, **__: Any) -> None:
        raise RunError(f"{key}: Read-only file system", "choose another place")

    lipt_cli.main(["ingest", "digits", str(tmp_path / "store")])
    monkeypatch.setattr(FileStore, "write", refuse)
    lipt_cli.main(["ingest", "digits", str(tmp_path / "store")])
    with pytest.raises(SystemExit):
        lipt_cli.main(["ingest", "digits", str(tmp_path / "empty")])
    assert "Read-only file system" in capsys.readouterr().err
