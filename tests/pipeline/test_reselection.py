"""`train.reselect_every` in the report: it selects from all candidates again, so all of them are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lipt.flow.compare import run_with_baseline
from lipt.runtime.algorithm import contestants
from lipt.stages.ingest import ingest
from lipt.stages.race import race
from lipt.stages.select import select
from tests.tiny import tiny_context


def test_the_report_says_that_all_data_are_kept_and_compares_with_fresh_draws(tmp_path: Path) -> None:
    changes = {"select": {"algorithm": "el2n"}, "train": {"epochs": 4, "reselect_every": 2, "batch_size": 32}}
    document = run_with_baseline(tiny_context(tmp_path, changes))
    assert document is not None
    ours, fresh = document.rows
    assert (ours.kept_fraction, ours.epoch_fraction) == (1.0, 0.1)
    assert (fresh.name, fresh.kept_fraction, fresh.epoch_fraction) == ("rs2", 1.0, 0.1)
    read = {row.ref: row.data_read for row in document.ledger if row.stage == "train"}
    assert min(read.values()) > 1294 * 2048  # both read all images
    assert "After every 2 epochs it chose again among all candidates" in document.done["Training"]


def test_a_race_compares_the_subsets_that_were_selected(tmp_path: Path) -> None:
    """Its trainings do not select again, even if the main training will."""
    raced = {"algorithm": "random", "race": {"rounds": [0.5]}}
    found = []
    for every in (0, 2):
        ctx = tiny_context(tmp_path, {"select": raced, "train": {"epochs": 6, "reselect_every": every}})
        dataset = ingest(ctx).make()
        own = replace(ctx, config=contestants(ctx.config)[1])
        training = race(ctx, dataset, select(own, dataset, ()).make(), index=1).make()
        found.append(training.summary)
    assert found[0] == found[1]
    assert found[0]["steps"] == 15
