"""`~` in a configuration: a shell does not expand it there."""

from __future__ import annotations

from pathlib import Path

import pytest

from lipt.config import parse_config
from lipt.runtime.context import Context


@pytest.mark.parametrize("before", ["", "wds:", "cifar10:"])
def test_a_place_may_lie_in_the_home_folder(before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = parse_config({"workspace": "~/runs", "data": {"source": f"{before}~/data"}})
    assert Context.of(config).workspace.store.uri == f"file://{tmp_path}/runs"
    assert config.data.source == f"{before}{tmp_path}/data"


@pytest.mark.parametrize("place", ["digits", "a~b", "s3://bucket/~x", "wds:a/~/*.tar", "./~"])
def test_another_place_stays_as_it_is_written(place: str) -> None:
    assert parse_config({"workspace": place}).workspace == place
