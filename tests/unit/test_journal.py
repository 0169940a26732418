"""The records of the benchmarks: which trainings are done, and which files of scorers are of which scorer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.journal import Journal, common
from tests.tiny import tiny_context

RECORDS = Path(__file__).parents[2] / "benchmarks/results"
KEYS = ("seed", "model", "proxy", "steps")


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"name": "wrn28_10"}},
        {"model": {"width": 8}},
        {"data": {"image_size": 16}},
        {"initialise": {"lr": 0.2}},
        {"initialise": {"batch_size": 64}},
        {"score": {"proxy": {"width": 2}}},
    ],
    ids=str,
)
def test_two_scorers_have_two_files(changes: dict[str, Any], tmp_path: Path) -> None:
    journal = Journal(path=tmp_path / "results.jsonl", keys=KEYS)
    usual, other = (tiny_context(tmp_path, each).config for each in ({}, changes))
    assert journal.scorer(usual, "10-seed0") == journal.scorer(usual, "10-seed0")
    assert journal.scorer(usual, "10-seed0") != journal.scorer(other, "10-seed0")


def test_a_training_with_another_scorer_is_another_one(tmp_path: Path) -> None:
    """A line without the entry was written before there were proxies."""
    journal = Journal(path=tmp_path / "results.jsonl", keys=KEYS)
    usual, narrow = (
        common(tiny_context(tmp_path, {"score": {"proxy": proxy}}).config) | {"steps": 5}
        for proxy in (None, {"width": 2})
    )
    assert journal.missing([usual, narrow]) == [usual, narrow]
    old = {key: value for key, value in usual.items() if key != "proxy"}
    journal.path.write_text(json.dumps(old) + "\n")
    assert journal.missing([usual, narrow]) == [narrow]
    journal.measure(narrow, lambda: {"accuracy": 0.5})
    assert not journal.missing([usual, narrow])


def test_the_records_of_proxies_are_found_again(tmp_path: Path) -> None:
    """They were written before a proxy could have a name."""
    lines = (RECORDS / "frontier-10-percent.jsonl").read_text(encoding="utf-8").splitlines()
    proxy = next(each["proxy"] for each in map(json.loads, lines) if each["proxy"])
    assert common(tiny_context(tmp_path, {"score": {"proxy": proxy}}).config)["proxy"] == proxy
    other = {"score": {"proxy": proxy | {"name": "vit_small", "width": 16}}}
    assert common(tiny_context(tmp_path, other).config)["proxy"]["name"] == "vit_small"
