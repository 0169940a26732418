"""FLOPs, bytes and parts that are predicted for each stage, against the ledger of real runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from lipt.config import override
from lipt.data.cropping import Crops
from lipt.flow import dag
from lipt.flow.compare import run_with_baseline
from lipt.flow.dag import merge_jigsaws, prepare, train_jigsaws
from lipt.forecast.calibration import measured
from lipt.forecast.sizes import DataSize
from lipt.forecast.stages import work_of
from lipt.forecast.work import Work
from lipt.runtime.context import Context
from lipt.runtime.network import new_model
from lipt.stages.pretrain import DELTA
from lipt.training.flops import flops_per_image
from tests.tiny import tiny_context

CROPS = {"crop": "resized", "image_size": 8}


def planned(ctx: Context) -> dict[str, Work]:
    return {work.stage: work for work in work_of(ctx, DataSize.stored(ctx))}


def test_flops_are_those_that_the_stages_count(ran: Context) -> None:
    costs, works = measured(ran), planned(ran)
    assert set(costs) == set(works)
    for stage in ("initialise", "pretrain", "score", "train", "evaluate"):
        assert works[stage].parts == len(costs[stage])
        near = 0.02 if stage == "train" else 0  # what is kept of each class is rounded
        for cost in costs[stage]:
            assert cost.flops == pytest.approx(works[stage].flops, rel=near), stage
    assert works["merge"].flops == pytest.approx(costs["merge"][0].flops, rel=0.5)  # its search is not predictable


def test_bytes_are_those_that_the_store_counts(ran: Context) -> None:
    costs, works = measured(ran), planned(ran)
    worker = costs["pretrain"][0]  # the first of this process: it reads theta_*
    assert worker.read["data"] == works["pretrain"].read["data"]
    assert worker.read["model"] == costs["initialise"][0].written["model"]
    assert worker.read["model"] == pytest.approx(works["pretrain"].once["model"], rel=0.01)
    assert worker.read["other"] == pytest.approx(works["pretrain"].read["other"], rel=0.1)
    for cost in costs["pretrain"]:
        assert cost.written["model"] == pytest.approx(works["pretrain"].written["model"], rel=0.05)
    assert costs["score"][0].written["other"] == pytest.approx(works["score"].written["other"], rel=0.01)
    for stage in ("ingest", "initialise", "merge", "score", "train", "evaluate"):
        total = sum(cost.read["data"] for cost in costs[stage]) / works[stage].parts
        assert total == pytest.approx(works[stage].read.get("data", 0), rel=0.05), stage
        assert costs[stage][0].written["model"] == pytest.approx(works[stage].written.get("model", 0), rel=0.01), stage
    assert costs["dispatch"][0].read["other"] == works["dispatch"].once["other"]
    for stage in ("initialise", "score"):  # the index was fetched by dispatch, in this process
        assert costs[stage][0].read["other"] == 0
    assert sum(cost.read["other"] for cost in costs["select"]) == pytest.approx(works["select"].read["other"], rel=0.01)
    assert costs["ingest"][0].written["data"] == pytest.approx(works["ingest"].written["data"], rel=0.01)


@pytest.mark.parametrize(
    "changes",
    [
        {"select": {"algorithm": "random"}},
        {"select": {"algorithm": "random", "fraction": 1.0}, "train": {"epoch_fraction": 0.1, "start": "continue"}},
        {"select": {"balanced": False}, "train": {"epoch_fraction": 0.05}},
        {"select": {"fraction": 0.3}, "train": {"epoch_fraction": 0.1, "draw": "ordered"}},
        {
            "select": {"algorithm": "random", "fraction": 0.3},
            "score": {"model": "trajectory", "runs": 2, "epochs": 2},
            "train": {"draw": "infobatch", "first_losses": "trajectory", "steps": 20},
        },
        {"score": {"block_images": 500}},
        {"score": {"block_images": 500}, "select": {"algorithm": "moderate"}},
        {"data": {"resident_mb": 0.02}, "train": {"random_baseline": False}},
        {"data": CROPS, "train": {"epochs": 3}},
        {"data": CROPS | {"resident_mb": 0.02}, "train": {"epochs": 3}},
        {"score": {"model": "classic", "runs": 2}, "select": {"algorithm": "grand"}},
        {"score": {"model": "classic", "runs": 3}, "select": {"algorithm": "grand"}, "data": {"resident_mb": 0.02}},
        {
            "score": {"model": "trajectory", "runs": 3, "epochs": 2, "disjoint": True},
            "select": {"algorithm": "el2n"},
        },
        {"select": {"algorithm": "glister"}, "train": {"reselect_every": 2}},
        {"select": {"algorithm": "stratified"}, "train": {"reselect_every": 2}},
        {"pretrain": {"prune": "snip"}},
        {"score": {"proxy": {"width": 2, "image_size": 16}}},
        {"score": {"proxy": {"width": 2, "image_size": 5}}, "data": {"thumbnails": 5}},
        {"initialise": {"epochs": 2, "raptr": {"keep": [0.2, 1]}}, "train": {"raptr": {"rescale": "inverse_sqrt"}}},
        {"select": {"race": {"rounds": [0.2]}}, "train": {"raptr": {}, "steps": 40, "random_baseline": False}},
        {
            "select": {"algorithm": "glister"},
            "train": {"reselect_every": 2, "raptr": {}},
            "model": {"name": "wrn28_10"},
        },
    ],
    ids=[
        "random",
        "continue",
        "epoch-budget",
        "ordered",
        "infobatch",
        "blocks",
        "two-passes",
        "streamed",
        "crops",
        "crops-streamed",
        "classic",
        "classic-streamed",
        "disjoint",
        "reselect",
        "reselect-at-random",
        "snip",
        "proxy",
        "thumbnails",
        "raptr",
        "raptr-race",
        "raptr-reselect",
    ],
)
def test_other_configurations_too(ran: Context, changes: dict[str, Any]) -> None:
    ctx = replace(ran, config=override(ran.config, changes))
    run_with_baseline(ctx)
    costs, works = measured(ctx), planned(ctx)
    for stage, work in works.items():
        rows = costs[stage]
        if stage != "merge":
            near = 0.02 if stage in ("race", "train") else 1e-9
            if ctx.config.train.draw == "infobatch":  # its epochs end with smaller batches
                near *= 2
            assert sum(cost.flops for cost in rows) == pytest.approx(work.flops * work.parts, rel=near), stage
        read = sum(cost.read["data"] for cost in rows)
        near = 0.5 if stage == "merge" else 0.08
        assert read == pytest.approx(work.parts * work.read.get("data", 0), rel=near, abs=6000), stage
    read = sum(cost.read["other"] for cost in costs["select"])  # the index may have been fetched by an earlier stage
    assert read == pytest.approx(works["select"].read["other"], rel=0.02, abs=works["select"].once["other"] + 3000)
    stored = sum(cost.written["data"] for cost in costs["ingest"])
    assert stored == pytest.approx(works["ingest"].written["data"], rel=0.01)
    if "score" in works:
        written = sum(cost.written["other"] for cost in costs["score"])
        assert written == pytest.approx(works["score"].parts * works["score"].written["other"], rel=0.01)
        for kind in ("model", "other"):
            read = sum(cost.read[kind] for cost in costs["score"])
            work = works["score"]
            once = work.once.get(kind, 0)  # an earlier stage may have fetched it
            assert read == pytest.approx(work.parts * work.read.get(kind, 0), rel=0.02, abs=work.parts * once + 3000), (
                kind
            )


@pytest.mark.parametrize("resident_mb", [100, 0.02], ids=["held", "streamed"])
def test_random_crops_are_decoded_as_often_as_predicted(
    ran: Context, resident_mb: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"seed": 5, "data": CROPS | {"resident_mb": resident_mb}, "initialise": {"epochs": 2}}
    ctx = replace(ran, config=override(ran.config, changes))
    seeds: list[int] = []
    decode = Crops.decode

    def counted(crops: Crops, data: bytes, name: str, seed: int | None) -> Tensor:
        if seed is not None:
            seeds.append(seed)
        return decode(crops, data, name, seed)

    monkeypatch.setattr(Crops, "decode", counted)
    run_with_baseline(ctx)
    works = planned(ctx)
    trained = {stage: work for stage, work in works.items() if work.crops}
    assert set(trained) == {"initialise", "pretrain", "train"}
    assert len(seeds) == pytest.approx(sum(work.parts * work.decoded for work in trained.values()), rel=0.005)
    files = works["train"].memory_bytes - planned(ran)["train"].memory_bytes
    assert files == pytest.approx((resident_mb > 1) * 129 * DataSize.stored(ctx).span_bytes)


def test_two_groups_of_streamed_images_are_in_memory(ran: Context) -> None:
    """Of 129 images of 3 MB: all, or two batches of 32, which are larger than the groups."""
    assert ran.config.train.batch_size == 32
    held, streamed = (
        planned(replace(ran, config=override(ran.config, {"data": {"image_size": 1024, "resident_mb": limit}})))
        for limit in (1000, 4)
    )
    saved = held["train"].memory_bytes - streamed["train"].memory_bytes
    assert saved == pytest.approx((129 - 64) * 3 * 1024**2)


def test_groups_are_foreseen_as_they_are_merged(ran: Context) -> None:
    ctx = replace(ran, config=override(ran.config, {"merge": {"groups": 2}}))
    run_with_baseline(ctx)
    costs, works = measured(ctx), planned(ctx)
    for stage in ("group", "merge"):
        work, rows = works[stage], costs[stage]
        assert work.parts == len(rows)
        assert sum(cost.flops for cost in rows) == pytest.approx(work.parts * work.flops, rel=0.5), stage
        assert sum(cost.written["model"] for cost in rows) == pytest.approx(
            work.parts * work.written["model"], rel=0.08
        )
        once = work.once["model"] if stage == "group" else 0  # theta_*, which this process keeps for the last merge
        for kind, kept in (("data", 0), ("model", once)):
            read = sum(cost.read[kind] for cost in rows)
            assert read == pytest.approx(work.parts * work.read[kind] + kept, rel=0.08), (stage, kind)
    assert [cost.read["data"] for cost in costs["group"]] == [costs["group"][0].read["data"]] * 2
    assert costs["group"][0].read["data"] < costs["merge"][0].read["data"]  # the search's images, not all validation


@pytest.mark.parametrize(
    "changes",
    [{}, {"search": "grid", "batchnorm": "averaged"}, {"search_images": None, "method": "greedy"}],
    ids=["default", "grid", "all"],
)
def test_the_ledger_of_a_merge_contains_every_forward_pass(ran: Context, changes: dict[str, Any]) -> None:
    ctx = replace(ran, config=override(ran.config, {"merge": {"recalibration_images": 30} | changes}))
    prepared = prepare(ctx)
    jigsaws, _ = train_jigsaws(ctx, prepared, range(3))
    forwarded = []

    def count(module: nn.Module, _inputs: object, output: Tensor) -> None:
        if isinstance(module, nn.Linear) and output.device.type != "meta":
            forwarded.append(len(output))

    handle = nn.modules.module.register_module_forward_hook(count)
    merged = merge_jigsaws(ctx, prepared, list(jigsaws.values()))
    handle.remove()
    forward = flops_per_image(new_model(ctx, 10, 0), (3, 8, 8)).forward
    assert ctx.workspace.cost(merged).flops / forward == sum(forwarded) - 1  # one image to count its FLOPs


@pytest.mark.parametrize("method", ["greedy_interpolation", "uniform"])
def test_jigsaws_that_a_merge_reads_again_are_counted(
    ran: Context, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """One of three fits into memory. With other images for the search, so that the merge has another address."""
    held = round(1.5 * planned(ran)["merge"].read["model"] / 3)
    for module in ("stages.merge", "forecast.choice"):
        monkeypatch.setattr(f"lipt.{module}.held_bytes", lambda _config: held)
    changes = {"merge": {"method": method, "search_images": 60, "fallback": False}}
    ctx = replace(ran, config=override(ran.config, changes))
    prepared = prepare(ctx)
    jigsaws, _ = train_jigsaws(ctx, prepared, range(3))
    ctx.cache.weights.clear()  # so that theta_* is read
    cost, work = ctx.workspace.cost(merge_jigsaws(ctx, prepared, list(jigsaws.values()))), planned(ctx)["merge"]
    alone = sum(jigsaw.files[DELTA].num_bytes for jigsaw in jigsaws.values())
    assert cost.read["model"] > 1.5 * alone + work.once["model"]
    # Uniform: of the best jigsaw the weights are needed once more.
    near = 0.08 if method == "greedy_interpolation" else 0.25
    assert cost.read["model"] == pytest.approx(work.read["model"] + work.once["model"], rel=near)


def test_the_trainings_of_a_race_do_not_select_again(tmp_path: Path) -> None:
    found = []
    for every in (0, 1):
        train = {"epochs": 6, "reselect_every": every}
        race = {"select": {"race": {"rounds": [0.5]}}, "data": {"image_size": 8}}
        ctx = tiny_context(tmp_path, race | {"train": train})
        data = DataSize.described(ctx.config, images=1500, image_kb=1, classes=10)
        found.append({work.stage: work for work in work_of(ctx, data)})
    assert found[0]["race"] == found[1]["race"]
    assert found[0]["train"].flops < found[1]["train"].flops


def test_steps_that_end_within_an_epoch_have_the_images_of_their_batches(tmp_path: Path) -> None:
    """129 images are batches of 33, 32, 32 and 32."""
    train = {"steps": 6, "batch_size": 33, "random_baseline": False}
    ctx = tiny_context(tmp_path, {"select": {"algorithm": "random", "fraction": 0.1}, "train": train})
    outcome = dag.run(ctx)
    assert outcome.trained.model.summary["images"] == 129 + 33 + 32
    assert planned(ctx)["train"].flops == ctx.workspace.cost(outcome.trained.model).flops


def test_a_training_that_selects_again_holds_all_outputs(ran: Context) -> None:
    def memory(changes: dict[str, Any]) -> float:
        return planned(replace(ran, config=override(ran.config, changes)))["train"].memory_bytes

    every = {"train": {"reselect_every": 2}}
    grand, random = ({"select": {"algorithm": name}} for name in ("grand", "stratified"))
    scored = 1294 * 4 * (10 + 32)  # logits and features
    assert memory(grand | every) - memory(grand) > scored
    assert memory(random | every) == memory(random)
