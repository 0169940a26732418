"""`lipt run` as a whole: the files it leaves and the stages it skips."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lipt.config import override
from lipt.data.chunks import Dataset
from lipt.errors import IntegrityError, RunError, UsageError
from lipt.flow.address import report_folder
from lipt.flow.compare import run_with_baseline
from lipt.flow.dag import has_swarm, merge_jigsaws, prepare, run
from lipt.flow.outcome import Outcome
from lipt.flow.variants import baseline_of
from lipt.ledger import Cost
from lipt.report.costs import spent
from lipt.report.document import Document
from lipt.report.verdict import judge
from lipt.runtime.algorithm import algorithm_of
from lipt.stages.merge import merge
from lipt.stages.pretrain import pretrain
from tests.tiny import TINY, file_digest, tiny_context


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Document]:
    """A finished run with its random baseline."""
    folder = tmp_path_factory.mktemp("finished")
    document = run_with_baseline(tiny_context(folder))
    assert document is not None
    return folder, document


def test_the_report_shows_selection_and_random_at_the_same_budgets(finished: tuple[Path, Document]) -> None:
    folder, document = finished
    assert [row.role for row in document.rows] == ["selected", "random"]
    selected, random = document.rows
    assert (selected.kept_fraction, selected.epoch_fraction, selected.epochs) == (
        random.kept_fraction,
        random.epoch_fraction,
        random.epochs,
    )
    assert all(0 < row.accuracy[0] <= 1 for row in document.rows)  # how much depends on the type of processor
    html = (folder / f"{report_folder(tiny_context(folder).config)}/report.html").read_text()
    assert html.lower().startswith("<!doctype html>")
    assert "http://" not in html.replace("http://www.w3.org", "")
    assert document.merge is not None
    assert len(document.merge.steps) == 3
    assert document.subset is not None
    assert document.subset.score_name == "EL2N"  # which ccs covers


def test_the_ledger_counts_every_stage(finished: tuple[Path, Document]) -> None:
    _, document = finished
    rows = {(row.stage, row.worker): row for row in document.ledger}
    workers = [rows["pretrain", index] for index in range(3)]
    assert all(worker.flops > 0 and worker.wall_s > 0 and worker.peak_bytes > 0 for worker in workers)
    theta_bytes = rows["initialise", None].model_written
    assert [worker.model_read for worker in workers] == [theta_bytes, 0, 0]  # one process fetches theta_* once
    assert all(0 < worker.model_written < theta_bytes / 2 for worker in workers)
    assert rows["merge", None].model_read == sum(worker.model_written for worker in workers)
    assert rows["merge", None].data_written == 0


def test_a_worker_reads_its_own_samples_and_nothing_else(finished: tuple[Path, Document]) -> None:
    """32 digits in one contiguous window: as many bytes as their tar members take, one range request (or two)."""
    folder, document = finished
    ctx = tiny_context(folder)
    prepared = prepare(ctx)
    assert prepared.shards is not None
    plan = json.loads(ctx.workspace.store.read(f"{prepared.shards.ref}/shard-00001.json", kind="other"))
    own = sum(plan["sizes"])
    (worker,) = [row for row in document.ledger if row.stage == "pretrain" and row.worker == 1]
    assert worker.data_read == own
    assert len(plan["ranges"]) <= 2


def test_a_second_run_does_nothing(finished: tuple[Path, Document]) -> None:
    folder, _ = finished
    before = {
        path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and "reports" not in path.parts
    }
    ctx = tiny_context(folder)
    run(ctx)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert ctx.workspace.reused


def test_a_second_run_shows_what_the_first_one_cost(finished: tuple[Path, Document], tmp_path: Path) -> None:
    """And its pre-training in epochs does not depend on how fast the machine was."""
    folder, first = finished
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    slow = next((copied / "initialise").glob("*/cost.json"))
    cost = json.loads(slow.read_text())
    slow.write_text(json.dumps(cost | {"wall_s": 100 + cost["wall_s"]}))
    for trained in (copied / "train").glob("*/cost.json"):
        trained.write_text(json.dumps(json.loads(trained.read_text()) | {"machine": "Abacus, 2 CPU threads"}))
    again = run_with_baseline(tiny_context(copied))
    assert again is not None
    assert again.done["Machine"] == "The main training ran on: Abacus, 2 CPU threads."  # not: the report was written on
    assert re.fullmatch(r"The main training ran on: .*\d+ CPU threads?\.", first.done["Machine"])
    assert all(row.earlier for row in again.ledger)
    assert not any(row.earlier for row in first.ledger)
    this_run, earlier = spent(again.ledger)
    before = spent(first.ledger)[0]
    assert this_run == Cost()
    assert earlier.wall_s == pytest.approx(before.wall_s + 100)
    assert (earlier.flops, earlier.read, earlier.requests) == (before.flops, before.read, before.requests)
    assert [row.pretrain_cost for row in again.rows] == [row.pretrain_cost for row in first.rows]


def test_pretraining_is_counted_in_epochs_of_flops(finished: tuple[Path, Document]) -> None:
    """One epoch of theta_*, two passes of three workers over 32 images, and the forward passes of the merge."""
    _, document = finished
    flops = {stage: sum(row.flops for row in document.ledger if row.stage == stage) for stage in ("pretrain", "merge")}
    an_epoch = flops["pretrain"] / (3 * 2 * 32) * 1294
    lipt, random = document.rows
    assert lipt.pretrain_cost == pytest.approx(1 + (flops["pretrain"] + flops["merge"]) / an_epoch, rel=1e-12)
    assert 1.1 < lipt.pretrain_cost < 3  # type: ignore[operator]
    assert random.pretrain_cost == 0


def test_another_seed_changes_everything_but_the_data(finished: tuple[Path, Document]) -> None:
    folder, _ = finished
    first, second = run(tiny_context(folder)), run(tiny_context(folder, {"seed": 1}))
    assert first.prepared.dataset.ref == second.prepared.dataset.ref
    mine = {artifact.ref for artifact in first.artifacts()}
    assert not mine & {artifact.ref for artifact in second.artifacts()}
    assert file_digest(first.subset, "subset.parquet") != file_digest(second.subset, "subset.parquet")


def test_merge_tolerates_missing_jigsaws_up_to_the_quorum(finished: tuple[Path, Document]) -> None:
    folder, _ = finished
    ctx = tiny_context(folder)
    prepared = prepare(ctx)
    jigsaws = [pretrain(ctx, *prepared.swarm, index=index).make() for index in range(3)]
    merged = merge_jigsaws(ctx, prepared, [jigsaws[2], jigsaws[0]])
    assert merged.summary["missing"] == [1]
    assert merge_jigsaws(ctx, prepared, [jigsaws[0], jigsaws[2]]).ref == merged.ref
    with pytest.raises(RunError, match=r"1 of 3 jigsaws arrived, the quorum is 2; missing: 0, 1"):
        merge_jigsaws(ctx, prepared, jigsaws[2:])


def test_if_all_jigsaws_diverge_the_error_says_what_to_change(tmp_path: Path) -> None:
    """To run again, or a lower quorum, would not help."""
    ctx = tiny_context(tmp_path, {"pretrain": {"lr": 1000, "passes": 50}})
    with pytest.raises(RunError, match=r"0 of 3 jigsaws arrived, .* \(jigsaw 0: the training loss is ") as caught:
        run(ctx)
    assert caught.value.remedy == "for the lost ones: lower pretrain.lr"


def test_a_damaged_artifact_is_named_and_not_used(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path)
    prepared = prepare(ctx)
    weights = next((tmp_path / prepared.initial[0].ref).glob("weights*"))
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match=r"weights.safetensors is damaged") as caught:
        pretrain(ctx, *prepared.swarm, index=0).make()
    assert "run again" in caught.value.remedy


def test_too_few_images_for_the_swarm_fails_before_training(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, {"dispatch": {"jigsaws": 100, "batches": 4}})
    with pytest.raises(UsageError, match=r"need 12,800 candidates, the data set has 1,294"):
        run(ctx)
    assert not (tmp_path / "initialise").exists()


def test_the_stored_subset_is_a_table_anyone_can_read(finished: tuple[Path, Document]) -> None:
    folder, document = finished
    outcome: Outcome = run(tiny_context(folder))
    table = pq.read_table(folder / outcome.subset.ref / "subset.parquet")
    kept = [row for row in table.to_pylist() if row["rank"] is not None]
    assert len(table) == 1294
    assert len(kept) == outcome.subset.summary["count"] == document.subset.count  # type: ignore[union-attr]
    assert sorted(row["rank"] for row in kept) == list(range(len(kept)))
    data = Dataset(
        lambda file, start, length: (folder / outcome.prepared.dataset.summary["location"] / file).read_bytes()
    )
    assert all(data.index("train").label[row["position"]] == row["label"] for row in kept)
    provenance = json.loads(table.schema.metadata[b"lipt"])
    assert provenance["dataset"] == data.manifest.digest
    assert provenance["fraction"] == TINY["select"]["fraction"]


def test_auto_pays_for_no_model_where_none_pays(tmp_path: Path) -> None:
    changes = {"select": {"algorithm": "auto", "fraction": 0.1}}
    document = run_with_baseline(tiny_context(tmp_path, changes))
    assert document is not None
    row, fresh = document.rows
    assert row.label == "auto (class-balanced random)"
    # Beside it not one more random subset: what a random draw can do that is not fixed, at the same training.
    assert (fresh.name, fresh.kept_fraction, fresh.epoch_fraction, fresh.epochs) == ("rs2", 1, 0.1, row.epochs)
    assert fresh.flops == pytest.approx(row.flops, rel=0.02)
    assert {entry.stage for entry in document.ledger} == {"ingest", "select", "train", "evaluate"}
    verdict = judge(document.rows)
    assert verdict.headline.startswith("auto (class-balanced random) is a random subset (10 %")
    assert verdict.sentences[0].startswith(
        "Why this algorithm: auto takes a random subset, because above 5 % of the data"
    )
    text = " ".join(verdict.sentences)
    assert "RS2 keeps 100 % of the data" in text
    assert "fresh draws with" not in text  # that row is there
    assert "Fewer than 3 seeds are not enough" in text
    plain = run_with_baseline(tiny_context(tmp_path, {"select": {"algorithm": "stratified", "fraction": 0.1}}))
    assert plain is not None
    assert plain.rows[0].accuracy == row.accuracy
    small = tiny_context(tmp_path, {"select": {"algorithm": "auto", "fraction": 0.05}})
    assert has_swarm(small.config)


@pytest.mark.parametrize(
    ("select", "train", "name", "kept", "per_epoch"),
    [
        ({"algorithm": "ccs"}, {}, "stratified", 0.1, None),
        ({"algorithm": "ccs", "balanced": False}, {}, "random", 0.1, None),
        ({"algorithm": "auto"}, {}, "rs2", 1.0, 0.1),
        ({"algorithm": "random", "fraction": 0.3}, {"epoch_fraction": 0.2}, "rs2", 1.0, 0.2),
        ({"algorithm": "random", "fraction": 1.0}, {"epoch_fraction": 0.2}, "fixed-random", 0.2, None),
        ({"algorithm": "random", "fraction": 1.0}, {"epoch_fraction": 0.2, "draw": "ordered"}, "rs2", 1.0, 0.2),
        ({"algorithm": "random", "fraction": 1.0}, {"draw": "infobatch"}, "full", 1.0, None),
        ({"algorithm": "ccs", "fraction": 0.3}, {"epoch_fraction": 0.2, "draw": "ordered"}, "stratified", 0.3, 0.2),
        ({"algorithm": "stratified"}, {"draw": "infobatch"}, "stratified", 0.1, None),
        ({"algorithm": "random", "fraction": 0.3}, {"epoch_fraction": 0.2, "draw": "ordered"}, "random", 0.3, 0.2),
        ({"algorithm": "ccs"}, {"reselect_every": 2}, "rs2", 1.0, 0.1),
    ],
)
def test_a_plain_run_has_something_beside_it(
    tmp_path: Path, select: dict[str, Any], train: dict[str, Any], name: str, kept: float, per_epoch: float | None
) -> None:
    config = tiny_context(tmp_path, {"select": select, "train": train}).config
    baseline = baseline_of(config)
    assert baseline is not None
    beside = override(config, baseline.changes)
    assert (baseline.name, algorithm_of(beside) in ("random", "stratified")) == (name, True)
    assert (beside.select.fraction, beside.train.epoch_fraction) == (kept, per_epoch)
    assert (beside.train.draw, beside.train.first_losses) == ("uniform", "none")
    assert beside.model_dump(exclude={"train", "select"}) == config.model_dump(exclude={"train", "select"})
    assert baseline_of(override(config, {"train": {"random_baseline": False}})) is None


def test_all_of_the_data_has_nothing_beside_it(tmp_path: Path) -> None:
    assert baseline_of(tiny_context(tmp_path, {"select": {"algorithm": "random", "fraction": 1.0}}).config) is None


def test_a_report_without_names_leaves_none_of_an_earlier_one(tmp_path: Path) -> None:
    """All images are kept, so none are listed."""
    ctx = tiny_context(tmp_path, {"select": {"algorithm": "random", "fraction": 1.0}, "train": {"epochs": 1}})
    names = tmp_path / report_folder(ctx.config) / "chosen.txt"
    names.parent.mkdir(parents=True)
    names.write_text("of another subset")
    run_with_baseline(ctx)
    assert sorted(each.name for each in names.parent.iterdir()) == ["config.yaml", "report.html", "report.json"]


def test_stage_functions_are_pure_in_their_inputs(finished: tuple[Path, Document]) -> None:
    """The same artifact from `lipt stage` as from `lipt run`."""
    folder, _ = finished
    outcome = run(tiny_context(folder))
    ctx = tiny_context(folder)
    prepared = outcome.prepared
    assert prepared.shards is not None
    again = [pretrain(ctx, *prepared.swarm, index=index).make() for index in range(3)]
    assert [artifact.ref for artifact in again] == [artifact.ref for artifact in outcome.jigsaws]
    assert outcome.merged is not None
    assert merge(ctx, prepared.dataset, prepared.initial[0], prepared.shards, again).make().ref == outcome.merged.ref
