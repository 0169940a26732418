"""Draws that are led by losses: each against a plain loop, and what they leave unchanged on average."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lipt.config import Train
from lipt.data.augmentation import no_augmentation, normalise
from lipt.rng import uniform
from lipt.runtime.budgets import smallest_batch
from lipt.training.batches import batch_sizes, epoch_rows
from lipt.training.draws import InfoBatch, LossDraws, Ordered, losses
from lipt.training.dynamics import Dynamics, observe
from lipt.training.loop import Trainer, train
from lipt.training.recipe import Recipe, TrainingProgress
from lipt.training.tensor_files import state_of
from tests.unit.training.helpers import Smooth, blocks

CPU = torch.device("cpu")
N = 96


def some_losses(n: int = 40, unseen: int = 6) -> Tensor:
    loss_N = torch.rand(n, generator=torch.Generator().manual_seed(0)).pow(3)
    loss_N[:unseen] = torch.nan
    return loss_N


def trainer_of(*, lr: float = 0.02, **changes: object) -> Trainer:
    settings: dict[str, object] = {"epochs": 8, "batch_size": 16, "schedule": "cosine", "augment": no_augmentation}
    torch.manual_seed(0)
    recipe = Recipe(**(settings | {"lr": lr} | changes))  # type: ignore[arg-type]
    return Trainer(Smooth(num_classes=4), recipe, seed=5, device=CPU)


def unseen() -> Tensor:
    return torch.full((N,), torch.nan)


def test_infobatch_is_a_plain_loop() -> None:
    loss_N, rows_S = some_losses(), epoch_rows(40, 30, 1, 0)
    for r in (0.2, 0.5, 0.9):
        rows_K, factors_N = InfoBatch(loss_N.clone(), probability=r).of_epoch(rows_S, done=0.5, seed=1, epoch=3)
        known = [loss for loss in loss_N.tolist() if not math.isnan(loss)]
        mean, chances = sum(known) / len(known), uniform(torch.arange(40), 1, 1, "infobatch", 3)
        expected = [row for row in rows_S.tolist() if not loss_N[row] < mean or chances[row] >= r]
        assert rows_K.tolist() == expected
        assert 4 < len(expected) < 30
        assert factors_N is not None
        below = [bool(loss < mean) for loss in loss_N.tolist()]
        assert factors_N.tolist() == pytest.approx([1 / (1 - r) if low else 1 for low in below])


def test_infobatch_compares_a_loss_with_the_mean_of_the_whole_set() -> None:
    """One hard sample is not drawn, but it raises the mean: all samples that are drawn lie below."""
    loss_N = torch.tensor([1.0, 2, 3] * 10 + [1000])
    _, factors_N = InfoBatch(loss_N, probability=0.5).of_epoch(torch.arange(30), done=0, seed=1, epoch=0)
    assert factors_N is not None
    assert factors_N.tolist() == [2] * 30 + [1]


def test_infobatch_leaves_out_nothing_that_it_has_not_seen_and_nothing_at_the_end() -> None:
    rows_S = epoch_rows(40, None, 1, 0)
    cold = InfoBatch(torch.full((40,), torch.nan), probability=0.9)
    rows_K, factors_N = cold.of_epoch(rows_S, done=0, seed=1, epoch=0)
    assert rows_K.tolist() == rows_S.tolist()
    assert factors_N is not None
    assert factors_N.tolist() == [1] * 40
    warm = InfoBatch(some_losses(), probability=0.9)
    assert len(warm.of_epoch(rows_S, done=0.8749, seed=1, epoch=0)[0]) < 40
    rows_K, factors_N = warm.of_epoch(rows_S, done=0.875, seed=1, epoch=0)
    assert (rows_K.tolist(), factors_N) == (rows_S.tolist(), None)


def test_an_epoch_of_infobatch_has_two_images_or_more() -> None:
    """Of a draw of three easy samples, often none or one would stay, and BatchNorm cannot train on one."""
    draws, rows_S = InfoBatch(torch.tensor([0.1, 0.2, 0.3, 5.0]), probability=0.5), torch.tensor([1, 0, 2])
    sizes = {len(draws.of_epoch(rows_S, done=0.5, seed=1, epoch=epoch)[0]) for epoch in range(50)}
    assert sizes == {2, 3}


@pytest.mark.parametrize("r", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("drawn", [1, 3, 20, 64, 300])
def test_processes_can_share_the_smallest_batch_of_infobatch(drawn: int, r: float) -> None:
    """With one exception all losses are below the mean, so as many samples are left out as can be."""
    loss_N = torch.zeros(drawn)
    loss_N[0] = 1
    draws, settings = InfoBatch(loss_N, probability=r), Train(draw="infobatch", prune_probability=r, batch_size=32)
    kept = [len(draws.of_epoch(torch.arange(drawn), done=0, seed=1, epoch=epoch)[0]) for epoch in range(300)]
    at_most = smallest_batch(settings, 1000, drawn)
    assert 1 <= at_most <= min(batch_sizes(count, 32)[-1] for count in kept)
    assert drawn < 300 or r > 0.5 or at_most == 16  # not fewer than needed


@pytest.mark.parametrize("r", [0.3, 0.5, 0.8])
def test_the_expected_gradient_of_infobatch_is_that_of_all_samples(r: float) -> None:
    """The variance of the sum is known: samples below the mean stay independently with probability 1 - r."""
    loss_N, draws = some_losses(), 4000
    gradients_ND = torch.randn(40, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    batch = InfoBatch(loss_N, probability=r)
    sum_D = torch.zeros(5, dtype=torch.float64)
    for epoch in range(draws):
        rows_K, factors_N = batch.of_epoch(torch.arange(40), done=0, seed=7, epoch=epoch)
        assert factors_N is not None
        sum_D += (gradients_ND[rows_K] * factors_N[rows_K, None]).sum(0)
    below_N = loss_N < loss_N.nanmean()
    deviation_D = (gradients_ND[below_N].square().sum(0) * r / (1 - r) / draws).sqrt()
    assert ((sum_D / draws - gradients_ND.sum(0)).abs() < 4 * deviation_D).all()
    unscaled_D = gradients_ND.sum(0) - r * gradients_ND[below_N].sum(0)
    assert ((unscaled_D - gradients_ND.sum(0)).abs() > 4 * deviation_D).any()  # the bound would notice


def test_ordered_is_a_plain_loop() -> None:
    loss_N, rows_S = some_losses(), epoch_rows(40, 30, 1, 0)
    rows_K, factors_N = Ordered(loss_N, count=12).of_epoch(rows_S, done=0.95, seed=1, epoch=3)
    rank = {row: -math.inf if math.isnan(loss_N[row]) else -float(loss_N[row]) for row in rows_S.tolist()}
    hardest = set(sorted(rank, key=lambda row: rank[row])[:12])
    assert rows_K.tolist() == [row for row in rows_S.tolist() if row in hardest]
    assert factors_N is None


def test_a_cold_ordered_draw_is_uniform() -> None:
    """Before anything is seen it takes the first samples of the uniform draw, which are in random order."""
    rows_S = epoch_rows(40, 30, 1, 0)
    rows_K, _ = Ordered(torch.full((40,), torch.nan), count=12).of_epoch(rows_S, done=0, seed=1, epoch=0)
    assert rows_K.tolist() == rows_S[:12].tolist()


def test_losses_are_the_cross_entropy_and_finite() -> None:
    logits_PC, labels_P = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 4
    expected = torch.nn.functional.cross_entropy(logits_PC, labels_P, reduction="none")
    torch.testing.assert_close(losses(observe(logits_PC, labels_P)[:, 0]), expected)
    assert losses(torch.tensor([0.0])).isfinite().all()


def test_the_table_holds_what_the_training_saw_last() -> None:
    images, trainer = blocks(n=N), trainer_of(epoch_size=48)
    draws, seen = Ordered(unseen(), count=24), []
    for _ in range(3):
        before = draws.loss_N.clone()
        trainer.run_epoch(images, draws=draws)
        changed = ~((draws.loss_N == before) | (draws.loss_N.isnan() & before.isnan()))
        seen.append(changed.nonzero().flatten())
        assert trainer.progress.loss[-1] == pytest.approx(float(draws.loss_N[seen[-1]].mean()), rel=1e-4)
    assert [len(rows) for rows in seen] == [24] * 3


def test_an_infobatch_step_is_the_textbook_one() -> None:
    """One batch: the gradient of the sum of rescaled, weighted losses, divided by the images of the batch."""
    images, weights_N = blocks(n=N), torch.linspace(0.5, 2, N)
    trainer = trainer_of(epochs=1, batch_size=N, schedule="constant")
    reference = trainer_of(epochs=1).model.train()
    draws = InfoBatch(some_losses(N, unseen=10), probability=0.5)
    rows_K, factors_N = draws.of_epoch(epoch_rows(N, None, 5, 0), done=0, seed=5, epoch=0)
    assert factors_N is not None
    scale_K = factors_N[rows_K] * weights_N[rows_K] / weights_N.mean()
    x = images.images_NCHW[rows_K]
    loss_K = torch.nn.functional.cross_entropy(reference(normalise(x)), images.labels_N[rows_K], reduction="none")
    (loss_K * scale_K).mean().backward()
    trainer.run_epoch(images, weights_N=weights_N, draws=draws)
    assert trainer.progress.images == len(rows_K) < N
    for parameter, updated in zip(reference.parameters(), trainer.model.parameters(), strict=True):
        assert parameter.grad is not None
        gradient = parameter.grad + 5e-4 * parameter
        torch.testing.assert_close(updated, parameter - 0.02 * (1 + 0.9) * gradient, rtol=1e-4, atol=1e-6)


def test_infobatch_shows_loss_and_accuracy_as_a_uniform_draw_would() -> None:
    """What it trains on is harder than a uniform draw; with its factors, the mean is that of all."""
    images, trainer = blocks(n=N), trainer_of(epochs=1)
    draws = InfoBatch(some_losses(N, unseen=10), probability=0.5)
    rows_K, factors_N = draws.of_epoch(epoch_rows(N, None, 5, 0), done=0, seed=5, epoch=0)
    assert factors_N is not None
    seen = Dynamics.empty(N, 1)
    trainer.run_epoch(images, draws=draws, dynamics=seen)
    scale_K = factors_N[rows_K] / factors_N[rows_K].sum()
    (loss,), (accuracy,) = trainer.progress.loss, trainer.progress.accuracy
    assert loss == pytest.approx(float((scale_K * draws.loss_N[rows_K]).sum()), rel=1e-4)
    assert accuracy == pytest.approx(float(scale_K[seen.margin_NT[rows_K, 0] > 0].sum()))


@pytest.mark.parametrize("steps", [None, 37])
@pytest.mark.parametrize("kind", ["infobatch", "ordered"])
def test_resuming_repeats_the_run_bit_by_bit(kind: str, steps: int | None) -> None:
    images = blocks(n=N)

    def make() -> tuple[Trainer, LossDraws]:
        draws = InfoBatch(unseen(), probability=0.5) if kind == "infobatch" else Ordered(unseen(), count=40)
        return trainer_of(epoch_size=None if kind == "infobatch" else 60, steps=steps), draws

    straight, table = make()
    train(straight, lambda _: (images, None), draws=table)
    first, part = make()
    for _ in range(3):
        first.run_epoch(images, draws=part)
    assert part.loss_N.isfinite().sum() >= 40
    resumed, restored = make()
    resumed.restore(
        {name: tensor.clone() for name, tensor in first.tensors().items()}, TrainingProgress(**vars(first.progress))
    )
    restored.restore({name: tensor.clone() for name, tensor in part.tensors().items()})
    train(resumed, lambda _: (images, None), draws=restored)
    assert resumed.progress == straight.progress
    expected = state_of(straight.model)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in state_of(resumed.model).items())
    assert torch.equal(restored.loss_N, table.loss_N)


def test_steps_are_the_budget_of_shorter_epochs() -> None:
    images, trainer = blocks(n=N), trainer_of(epochs=6, steps=36)
    lengths: list[int] = []
    ends: list[int] = [0]

    def note(each: Trainer) -> None:
        lengths.append(each.progress.images - sum(lengths))
        ends.append(each.progress.steps)

    train(trainer, lambda _: (images, None), draws=InfoBatch(unseen(), probability=0.5), after_epoch=note)
    assert trainer.progress.steps == 36
    assert trainer.progress.epoch > 6
    assert lengths[0] == N
    late = [number for number, steps in enumerate(ends[:-1]) if steps >= 0.875 * 36]
    assert max(lengths[1 : late[0]]) < N
    assert all(lengths[number] == min(N, 16 * (36 - ends[number])) for number in late)
