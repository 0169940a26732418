"""`train.reselect_every` in the report: it selects from all candidates again, so all of them are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lipt.config import override
from lipt.data.images import ImageSet, ResidentImages
from lipt.flow.compare import run_with_baseline
from lipt.progress import Reporter
from lipt.runtime import checkpoint
from lipt.runtime.algorithm import contestants
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import open_dataset, split_positions
from lipt.runtime.stage import Stage
from lipt.selection import Candidates, Outputs
from lipt.selection import select as select_from
from lipt.stages.ingest import ingest
from lipt.stages.race import race
from lipt.stages.select import select
from lipt.stages.train import train
from lipt.training import loop
from lipt.training.forward import outputs_of
from lipt.training.loop import Trainer
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
        found.append(training)
    assert found[0].ref == found[1].ref
    assert found[0].summary["steps"] == 15


def test_each_epoch_trains_on_what_a_selection_from_all_candidates_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CRAIG gives weights, in the order of its picks; the images of an epoch stand in the order of the data set."""
    scored: list[tuple[ImageSet, Outputs]] = []
    trained: list[tuple[ImageSet, Tensor]] = []
    run_epoch = Trainer.run_epoch

    def scores(model: nn.Module, images: ImageSet, **settings: Any) -> Outputs:
        scored.append((images, outputs_of(model, images, **settings)))
        return scored[-1][1]

    def trains(self: Trainer, images: ImageSet, *, weights_N: Tensor, **more: Any) -> None:
        trained.append((images, weights_N))
        run_epoch(self, images, weights_N=weights_N, **more)

    monkeypatch.setattr("lipt.stages.train.outputs_of", scores)
    monkeypatch.setattr(Trainer, "run_epoch", trains)
    ctx = tiny_context(tmp_path, {"select": {"algorithm": "random"}, "train": {"epochs": 3, "reselect_every": 1}})
    dataset = ingest(ctx).make()
    first = select(ctx, dataset, ()).make()
    again = replace(ctx, config=override(ctx.config, {"select": {"algorithm": "craig"}}))
    train(again, dataset, first).make()

    data = open_dataset(Attempt(ctx=ctx, ref="test/0", label="test"), dataset)
    labels_N = torch.from_numpy(data.index("train").label[split_positions(ctx, data)[1]]).long()
    assert (len(scored), len(trained)) == (2, 3)
    for (candidates, outputs), (images, weights_K) in zip(scored, trained[1:], strict=True):
        assert torch.equal(candidates.labels_N, labels_N)
        pool = Candidates(labels_N=labels_N, num_classes=10, outputs=[outputs])
        chosen = select_from("craig", pool, fraction=0.1)
        weight_of = dict(zip(chosen.indices_K.tolist(), chosen.weights_K.tolist(), strict=True))
        assert weights_K.tolist() == [weight_of[row] for row in sorted(weight_of)] != list(weight_of.values())
        assert isinstance(images, ResidentImages)
        assert torch.equal(images.images_NCHW, candidates.subset(torch.tensor(sorted(weight_of))).images_NCHW)


def test_a_resumed_training_goes_on_with_its_own_selection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is interrupted in the middle and at the end of each epoch: also between two selections, and then the last one
    stays."""
    for module in (loop, checkpoint):
        monkeypatch.setattr(module, "STEPS_PER_PART", 3)

    def stage(folder: Path) -> Stage:
        changes = {"epochs": 4, "reselect_every": 2, "checkpoint_s": 0}
        ctx = tiny_context(folder, {"select": {"algorithm": "random"}, "train": changes})
        dataset = ingest(ctx).make()
        again = replace(ctx, config=override(ctx.config, {"select": {"algorithm": "craig"}}))
        return train(again, dataset, select(ctx, dataset, ()).make())

    straight, interrupted = stage(tmp_path / "straight").make(), stage(tmp_path / "other")
    save = Attempt.save_checkpoint

    def saves(self: Attempt, data: bytes) -> None:
        save(self, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(Attempt, "save_checkpoint", saves)
    for _ in range(7):
        with pytest.raises(KeyboardInterrupt):
            interrupted.make()
    resumed = interrupted.make()
    assert resumed.summary["steps"] == 4 * 5
    assert resumed.summary == straight.summary
    assert resumed.files == straight.files
    assert resumed.summary["reselection_flops"] > 0


def test_a_selection_in_a_training_shows_its_progress(tmp_path: Path) -> None:
    """It may take longer than the hour after which a pod without progress is killed."""
    seen: list[tuple[int, int]] = []

    class Noted(Reporter):
        def advance(self, label: str, done: int, total: int, text: str) -> None:
            if text == "images, scored to select again":
                seen.append((done, total))

    config = tiny_context(
        tmp_path, {"select": {"algorithm": "el2n"}, "train": {"epochs": 2, "reselect_every": 1}}
    ).config
    ctx = Context.of(config, Noted())
    dataset = ingest(ctx).make()
    subset = select(replace(ctx, config=override(ctx.config, {"select": {"algorithm": "random"}})), dataset, ()).make()
    train(ctx, dataset, subset).make()
    assert seen[-1] == (1294, 1294)
    assert len(seen) > 5
