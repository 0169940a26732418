"""What a process reads once, by the ledger: bytes are charged to the step that reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lipt.data.chunks.manifest import MANIFEST
from lipt.flow.dag import Scoring, prepare, run
from lipt.flow.outcome import Outcome
from lipt.flow.prepared import Prepared
from lipt.runtime.context import Context
from lipt.stages.initialise import DYNAMICS
from tests.tiny import tiny_context


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("reads")
    return folder, run(tiny_context(folder))


def index_bytes(ctx: Context, prepared: Prepared) -> int:
    """Manifest and training index."""
    store = ctx.workspace.store.at(prepared.dataset.summary["location"])
    return sum(store.size(file) or 0 for file in (MANIFEST, "train.index.parquet"))


def test_blocks_scored_by_one_process_read_manifest_and_index_once(finished: tuple[Path, Outcome]) -> None:
    folder, outcome = finished
    costs = []
    for count in (1, 3):
        ctx = tiny_context(folder, {"score": {"block_images": 1294 // count + 1}})  # a process of its own
        scoring = Scoring.of(ctx, outcome.prepared, outcome.merged)
        blocks, _ = scoring.run(ctx, range(scoring.blocks))
        assert len(blocks) == count
        costs.append([ctx.workspace.cost(block) for block in blocks.values()])
    whole = index_bytes(tiny_context(folder), outcome.prepared)
    assert [cost.read["other"] for cost in costs[0]] == [0]  # the run made it, after dispatch had fetched the index
    assert [cost.read["other"] for cost in costs[1]] == [whole, 0, 0]
    assert sum(cost.read["data"] for cost in costs[1]) == pytest.approx(costs[0][0].read["data"], rel=0.01)


def test_trajectories_are_read_once_whatever_the_number_of_blocks(tmp_path: Path) -> None:
    """Of ImageNet, ten epochs of one model are 150 MB, and there are 20 blocks."""
    changes = {
        "score": {"model": "trajectory", "runs": 2, "epochs": 2, "block_images": 400},
        "select": {"algorithm": "el2n"},
    }
    prepared = prepare(tiny_context(tmp_path, changes))
    ctx = tiny_context(tmp_path, changes)  # a process of its own
    scoring = Scoring.of(ctx, prepared, None)
    blocks, _ = scoring.run(ctx, range(scoring.blocks))
    recorded = sum(model.files[DYNAMICS].num_bytes for model in prepared.initial)
    assert recorded > 2 * 1294 * 2 * 3 * 4
    read = [ctx.workspace.cost(block).read["other"] for block in blocks.values()]
    assert read == [index_bytes(ctx, prepared) + recorded, 0, 0, 0]


def test_a_merge_that_streams_its_validation_set_reads_it_once(
    finished: tuple[Path, Outcome],
) -> None:
    """However many models it evaluates on the 64 images of the search, and four on the 80 others."""
    folder, _ = finished
    read = {}
    for resident_mb in (0.02, 1000):  # 64 images of the search fit into both, the 144 of validation into the second
        for search in ("coarse_to_fine", "grid"):
            changes = {"data": {"resident_mb": resident_mb}, "merge": {"search": search}}
            ctx = tiny_context(folder, changes)
            merged = run(ctx).merged
            assert merged is not None
            read[resident_mb, search] = ctx.workspace.cost(merged).read["data"]
    assert read[0.02, "grid"] == read[0.02, "coarse_to_fine"]
    image = read[1000, "grid"] / (32 + 144)  # the shard, the validation set
    assert read[1000, "grid"] == read[1000, "coarse_to_fine"]
    assert read[0.02, "grid"] == pytest.approx((32 + 144) * image, rel=0.02)
