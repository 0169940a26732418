"""Inputs of a stage that do not belong together: each ends with one message, and no artifact is made."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from lipt.cli import cli
from lipt.errors import UsageError
from lipt.flow.dag import run
from lipt.flow.outcome import Outcome
from lipt.stages.initialise import initialise
from lipt.stages.score import score
from lipt.stages.select import select
from tests.tiny import TINY, tiny_context

SMALL = {"score": {"block_images": 500}, "train": {"epochs": 1}}  # 1,294 candidates: three blocks


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("finished")
    return folder, run(tiny_context(folder / "ws", SMALL))


@pytest.fixture(scope="module")
def refs(finished: tuple[Path, Outcome]) -> dict[str, str]:
    """The references of its artifacts, and of another theta_*."""
    folder, outcome = finished
    assert outcome.merged is not None
    assert outcome.prepared.shards is not None
    ctx, dataset = tiny_context(folder / "ws", SMALL), outcome.prepared.dataset
    return {
        "ingest": dataset.ref,
        "theta": outcome.prepared.initial[0].ref,
        "other": initialise(ctx, dataset, index=1).make().ref,
        "shards": outcome.prepared.shards.ref,
        "jigsaw": outcome.jigsaws[0].ref,
        "merged": outcome.merged.ref,
        "subset": outcome.subset.ref,
    } | {f"block{index}": score(ctx, dataset, [outcome.merged], index=index).make().ref for index in range(3)}


def refused(finished: tuple[Path, Outcome], arguments: str, refs: dict[str, str]) -> str:
    folder, _ = finished
    config = folder / "tiny.yaml"
    config.write_text(yaml.safe_dump(TINY | SMALL | {"workspace": str(folder / "ws")}), encoding="utf-8")
    name, *rest = arguments.format(**refs).split()
    error = CliRunner().invoke(cli, ["stage", name, str(config), *rest]).exception
    assert isinstance(error, UsageError), error
    return f"{error.message} -> {error.remedy}"


SELECT = "select --in dataset={ingest}"
MERGE = "merge --in dataset={ingest} --in shards={shards} --in jigsaws={jigsaw}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("initialise --in dataset={shards}", "dataset is made by ingest, not by dispatch -> pass ingest/KEY"),
        ("train --in dataset={ingest} --in subset={merged}", "subset is made by select, not by merge"),
        (f"{MERGE} --in theta={{other}}", "{jigsaw} is stored relative to {theta}, not to {other} -> pass {theta}"),
        ("score --in dataset={ingest} --in models={jigsaw}", "{jigsaw} is stored relative to {theta} -> pass {theta}"),
        ("score --in dataset={ingest} --in models={merged} --index 3", "score block 3: there are 3, numbered from 0"),
        ("race --in dataset={ingest} --in subset={subset}", "the configuration has no race -> set select.race"),
        (
            "pretrain --in dataset={ingest} --in theta={theta} --in shards={shards} --index 3",
            "jigsaw 3: there are 3, numbered from 0 -> choose an index below 3",
        ),
        (f"{SELECT} --in scores={{block0}} --in scores={{block2}}", "no block of scores begins at image 500"),
        (
            f"{SELECT} --in scores={{block0}} --in scores={{block0}} --in scores={{block2}}",
            "no block of scores begins at image 500 -> pass every block of `score` once",
        ),
        (f"{SELECT} --in scores={{block0}}", "the scores are those of other images than the 1,294 candidates"),
        (
            f"{SELECT} --in scores={{block0}} --in scores={{block1}} --in scores={{block2}} --set seed=1",
            "the scores are those of other images than the 1,294 candidates",
        ),
    ],
)
def test_inputs_that_do_not_belong_together(
    finished: tuple[Path, Outcome], refs: dict[str, str], arguments: str, message: str
) -> None:
    assert message.format(**refs) in refused(finished, arguments, refs)


def test_the_order_of_the_blocks_does_not_matter(finished: tuple[Path, Outcome], refs: dict[str, str]) -> None:
    folder, outcome = finished
    ctx = tiny_context(folder / "ws", SMALL)
    found = [ctx.workspace.get(refs[f"block{index}"]) for index in (2, 0, 1)]
    assert select(ctx, outcome.prepared.dataset, found).make() == outcome.subset
