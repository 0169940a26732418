"""A class of which the budget keeps no image: a run and `lipt doctor` say so, by its name."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml
from PIL import Image

from lipt.cli import main
from lipt.config import parse_config
from lipt.flow.checks.facts import Facts
from lipt.progress import Reporter
from lipt.runtime.context import Context
from lipt.stages.ingest import ingest
from lipt.stages.select import select
from tests.tiny import TINY, tiny_context

#: Images of each class, before test and validation images are set aside.
SIZES = {"birch": 60, "oak": 60, "rare": 10}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "trees"
    for label, (name, count) in enumerate(SIZES.items()):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (8, 8), (label, number, 0)).save(folder / name / f"{number}.png")
    return folder


def context(trees: Path, workspace: Path, seed: int, reporter: Reporter) -> Context:
    changes = {"data": {"source": str(trees)}, "select": {"algorithm": "stratified", "fraction": 0.04}, "seed": seed}
    return Context.of(tiny_context(workspace, changes).config, reporter)


def test_a_run_names_the_class_once(trees: Path, tmp_path: Path) -> None:
    reporter = Reporter(stream := io.StringIO())
    for seed in (0, 1):
        ctx = context(trees, tmp_path, seed, reporter)
        artifact = select(ctx, ingest(ctx).make(), []).make()
        assert artifact.summary["kept_per_class"][2] == 0
    said = [line for line in stream.getvalue().splitlines() if "none of" in line]
    assert said == ["warning: 1 of 3 classes get none of the 4 samples: class rare; raise the budget to train on them"]


def test_doctor_names_the_class_and_a_share_that_keeps_one(
    trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    data, select_ = {"source": str(trees)}, {"algorithm": "stratified", "fraction": 0.04}
    changes = {"workspace": str(tmp_path / "runs"), "data": data, "select": select_, "dispatch": {"batch_size": 8}}
    path.write_text(yaml.safe_dump(TINY | changes))
    main(["doctor", str(path)])
    assert "4 % per epoch; warning: class rare gets no image at 4 %: select.fraction=0.15 keeps one" in (
        capsys.readouterr().out
    )
    main(["doctor", str(path), "--set", "select.fraction=0.15"])
    assert "warning" not in capsys.readouterr().out
    main(["doctor", str(path), "--set", "select.algorithm=random"])  # it draws from all classes together
    assert "warning" not in capsys.readouterr().out
    reporter = Reporter(io.StringIO())
    ctx = context(trees, tmp_path / "runs", 0, reporter)
    settings = ctx.config.select.model_copy(update={"fraction": 0.15})
    enough = Context.of(ctx.config.model_copy(update={"select": settings}), reporter)
    assert select(enough, ingest(enough).make(), []).make().summary["kept_per_class"][2] > 0


@pytest.mark.parametrize(("fraction", "lost"), [(0.01, ["oak", "rare"]), (0.02, ["rare"]), (0.12, [])])
def test_all_classes_without_an_image_are_found(fraction: float, lost: list[str]) -> None:
    config = parse_config(TINY | {"select": {"algorithm": "stratified", "fraction": fraction}})
    facts = Facts(train=130, classes=3, size=(8, 8), per_class=SIZES)
    assert facts.classes_without_images(config) == (lost, 0.12)  # 9 of the 10 rare ones are candidates
