"""What each stage of the default method trains with, and on which images (Ro et al., ICML 2023)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lipt.config import override
from lipt.data.augmentation import StandardAugment
from lipt.data.chunks import SampleRanges
from lipt.data.randaugment import RandAugment
from lipt.flow.dag import run
from lipt.flow.outcome import Outcome
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import open_dataset, split_positions
from lipt.stages.dispatch import dispatch
from lipt.stages.select import read_subset
from lipt.training.loop import Trainer
from lipt.training.recipe import Recipe
from tests.tiny import tiny_context


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Context, Outcome, list[tuple[Recipe, int]]]:
    """A run, and recipe and seed of each training in its order: theta_*, three jigsaws, the network on the subset."""
    trained: list[tuple[Recipe, int]] = []
    init = Trainer.__init__

    def noted(self: Trainer, model: Any, recipe: Recipe, *, seed: int, **more: Any) -> None:
        trained.append((recipe, seed))
        init(self, model, recipe, seed=seed, **more)

    ctx = tiny_context(tmp_path_factory.mktemp("recipes"), {"pretrain": {"lr": 0.02}, "train": {"lr": 0.05}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "__init__", noted)
        outcome = run(ctx)
    return ctx, outcome, trained


def test_only_the_main_training_lowers_its_learning_rate(ran: tuple[Any, Any, list[tuple[Recipe, int]]]) -> None:
    recipes = [recipe for recipe, _ in ran[2]]
    assert [(recipe.schedule, recipe.lr, recipe.epochs) for recipe in recipes] == [
        ("constant", 0.1, 1), *[("constant", 0.02, 2)] * 3, ("cosine", 0.05, 4)
    ]  # fmt: skip
    assert {recipe.batch_size for recipe in recipes} == {32}
    usual = StandardAugment(padding=1, flip=False)
    assert [recipe.augment for recipe in recipes] == [usual, *[RandAugment(num_ops=1, magnitude=9)] * 3, usual]


def test_each_training_draws_its_own_random_numbers(ran: tuple[Any, Any, list[tuple[Recipe, int]]]) -> None:
    assert len({seed for _, seed in ran[2]}) == len(ran[2]) == 5


@pytest.mark.parametrize("stratified", [True, False])
def test_shards_share_no_image_and_hold_none_of_the_validation(
    stratified: bool, ran: tuple[Context, Outcome, Any]
) -> None:
    """So many shards that they need nearly all candidates."""
    ctx, outcome, _ = ran
    changes = {"dispatch": {"jigsaws": 40, "stratified": stratified}}
    shards = dispatch(replace(ctx, config=override(ctx.config, changes)), outcome.prepared.dataset).make()
    attempt = Attempt(ctx=ctx, ref="test/0", label="test")
    validation, candidates = split_positions(ctx, open_dataset(attempt, outcome.prepared.dataset))
    positions: list[int] = []
    for name in shards.files:
        positions += SampleRanges.from_dict(json.loads(attempt.read(shards, name, kind="other"))).positions_N.tolist()
    assert len(positions) == len({*positions}) == 40 * 32
    assert {*positions} <= {*candidates.tolist()}
    assert not {*candidates.tolist()} & {*validation.tolist()}


def test_the_subset_is_of_candidates(ran: tuple[Context, Outcome, Any]) -> None:
    ctx, outcome, _ = ran
    attempt = Attempt(ctx=ctx, ref="test/0", label="test")
    _, candidates = split_positions(ctx, open_dataset(attempt, outcome.prepared.dataset))
    kept = read_subset(attempt, outcome.subset).positions_K.tolist()
    assert len(kept) == outcome.subset.summary["count"]
    assert {*kept} <= {*candidates.tolist()}
