"""Work on two processes has the result of one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from lipt.errors import UsageError
from lipt.ledger import Cost
from lipt.runtime.artifact import Artifact
from lipt.runtime.context import Context
from lipt.runtime.network import WEIGHTS
from lipt.runtime.processes import parent
from lipt.runtime.processes.child import run_stage
from lipt.runtime.processes.parent import count_processes, launch
from lipt.runtime.stage import Stage
from lipt.stages.ingest import ingest
from lipt.stages.initialise import DYNAMICS, initialise
from lipt.stages.select import select
from lipt.stages.train import train
from lipt.training.tensor_files import State, unpack
from tests.pipeline import rank_work
from tests.tiny import tiny_context

TRAIN = {"epochs": 3, "lr": 0.02, "checkpoint_s": 0}
SMOOTH = {"name": "tests.unit.training.helpers:Smooth", "width": None, "classifier": "classifier"}
#: In bf16 the gradients of two half batches differ from those of one batch by more than the tests allow.
EXACT: dict[str, Any] = {"model": SMOOTH, "precision": "fp32"}
CASES: dict[str, dict[str, Any]] = {
    "resident": {},
    "streamed": {"data": {"resident_mb": 0}, "train": TRAIN | {"epochs": 2}},
    "crops": {"data": {"resident_mb": 0, "crop": "resized", "image_size": 8}, "train": TRAIN | {"epochs": 2}},
    "continue": {"train": TRAIN | {"start": "continue"}},
    "infobatch": {"train": TRAIN | {"draw": "infobatch"}},
    "ordered": {"train": TRAIN | {"draw": "ordered", "epoch_fraction": 0.1}},
    "reselect": {"train": TRAIN | {"epochs": 2, "reselect_every": 1}, "select": {"algorithm": "grand"}},
    "raptr": {
        "model": SMOOTH | {"name": "tests.unit.training.helpers:smooth_residual"},
        "train": TRAIN | {"reselect_every": 2, "raptr": {"keep": [0.5, 1], "fixed_first": 0, "fixed_last": 0}},
        "select": {"algorithm": "grand"},
    },
}
#: `data.resident_mb` for theta_*: streamed, and in memory.
RESIDENT_MB = [0, 4096]


@dataclass(kw_only=True)
class Trained:
    artifact: Artifact
    weights: State
    cost: Cost
    trajectory: State


def train_stage(folder: Path, processes: int, changes: dict[str, Any]) -> Stage:
    """The train stage on a random subset that every case shares."""
    base: dict[str, Any] = {"select": {"algorithm": "random", "fraction": 0.2}, "train": TRAIN}
    ctx = tiny_context(folder, base)
    dataset = ingest(ctx).make()
    subset = select(ctx, dataset, ()).make()
    final = {section: base.get(section, {}) | changes.get(section, {}) for section in base | changes}
    ctx = tiny_context(folder, EXACT | final | {"processes": processes})
    start = initialise(ctx, dataset).make() if ctx.config.train.start == "continue" else None
    return train(ctx, dataset, subset, start)


def theta_star_stage(folder: Path, processes: int, resident_mb: int) -> Stage:
    settings = EXACT | {"initialise": {"epochs": 3, "lr": 0.02}, "data": {"resident_mb": resident_mb}}
    ctx = tiny_context(folder, settings | {"processes": processes})
    return initialise(ctx, ingest(ctx).make())


def trained(ctx: Context, artifact: Artifact) -> Trained:
    workspace = ctx.workspace

    def read(name: str) -> State:
        return unpack(workspace.store.read(f"{artifact.ref}/{name}", kind="model"), origin=name)

    return Trained(
        artifact=artifact,
        weights=read(WEIGHTS),
        cost=workspace.cost(artifact),
        trajectory=read(DYNAMICS) if DYNAMICS in artifact.files else {},
    )


class AskedError(Exception):
    """A stage has asked for several processes."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Trained]]:
    """Every case on one process and on two. The start of two takes longer than a case, so they do all cases in turn."""
    folder = tmp_path_factory.mktemp("pairs")
    stages = {
        name: [train_stage(folder / name / str(count), count, changes) for count in (1, 2)]
        for name, changes in CASES.items()
    } | {
        f"theta_star {mb}": [theta_star_stage(folder / f"theta_star {mb}" / str(count), count, mb) for count in (1, 2)]
        for mb in RESIDENT_MB
    }
    asked: list[dict[str, Any]] = []

    def ask(ctx: Context, _label: str, work: Any, processes: int, request: dict[str, Any]) -> None:
        assert (work, processes) == (run_stage, 2)
        asked.append({"config": ctx.config.model_dump(mode="json"), "request": request})
        raise AskedError

    with pytest.MonkeyPatch.context() as patch, _stderr_in(folder / "stderr"):
        patch.setattr(parent, "launch", ask)
        for _, two in stages.values():
            with pytest.raises(AskedError):
                two.make()
        results = launch(tiny_context(folder / "launched"), "all cases", rank_work.in_turn, 2, {"asked": asked})
        answers = iter(results)
        patch.setattr(parent, "launch", lambda *_asked: next(answers))
        found = {name: [trained(one.ctx, one.make()) for one in both] for name, both in stages.items()}
    assert "Warning" not in (folder / "stderr").read_text()
    return found


@contextmanager
def _stderr_in(path: Path) -> Iterator[None]:
    """What this process and those that it starts write to stderr goes into a file."""
    kept = os.dup(2)
    with path.open("w") as file, redirect_stderr(file):
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_give_the_artifact_of_one(name: str, pairs: dict[str, list[Trained]]) -> None:
    one, two = pairs[name]
    equal(one, two)
    assert two.cost.read["model"] == one.cost.read["model"]  # one process reads the weights for both
    assert (one.cost.read["model"] > 0) == (name == "continue")


@pytest.mark.parametrize("resident_mb", RESIDENT_MB, ids=["streamed", "resident"])
def test_two_processes_give_the_theta_star_of_one_and_its_trajectory(
    resident_mb: int, pairs: dict[str, list[Trained]]
) -> None:
    one, two = pairs[f"theta_star {resident_mb}"]
    equal(one, two, cuts=100 if resident_mb else 3 * 1294 // 8)
    assert one.trajectory
    for name, of_one in one.trajectory.items():
        assert of_one.shape == (1294, 3)
        torch.testing.assert_close(two.trajectory[name], of_one, rtol=0.02, atol=0.02)


def equal(one: Trained, two: Trained, *, cuts: int = 100, processes: int = 2) -> None:
    """Up to rounding, and what was read.

    Args:
        processes: those that trained `two` together.
        cuts: requests beyond twice those of one process. In a streamed epoch neighbours go to different processes where
            the parts of a batch meet: one for every ten images, of batches of 32 over the whole set.
    """
    assert two.artifact.ref == one.artifact.ref
    assert two.artifact.summary["accuracies"] == one.artifact.summary["accuracies"]
    assert two.artifact.summary["losses"] == pytest.approx(one.artifact.summary["losses"], rel=1e-5)
    assert two.weights.keys() == one.weights.keys()
    for key, tensor in one.weights.items():
        torch.testing.assert_close(two.weights[key], tensor, rtol=1e-4, atol=1e-5)
    assert two.cost.flops == one.cost.flops
    # Each sample is read by one process; beyond that one image, whose size decides how the set is held.
    assert one.cost.read["data"] <= two.cost.read["data"] <= one.cost.read["data"] + 10_000
    assert two.cost.requests < 2 * one.cost.requests + cuts
    assert two.cost.peak_bytes > 100e6
    assert re.fullmatch(r"\d+ CPU threads?", one.cost.machine)
    assert re.fullmatch(rf"{processes} × \(\d+ CPU threads?\)", two.cost.machine)


def test_as_many_processes_as_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_processes(tiny_context(tmp_path), 64) == 1
    assert count_processes(tiny_context(tmp_path, {"processes": 3}), 64) == 3
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert count_processes(tiny_context(tmp_path, {"device": "cuda"}), 64) == 8
    assert count_processes(tiny_context(tmp_path, {"device": "cuda"}), 4) == 4
    assert count_processes(tiny_context(tmp_path, {"device": "cuda", "processes": 1}), 64) == 1
    with pytest.raises(UsageError, match=r"^processes: 9, torch sees 8 GPUs"):
        count_processes(tiny_context(tmp_path, {"device": "cuda", "processes": 9}), 64)


@pytest.mark.parametrize(
    ("settings", "most"),
    [({}, 6), ({"epoch_fraction": 5 / 1294}, 5), ({"draw": "infobatch"}, 2)],
    ids=["whole", "drawn", "infobatch"],
)
def test_no_more_processes_than_images_in_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], most: int
) -> None:
    """12 images in batches of 8 are two batches of 6: eight GPUs could not share them. InfoBatch may leave two."""
    asked: list[int] = []
    monkeypatch.setattr(parent, "count_processes", lambda _ctx, at_most: asked.append(at_most) or 1)
    changes = {
        "select": {"algorithm": "random", "fraction": 12 / 1294},
        "train": {"epochs": 1, "batch_size": 8} | settings,
    }
    ctx = tiny_context(tmp_path, changes)
    dataset = ingest(ctx).make()
    subset = select(ctx, dataset, ()).make()
    assert subset.summary["count"] == 12
    train(ctx, dataset, subset).make()
    assert asked == [most]
