"""Stages compute reproducibly on a CPU; what is around them is left as it was."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lipt.rng import derive
from lipt.runtime.attempt import Attempt
from lipt.selection import Selection
from lipt.selection import select as select_from
from lipt.stages.ingest import ingest
from lipt.stages.initialise import initialise
from lipt.stages.select import select
from lipt.stages.train import train
from lipt.training.loop import Trainer
from lipt.training.tensor_files import pack, state_of
from tests.tiny import demo_stage, tiny_context


@pytest.mark.parametrize("fails", [False, True])
def test_only_while_a_stage_runs(tmp_path: Path, fails: bool) -> None:
    ctx, seen = tiny_context(tmp_path), []

    def body(_attempt: Attempt) -> dict[str, Any]:
        seen.append(torch.are_deterministic_algorithms_enabled())
        if fails:
            raise ValueError
        return {}

    assert ctx.device.type == "cpu"
    assert not torch.are_deterministic_algorithms_enabled()
    for _ in range(2):
        try:
            demo_stage(ctx.workspace, body).make()
        except ValueError:
            assert fails
    assert seen == ([True] * 2 if fails else [True])
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_interrupted_theta_star_keeps_what_it_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trajectory is a file of the artifact, from which subsets are selected."""
    changes = {"initialise": {"epochs": 3}, "train": {"checkpoint_s": 0}}
    straight, again = (tiny_context(tmp_path / name, changes) for name in ("straight", "interrupted"))
    whole, dataset = initialise(straight, ingest(straight).make()).make(), ingest(again).make()
    save = Attempt.save_checkpoint

    def interrupted(self: Attempt, data: bytes) -> None:
        save(self, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(Attempt, "save_checkpoint", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            initialise(again, dataset).make()
    assert initialise(again, dataset).make() == whole


def test_a_checkpoint_waits_for_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    monkeypatch.setattr(Attempt, "save_checkpoint", lambda _self, data: saved.append(len(data)))
    for seconds in (0, 3600):
        changes = {"initialise": {"epochs": 3}, "train": {"checkpoint_s": seconds}}
        ctx = tiny_context(tmp_path / str(seconds), changes)
        initialise(ctx, ingest(ctx).make()).make()
        assert len(saved) == 2  # after the first two of three epochs, and never again


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The seed of each training, and the SHA-256 of its first weights, in the order of the trainings."""
    begun: list[tuple[int, str]] = []
    start = Trainer.__init__

    def starts(self: Trainer, model: nn.Module, *recipe: Any, seed: int, **more: Any) -> None:
        begun.append((seed, sha256(pack(state_of(model))).hexdigest()))
        start(self, model, *recipe, seed=seed, **more)

    monkeypatch.setattr(Trainer, "__init__", starts)
    return begun


def test_the_runs_seed_decides_what_each_stage_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainers: list[tuple[int, str]]
) -> None:
    """And each selection of a training that selects again draws anew."""
    selections: list[int] = []

    def selects(*arguments: Any, seed: int, **options: Any) -> Selection:
        selections.append(seed)
        return select_from(*arguments, seed=seed, **options)

    monkeypatch.setattr("lipt.stages.select.run_selection", selects)
    for seed in (0, 1):
        changes = {"seed": seed, "select": {"algorithm": "random"}, "train": {"epochs": 3, "reselect_every": 1}}
        ctx = tiny_context(tmp_path, changes)
        dataset = ingest(ctx).make()
        train(ctx, dataset, select(ctx, dataset, ()).make()).make()
    names: list[tuple[str | int, ...]] = [("select",), ("reselect", 1), ("reselect", 2)]
    assert selections == [derive(seed, *name) for seed in (0, 1) for name in names]
    assert [seed for seed, _ in trainers] == [derive(seed, "train") for seed in (0, 1)]
    assert len({weights for _, weights in trainers}) == 2


@pytest.mark.parametrize("disjoint", [False, True])
def test_each_model_of_several_draws_its_own_numbers(
    tmp_path: Path, trainers: list[tuple[int, str]], disjoint: bool
) -> None:
    """Models whose parts of the data are compared start from the same weights."""
    score = {"model": "trajectory", "runs": 3, "epochs": 1, "disjoint": disjoint}
    ctx = tiny_context(tmp_path, {"score": score, "select": {"algorithm": "el2n"}})
    dataset = ingest(ctx).make()
    for index in range(3):
        initialise(ctx, dataset, index=index).make()
    assert [seed for seed, _ in trainers] == [derive(0, "initialise", index) for index in range(3)]
    assert len({weights for _, weights in trainers}) == (1 if disjoint else 3)
