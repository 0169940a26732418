"""The settings that a stage's address contains: those that can change its result, and no others."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lipt.config import overlay, override
from lipt.data.sources import located
from lipt.flow.address import run_id
from lipt.runtime.algorithm import algorithm_of
from lipt.runtime.artifact import Artifact, canonical_json
from lipt.runtime.stage import Stage
from lipt.stages.dispatch import dispatch
from lipt.stages.evaluate import evaluate
from lipt.stages.group import group
from lipt.stages.initialise import initialise
from lipt.stages.merge import merge
from lipt.stages.pretrain import pretrain
from lipt.stages.score import score as score_stage
from lipt.stages.select import select
from lipt.stages.train import train
from tests.tiny import tiny_context

DATASET = Artifact(stage="ingest", key="0", inputs=(), settings={"digest": "0"}, files={}, summary={"train": 100})
BLOCK = replace(DATASET, stage="score", settings={"block": {"of": "candidates", "start": 0, "stop": 100}})
JIGSAW = Artifact(stage="pretrain", key="0", inputs=(), settings={"index": 0}, files={}, summary={"density": 1.0})


def test_an_edited_network_is_another_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a run after the edit would report the results of the network before it."""
    keys = []
    for folder, channels in (("before", 8), ("after", 16), ("elsewhere", 16)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "edited_network.py").write_text(f"CHANNELS = {channels}\n")
        monkeypatch.chdir(tmp_path / folder)
        ctx = tiny_context(tmp_path, {"model": {"name": "edited_network:net", "width": None}})
        keys.append((initialise(ctx, DATASET).key, evaluate(ctx, DATASET, DATASET).key))
    before, after, elsewhere = keys
    assert not set(before) & set(after)
    assert elsewhere == after


@pytest.mark.parametrize(
    ("source", "kind", "own"),
    [
        ("images", "auto", True),
        ("./images/", "imagefolder", True),
        ("wds:images/*.tar", "auto", True),
        ("digits", "imagefolder", True),
        ("digits", "auto", False),
        ("cifar10:data", "auto", False),
        ("s3://bucket/data", "auto", False),
        ("/images", "auto", False),
    ],
)
def test_projects_that_share_a_workspace_have_reports_of_their_own(
    source: str, kind: str, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, found = tiny_context(tmp_path, {"data": {"source": source, "format": kind}}).config, []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        found.append(run_id(config))
    assert (found[0] != found[1]) == own
    if own:
        there = located(source, kind)
        monkeypatch.chdir(tmp_path)
        assert run_id(override(config, {"data": {"source": there}})) == found[1]
    else:
        digest = hashlib.sha256(canonical_json(config.model_dump(mode="json", exclude={"workspace"}))).hexdigest()
        assert found[0] == f"tiny-{digest[:8]}"


def test_a_network_that_is_not_here_has_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine of a user who submits a run, it may only be in the image."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # as in a script
    for name in ("no_such_module:net", "no.such.package:net", "sys:net", "__main__:net"):
        ctx = tiny_context(tmp_path, {"model": {"name": name, "width": None}})
        assert initialise(ctx, DATASET).settings["model"]["code"] is None, name


def dispatched(folder: Path, changes: dict[str, Any]) -> Stage:
    return dispatch(tiny_context(folder, changes), DATASET)


def test_shards_do_not_depend_on_how_images_are_shown(tmp_path: Path) -> None:
    """So that a swarm of a proxy stays, whatever images the network itself sees."""
    usual = dispatched(tmp_path, {}).key
    for data in ({"image_size": 16}, {"flip": True}, {"crop_padding": 2}, {"resident_mb": 0.0}):
        assert dispatched(tmp_path, {"data": data}).key == usual, data
    for changes in ({"data": {"validation_fraction": 0.2}}, {"seed": 1}, {"dispatch": {"batch_size": 16}}):
        assert dispatched(tmp_path, changes).key != usual, changes


def test_another_quorum_does_not_merge_again(tmp_path: Path) -> None:
    """It decides whether to merge. The jigsaws that arrived are inputs."""

    def merged(settings: dict[str, Any]) -> str:
        return merge(tiny_context(tmp_path, {"merge": settings}), DATASET, DATASET, DATASET, [JIGSAW]).key

    assert merged({"quorum": 1.0}) == merged({"quorum": 0.5})
    assert merged({"batchnorm": "averaged"}) != merged({"batchnorm": "best"})


def test_other_images_for_the_last_comparison_do_not_merge_the_groups_again(tmp_path: Path) -> None:
    def grouped(settings: dict[str, Any]) -> str:
        ctx = tiny_context(tmp_path, {"dispatch": {"jigsaws": 4}, "merge": {"groups": 2} | settings})
        return group(ctx, DATASET, DATASET, DATASET, [JIGSAW], index=0).key

    assert grouped({"confirmation_images": 50}) == grouped({})
    assert grouped({"search_images": 50}) != grouped({})


def test_selections_with_one_address_run_one_algorithm(tmp_path: Path) -> None:
    """Of a proxy, `auto` takes another algorithm. One that is equal to the network has the address of no proxy."""
    score = {"model": "trajectory", "runs": 1, "epochs": 3}

    def selected(proxy: dict[str, Any] | None) -> tuple[str, str]:
        ctx = tiny_context(tmp_path, {"select": {"algorithm": "auto"}, "score": score | {"proxy": proxy}})
        scores = replace(BLOCK, key=score_stage(ctx, DATASET, [JIGSAW]).key)
        return select(ctx, DATASET, [scores]).key, algorithm_of(ctx.config)

    assert selected({"width": 4}) == selected(None)
    assert selected(None)[1] == "dual"
    assert selected({"width": 2})[1] == "ccs"
    assert selected({"width": 2})[0] != selected(None)[0]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"algorithm": "auto", "fraction": 0.3}, {"algorithm": "stratified", "fraction": 0.3}, True),
        ({"algorithm": "auto", "fraction": 0.05}, {"algorithm": "ccs", "fraction": 0.05}, True),
        ({"algorithm": "auto", "fraction": 0.3}, {"algorithm": "auto", "fraction": 0.3, "balanced": False}, False),
        ({"algorithm": "stratified"}, {"algorithm": "stratified", "balanced": False}, True),
        ({"algorithm": "random"}, {"algorithm": "random", "balanced": False}, True),
        ({"algorithm": "random"}, {"algorithm": "stratified"}, False),
        ({"algorithm": "herding"}, {"algorithm": "herding", "balanced": False}, False),
    ],
)
def test_equal_subsets_have_one_address(one: dict[str, Any], other: dict[str, Any], same: bool, tmp_path: Path) -> None:
    """Otherwise a comparison would train on the same subset twice."""
    first, second = (select(tiny_context(tmp_path, {"select": each}), DATASET, []).key for each in (one, other))
    assert (first == second) == same


SUBSET = replace(DATASET, stage="select", settings={"select": {"algorithm": "ccs"}}, summary={"count": 10})
NETWORK = "initialise pretrain merge score train evaluate"
SEEN = f"{NETWORK} select"


def keys(folder: Path, changes: dict[str, Any]) -> dict[str, str]:
    """The keys of all stages, each with the same inputs."""
    ctx = tiny_context(folder, changes)
    stages = {
        "dispatch": dispatch(ctx, DATASET),
        "initialise": initialise(ctx, DATASET),
        "pretrain": pretrain(ctx, DATASET, DATASET, DATASET, index=0),
        "merge": merge(ctx, DATASET, DATASET, DATASET, [JIGSAW]),
        "score": score_stage(ctx, DATASET, [DATASET]),
        "select": select(ctx, DATASET, [BLOCK]),
        "train": train(ctx, DATASET, SUBSET),
        "evaluate": evaluate(ctx, DATASET, DATASET),
    }
    return {name: stage.key for name, stage in stages.items()}


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({"seed": 1}, f"{SEEN} dispatch".replace(" evaluate", "")),
        ({"precision": "bf16"}, NETWORK.replace(" evaluate", "")),
        ({"model": {"width": 8}}, NETWORK),
        *(({"data": {name: value}}, SEEN) for name, value in [
            ("flip", True), ("crop_padding", 2), ("image_size", 16), ("resident_mb", 0.0)
        ]),
        ({"data": {"crop": "resized", "image_size": 8}}, SEEN),
        ({"data": {"validation_fraction": 0.2}}, f"{SEEN} dispatch"),
        *(({"initialise": {name: value}}, "initialise") for name, value in [
            ("epochs", 2), ("lr", 0.2), ("batch_size", 64), ("raptr", {}), ("raptr", {"rescale": "inverse_sqrt"})
        ]),
        *(({"dispatch": {name: value}}, "dispatch") for name, value in [
            ("jigsaws", 2), ("batches", 2), ("stratified", False)
        ]),
        ({"dispatch": {"batch_size": 64}}, "dispatch pretrain"),
        *(({"pretrain": {name: value}}, "pretrain") for name, value in [
            ("passes", 3), ("lr", 0.2), ("augment", "none"), ("num_ops", 2), ("magnitude", 5), ("prune", "snip"),
            ("density", [0.5, 0.5]), ("prune_scope", "layer"),
        ]),
        *(({"merge": {name: value}}, "merge") for name, value in [
            ("method", "greedy"), ("search", "grid"), ("batchnorm", "averaged"), ("fallback", False),
            ("search_images", 32), ("confirmation_images", 50), ("recalibration_images", 16),
        ]),
        *(({"score": {name: value}}, "score") for name, value in [("top_classes", 3), ("stored_precision", "bf16")]),
        *(({"select": {name: value}}, "select") for name, value in [
            ("algorithm", "herding"), ("fraction", 0.2), ("balanced", False), ("options", {"score": "el2n"})
        ]),
        *(({"train": {name: value}}, "train") for name, value in [
            ("epochs", 3), ("steps", 9), ("epoch_fraction", 0.05), ("draw", "infobatch"), ("lr", 0.2),
            ("batch_size", 64), ("start", "continue"), ("reselect_every", 2), ("raptr", {}), ("use_weights", False),
        ]),
        *((changes, "") for changes in [
            {"name": "other"}, {"processes": 2}, {"merge": {"quorum": 1.0}}, {"train": {"random_baseline": False}},
            {"train": {"checkpoint_s": 5}}, {"train": {"nodes": 2}}, {"train": {"prune_probability": 0.4}},
            {"train": {"top_share": 0.5}}, {"compare": {"seeds": [3]}},
        ]),
    ],
    ids=str,
)  # fmt: skip
def test_a_setting_is_in_the_addresses_of_the_stages_that_it_changes(
    changes: dict[str, Any], stages: str, tmp_path: Path
) -> None:
    """Without it, a stage would be taken for finished that was made with another value. Inputs count besides."""
    before, after = keys(tmp_path, {}), keys(tmp_path, changes)
    assert {name for name in before if before[name] != after[name]} == set(stages.split())


@pytest.mark.parametrize(
    ("section", "always", "changed", "needs"),
    [
        ("train", {}, {"prune_probability": 0.4}, {"draw": "infobatch"}),
        ("train", {"epoch_fraction": 0.05}, {"top_share": 0.5}, {"draw": "ordered"}),
        ("pretrain", {}, {"num_ops": 2, "magnitude": 5}, {"augment": "randaugment"}),
        ("pretrain", {"augment": "none"}, {"num_ops": 2, "magnitude": 5}, None),
        ("pretrain", {"augment": "standard"}, {"num_ops": 2, "magnitude": 5}, None),
        ("pretrain", {}, {"density": [0.5, 0.5], "prune_scope": "layer"}, {"prune": "random"}),
        ("pretrain", {"prune": "none"}, {"density": [0.5, 0.5], "prune_scope": "layer"}, None),
        ("merge", {}, {"fallback": False}, {"method": "greedy_interpolation"}),
        ("merge", {"method": "uniform"}, {"fallback": False}, None),
        ("merge", {"method": "best_single"}, {"search": "grid"}, {}),  # it may find another jigsaw
    ],
    ids=str,
)
def test_a_setting_counts_only_where_it_has_an_effect(
    section: str, always: dict[str, Any], changed: dict[str, Any], needs: dict[str, Any] | None, tmp_path: Path
) -> None:
    """Otherwise a sweep would repeat equal trainings.

    Args:
        needs: settings with which `changed` has an effect; None: it has none.
    """
    before, after = (keys(tmp_path, {section: always | (needs or {}) | each})[section] for each in ({}, changed))
    assert (before != after) == (needs is not None)


@pytest.mark.parametrize(
    ("always", "idle"),
    [
        ({"data": {"crop": "resized", "image_size": 8}}, {"data": {"crop_padding": 2}}),  # crops are not shifted
        (
            {"score": {"model": "trajectory", "epochs": 3}, "select": {"algorithm": "dual"}},
            {"score": {"top_classes": 3, "stored_precision": "bf16"}},  # no outputs are stored
        ),
    ],
    ids=str,
)
def test_a_setting_of_what_does_not_happen_is_in_no_address(
    always: dict[str, Any], idle: dict[str, Any], tmp_path: Path
) -> None:
    assert keys(tmp_path, overlay(always, idle)) == keys(tmp_path, always)


@pytest.mark.parametrize(
    ("summary", "again", "same"),
    [
        ({"weighted": False}, 0, True),
        ({"weighted": True}, 0, False),
        ({"weighted": False}, 2, False),  # the second selection may give weights
        ({}, 0, False),  # of an earlier version
    ],
)
def test_weights_that_are_all_equal_count_for_no_training(
    summary: dict[str, Any], again: int, same: bool, tmp_path: Path
) -> None:
    subset = replace(SUBSET, summary={"count": 10} | summary)
    changes = [{"train": {"use_weights": use, "reselect_every": again}} for use in (True, False)]
    with_, without = (train(tiny_context(tmp_path, each), DATASET, subset).key for each in changes)
    assert (with_ == without) == same


def test_a_selection_that_is_repeated_in_training_counts_for_the_training(tmp_path: Path) -> None:
    again = {"train": {"reselect_every": 2}}
    other = again | {"select": {"fraction": 0.2}}
    assert keys(tmp_path, again)["train"] != keys(tmp_path, other)["train"]
