"""The training loop: draws, resumption, weights, forgetting events."""

from __future__ import annotations

import gc
import math
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lipt.data.augmentation import StandardAugment, no_augmentation, normalise
from lipt.data.images import ResidentImages
from lipt.errors import RunError
from lipt.runtime.attempt import Attempt
from lipt.runtime.checkpoint import follow
from lipt.training import forward
from lipt.training.batches import batch_sizes, epoch_rows
from lipt.training.cuda_graphs import Replayed
from lipt.training.dynamics import Dynamics, observe
from lipt.training.forward import accuracies, recalibrate_batchnorm
from lipt.training.loop import Trainer, train
from lipt.training.networks import build_model, on_device
from lipt.training.pruning import prune
from lipt.training.recipe import Recipe, TrainingProgress
from lipt.training.tensor_files import State, pack, state_of, unpack
from tests.tiny import tiny_context
from tests.unit.training.helpers import blocks, with_dropout

CPU = torch.device("cpu")


def make_trainer(seed: int = 0, **changes: object) -> Trainer:
    settings: dict[str, object] = {
        "epochs": 4,
        "batch_size": 16,
        "lr": 0.05,
        "schedule": "cosine",
        "augment": StandardAugment(padding=1, flip=True),
    }
    model = build_model("resnet18", num_classes=4, seed=seed, width=4)
    return Trainer(model, Recipe(**(settings | changes)), seed=seed, device=CPU)  # type: ignore[arg-type]


def fixed(images: ResidentImages, weights: Tensor | None = None):
    return lambda _trainer: (images, weights)


def test_it_learns() -> None:
    trainer = make_trainer(epochs=10, augment=StandardAugment(padding=1, flip=False))
    train(trainer, fixed(blocks()))
    assert accuracies([trainer.model], blocks(seed=1), device=CPU)[0] > 0.9
    assert trainer.progress.loss[-1] < trainer.progress.loss[0] / 2
    assert trainer.progress.images == 10 * 96


def test_a_finished_training_leaves_no_memory_behind(tmp_path: Path) -> None:
    """Also one that could be replayed on a GPU: several jigsaws train one after the other."""
    trainer = make_trainer(epochs=1, batch_size=48)  # two steps, which are not yet recorded
    trainer.replayed = Replayed()
    follow(Attempt(ctx=tiny_context(tmp_path), ref="train/x", label="train"), trainer)
    train(trainer, fixed(blocks()))
    assert trainer.progress.steps == 2
    alive = weakref.ref(trainer.model)
    gc.disable()
    try:
        del trainer
        assert alive() is None
    finally:
        gc.enable()


def test_resuming_repeats_the_run_bit_by_bit() -> None:
    images, straight = blocks(), make_trainer()
    train(straight, fixed(images))
    first = make_trainer()
    first.run_epoch(images)
    first.run_epoch(images)
    tensors = unpack(pack(first.tensors()), origin="the checkpoint")
    resumed = make_trainer(seed=0)
    resumed.restore(tensors, TrainingProgress(**vars(first.progress)))
    for index, buffer in resumed.optimizer.momentum_buffers.items():  # a replayed update wants both alike in memory
        assert buffer.stride() == resumed.optimizer.parameters[index].stride()
    train(resumed, fixed(images))
    assert resumed.progress == straight.progress
    expected = state_of(straight.model)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in state_of(resumed.model).items())


def test_layers_that_draw_repeat_their_draws_also_when_resumed() -> None:
    images, recipe = blocks(), replace(make_trainer().recipe, epochs=3)

    def trained(other_draws: int, saved: tuple[State, TrainingProgress] | None = None) -> list[Any]:
        """The weights at the end, and what a checkpoint after the first epoch holds."""
        trainer, kept = Trainer(with_dropout(4), recipe, seed=5, device=CPU), list[Any]()
        if saved:
            trainer.restore(*saved)
        torch.manual_seed(other_draws)

        def after_epoch(done: Trainer) -> None:
            if done.progress.epoch == 1:
                kept.extend(deepcopy([done.tensors(), done.progress]))

        train(trainer, fixed(images), after_epoch=after_epoch)
        return [state_of(trainer.model), *kept]

    straight, *saved = trained(1)
    for end, *_ in (trained(2), trained(3, (saved[0], saved[1]))):
        assert all(torch.equal(tensor, straight[name]) for name, tensor in end.items())


def test_each_epoch_draws_anew_and_a_resumed_one_repeats_its_draws() -> None:
    """The order of reading, the random crops, the augmentation, and layers that draw."""
    drawn: dict[str, list[float]] = {name: [] for name in ("read", "crop", "augment", "network")}

    class Recorded(ResidentImages):
        def epoch_order(self, rows_K: Tensor, seed: int) -> Tensor:
            drawn["read"].append(seed)
            return super().epoch_order(rows_K, seed)

        def batches(self, rows_K: Tensor, sizes: Sequence[int], seed: int | None = None) -> Iterator[Tensor]:
            assert seed is not None
            drawn["crop"].append(seed)
            return super().batches(rows_K, sizes, seed)

    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classifier = nn.Linear(3 * 8 * 8, 4)

        def forward(self, x: Tensor) -> Tensor:
            drawn["network"].append(float(torch.rand(1)))
            logits: Tensor = self.classifier(x.flatten(1))
            return logits

    def augment(images: Tensor, _rows_P: Tensor, seed: int, /) -> Tensor:
        drawn["augment"].append(seed)
        return images

    images, saved = Recorded(**vars(blocks())), list[Any]()
    recipe = Recipe(epochs=2, batch_size=len(images), lr=0.01, schedule="constant", augment=augment)
    straight, resumed = (Trainer(Drawing(), recipe, seed=5, device=CPU) for _ in range(2))

    def after_epoch(trainer: Trainer) -> None:
        if trainer.progress.epoch == 1:
            saved.extend(deepcopy([trainer.tensors(), trainer.progress]))

    train(straight, fixed(images), after_epoch=after_epoch)
    resumed.restore(*saved)
    train(resumed, fixed(images))
    for name, (first, second, again) in drawn.items():
        assert first != second, name
        assert second == again, name


def test_other_passes_in_train_mode_repeat_their_draws() -> None:
    """The statistics of BatchNorm behind a Dropout layer, and the gradients of SNIP."""
    images = blocks()
    x, labels = normalise(images.images_NCHW), images.labels_N

    def passes(other_draws: int) -> State:
        model = with_dropout(4)
        torch.manual_seed(other_draws)
        recalibrate_batchnorm(model, images, device=CPU)
        prune(model.train(), "snip", 0.5, seed=0, loss=lambda: F.cross_entropy(model(x), labels))
        return state_of(model)

    first, second = passes(0), passes(1)
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_one_step_equals_the_textbook() -> None:
    """SGD with Nesterov momentum and weight decay on the mean loss of one batch, written out."""
    images = blocks(n=8)
    trainer = make_trainer(epochs=1, batch_size=8, schedule="constant", augment=no_augmentation)
    # Without the guard of training/onednn.py, torch's library can end the process.
    reference = on_device(build_model("resnet18", num_classes=4, seed=0, width=4), torch.device("cpu"))
    reference.train()
    order = epoch_rows(8, None, trainer.seed, 0)
    F.cross_entropy(reference(normalise(images.images_NCHW[order])), images.labels_N[order]).backward()
    trainer.run_epoch(images)
    for (name, parameter), updated in zip(reference.named_parameters(), trainer.model.parameters(), strict=True):
        assert parameter.grad is not None
        gradient = parameter.grad + 5e-4 * parameter
        torch.testing.assert_close(updated, parameter - 0.05 * (1 + 0.9) * gradient, msg=name, rtol=1e-4, atol=1e-6)


def test_weights_are_normalised_and_matter() -> None:
    images = blocks()
    results = []
    for weights in (None, torch.full((96,), 7.0), torch.linspace(0.1, 2, 96)):
        trainer = make_trainer(epochs=1)
        train(trainer, fixed(images, weights))
        results.append(state_of(trainer.model)["classifier.weight"])
    torch.testing.assert_close(results[0], results[1])
    assert not torch.allclose(results[0], results[2])


def test_a_fresh_draw_covers_the_pool_before_it_repeats() -> None:
    pool, size = 100, 25
    rows = [epoch_rows(pool, size, seed=3, epoch=epoch) for epoch in range(8)]
    assert all(len(set(part.tolist())) == size for part in rows)
    assert Counter(torch.cat(rows[:4]).tolist()) == Counter(range(pool))
    assert Counter(torch.cat(rows[4:]).tolist()) == Counter(range(pool))
    assert not torch.equal(rows[0], rows[4])


def test_a_pass_of_fresh_draws_leaves_out_what_is_too_little_for_an_epoch() -> None:
    rows = [epoch_rows(10, 4, seed=3, epoch=epoch) for epoch in range(20)]
    passes = [set(torch.cat(rows[start : start + 2]).tolist()) for start in range(0, 20, 2)]
    assert all(len(used) == 8 for used in passes)
    assert set.union(*passes) == set(range(10))  # others each time


def test_a_draw_of_everything_is_a_reshuffle() -> None:
    first, second = epoch_rows(50, None, 1, 0), epoch_rows(50, 50, 1, 1)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(50))
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("n", "size", "expected"), [(10, 4, [4, 3, 3]), (9, 4, [3, 3, 3]), (5, 4, [3, 2]), (1, 4, [1]), (8, 4, [4, 4])]
)
def test_batches_are_equal_up_to_one_image(n: int, size: int, expected: list[int]) -> None:
    assert batch_sizes(n, size) == expected


@given(n=st.integers(1, 3000), size=st.integers(1, 300))
def test_batches_are_few_and_none_is_too_large(n: int, size: int) -> None:
    sizes = batch_sizes(n, size)
    assert sum(sizes) == n
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == -(-n // size)


def test_cosine_ends_at_zero() -> None:
    recipe = Recipe(epochs=1, batch_size=1, lr=0.2, schedule="cosine", augment=no_augmentation)
    assert [recipe.lr_at(x) for x in (0.0, 0.5, 1.0)] == pytest.approx([0.2, 0.1, 0.0])


def test_a_training_records_what_its_forward_passes_say() -> None:
    """With one batch per epoch, the first epoch sees the initial weights in train mode."""
    images = blocks()
    trainer = make_trainer(batch_size=len(images), epochs=3, augment=no_augmentation)
    twin = make_trainer(augment=no_augmentation).model.train()
    dynamics = Dynamics.empty(len(images), 3)
    train(trainer, fixed(images), dynamics=dynamics)
    logits_NC = twin(normalise(images.images_NCHW)).detach()
    p_NC, own_N = logits_NC.softmax(1), images.labels_N
    rows_N = torch.arange(len(images))
    torch.testing.assert_close(dynamics.p_NT[:, 0], p_NC[rows_N, own_N], rtol=1e-4, atol=1e-5)
    error_NC = p_NC - torch.nn.functional.one_hot(own_N, 4)
    torch.testing.assert_close(dynamics.error_NT[:, 0], error_NC.norm(dim=1), rtol=1e-4, atol=1e-5)
    others_NC = logits_NC.masked_fill(torch.nn.functional.one_hot(own_N, 4).bool(), -math.inf)
    torch.testing.assert_close(
        dynamics.margin_NT[:, 0], logits_NC[rows_N, own_N] - others_NC.amax(1), rtol=1e-4, atol=1e-4
    )
    for epoch, accuracy in enumerate(trainer.progress.accuracy):
        assert (dynamics.margin_NT[:, epoch] > 0).float().mean() == pytest.approx(accuracy)


def test_an_observation_keeps_its_digits_where_p_rounds_to_one() -> None:
    p, error, margin = observe(torch.tensor([[40.0, 0.0, -3.0]]), torch.tensor([0]))[0].tolist()
    assert (p, margin) == (1.0, 40.0)
    assert error == pytest.approx(math.sqrt(2) * math.exp(-40), rel=0.06)  # the other class has e^-43 more


@pytest.mark.parametrize("steps", [1, 5, 8, 11])
def test_steps_end_a_training_within_an_epoch(steps: int) -> None:
    images = blocks()
    per_epoch = len(batch_sizes(len(images), 16))
    trainer = make_trainer(steps=steps, epochs=math.ceil(steps / per_epoch))
    rates: list[float] = []
    step = trainer.optimizer.step
    trainer.optimizer.step = lambda lr: (rates.append(lr), step(lr))[1]  # type: ignore[method-assign]
    shown: list[tuple[int, int]] = []
    trainer.advance = lambda done, total: shown.append((done, total))
    train(trainer, fixed(images))
    assert trainer.progress.steps == len(rates) == steps
    assert shown[-1] == (trainer.progress.images, trainer.progress.images)
    assert [total for _, total in shown] == pytest.approx([trainer.progress.images] * steps, abs=len(images) / 16)
    assert rates == pytest.approx([0.05 * 0.5 * (1 + math.cos(math.pi * done / steps)) for done in range(steps)])


def test_divergence_is_one_clear_error() -> None:
    trainer = make_trainer(lr=1e12, schedule="constant", epochs=3)
    with pytest.raises(RunError, match=r"loss is .* in epoch"):
        train(trainer, fixed(blocks()))


def test_models_are_judged_in_eval_mode_each_for_itself_on_images_that_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Constant(nn.Module):
        def __init__(self, answer: int) -> None:
            super().__init__()
            self.answer = answer

        def forward(self, x: Tensor) -> Tensor:
            assert not self.training
            return nn.functional.one_hot(torch.tensor(self.answer), 4).float().expand(len(x), 4)

    read = []

    class Counted(ResidentImages):
        def batches(self, rows_K: Tensor, sizes: Sequence[int], seed: int | None = None) -> Iterator[Tensor]:
            read.append(len(rows_K))
            return super().batches(rows_K, sizes, seed)

    images = blocks(n=40)
    labels_N = torch.tensor([0] * 25 + [1] * 10 + [2] * 5)
    counted = Counted(images_NCHW=images.images_NCHW, labels_N=labels_N)
    monkeypatch.setattr(forward, "evaluation_batch", lambda _device: 7)
    shares = accuracies([Constant(answer) for answer in (1, 0, 3)], counted, device=CPU)
    assert shares == pytest.approx([10 / 40, 25 / 40, 0])
    assert read == [40]
