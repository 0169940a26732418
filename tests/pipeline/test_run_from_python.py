"""`lipt.run`: a whole run from Python gives what `lipt run` gives."""

from __future__ import annotations

import html
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

import lipt
from lipt.errors import UsageError
from lipt.runtime.workspace import Workspace
from tests.programs import lipt as command
from tests.tiny import TINY, digests


def test_a_run_from_python(tmp_path: Path) -> None:
    settings = TINY | {"workspace": str(tmp_path / "runs")}
    changes = {"select": {"fraction": 0.05}, "train": {"epochs": 1}}
    made = lipt.run(TINY, changes | {"workspace": tmp_path / "runs"})
    assert [row.role for row in made.report.rows] == ["selected", "random"]
    assert made.report.rows[0].kept_fraction == 0.05
    classes = made.report.classes
    assert classes is not None
    assert (classes.names, sum(classes.images)) == (list("0123456789"), made.report.rows[0].num_test_images)
    for row in made.report.rows:
        right = sum(n * each for n, each in zip(classes.images, classes.accuracy[row.name], strict=True) if each)
        assert right / row.num_test_images == pytest.approx(row.accuracy[0])
        assert row.worst_class == min(each for each in classes.accuracy[row.name] if each is not None)
    assert Path(made.page).read_text().lower().startswith("<!doctype html>")
    step = made.verdict.next_step  # none if both rows are at chance, which differs from processor to processor
    after = [step.sentence, *step.commands({})[0].splitlines()] if step else []
    assert str(made.verdict).splitlines() == [made.verdict.headline, *made.verdict.sentences, *after]
    assert repr(made) == f"Finished({made.verdict.headline} Report: {made.page})"
    table = made._repr_html_()
    for row in made.report.rows:
        assert f"<tr><th>{row.label}</th><td>{100 * row.accuracy[0]:.2f} % test accuracy</td></tr>" in table
    assert html.escape(made.verdict.headline) in table
    assert f"<td>{made.page}</td>" in table
    assert load_file(made.model)["classifier.weight"].shape[0] == 10
    assert made.subset.algorithm == "ccs"
    names = made.subset.files()
    assert len(set(names)) == len(made.subset) == round(0.05 * len(made.subset.labels_N))
    # From a file, as a process of its own: everything is there already.
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings | {"select": {"algorithm": "ccs", "fraction": 0.05}}))
    again = lipt.run(tmp_path / "run.yaml", {"train": {"epochs": 1}})
    assert again.subset == made.subset
    assert again.page == made.page
    sets = ["--set", "train.epochs=1", "-o", "json"]
    shown = json.loads(command("run", str(tmp_path / "run.yaml"), *sets).stdout)
    assert shown["report"] == made.page


def test_runs_in_threads_give_what_runs_one_after_the_other_give(tmp_path: Path) -> None:
    """A run seeds generators that all threads share."""

    def go(folder: Path, seed: int) -> None:
        lipt.run(TINY, {"workspace": folder, "seed": seed, "train": {"epochs": 1, "random_baseline": False}})

    before = torch.get_deterministic_debug_mode()
    for seed in (1, 2):
        go(tmp_path / "turns", seed)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(go, 2 * [tmp_path / "threads"], (1, 2)))
    turns, threads = (digests(Workspace(str(tmp_path / name))) for name in ("turns", "threads"))
    assert threads == turns
    assert torch.get_deterministic_debug_mode() == before


def test_wrong_settings_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'fraction'|fractoin"):
        lipt.run(TINY | {"workspace": str(tmp_path)}, {"select": {"fractoin": 0.1}})
    with pytest.raises(UsageError, match="cannot read"):
        lipt.run(tmp_path / "none.yaml")
    for settings, changes in ((TINY, {"select.fraction": 0.1}), (TINY | {"select.fraction": 0.1}, {})):
        with pytest.raises(UsageError, match=r"settings are nested: {'select': {'fraction': 0\.1}}"):
            lipt.run(settings, changes)
