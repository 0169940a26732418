"""RaPTr: draws, skipped blocks, rescaling, FLOPs, resumption, BatchNorm, each against a naive reference."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lipt.config import parse_config
from lipt.data.augmentation import StandardAugment, no_augmentation
from lipt.data.images import ResidentImages
from lipt.errors import UsageError
from lipt.flow.checks.model import check_model
from lipt.rng import generator
from lipt.training.batches import batch_sizes
from lipt.training.flops import CountFlops, flops_per_image
from lipt.training.forward import recalibrate_batchnorm
from lipt.training.loop import Trainer, train
from lipt.training.networks import build_model
from lipt.training.raptr import (
    RaptrSchedule,
    Subnetworks,
    block_flops,
    recalibrate,
    saved_flops,
    skippable_blocks,
)
from lipt.training.recipe import Recipe, TrainingProgress
from lipt.training.tensor_files import state_of
from tests.unit.training.helpers import blocks, smooth_residual

CPU = torch.device("cpu")
RAPTR = RaptrSchedule(keep=(0.3, 0.6, 1.0))
#: name -> (width, side of the images)
NETWORKS: dict[str, tuple[int | None, int]] = {
    "resnet18": (4, 8),
    "wrn28_10": (4, 8),
    "vit_small": (16, 8),
    "torchvision.resnet18": (None, 32),
    "torchvision.wide_resnet50_2": (None, 32),
}


def network(name: str) -> nn.Module:
    return build_model(name, num_classes=4, seed=0, width=NETWORKS[name][0])


def make_trainer(
    name: str = "resnet18", raptr: RaptrSchedule | None = RAPTR, epochs: int = 6, steps: int | None = None
) -> Trainer:
    augment = StandardAugment(padding=1, flip=True)
    recipe = Recipe(epochs=epochs, batch_size=20, lr=0.05, schedule="cosine", augment=augment, raptr=raptr, steps=steps)
    return Trainer(network(name), recipe, seed=1, device=CPU)


def state(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.tensors().items()}


@pytest.mark.parametrize(
    ("name", "side", "count", "share", "saved", "saved_unfixed"),
    [
        ("resnet18", 32, 5, 0.68, 0.10, 0.17),
        ("wrn28_10", 32, 9, 0.81, 0.16, 0.20),
        ("vit_small", 16, 8, 0.99, 0.19, 0.25),
    ],
)
def test_the_blocks_that_can_be_skipped(
    name: str, side: int, count: int, share: float, saved: float, saved_unfixed: float
) -> None:
    """Blocks whose shortcut is the identity, their share of the FLOPs, and what a mean p of .75 saves."""
    model = build_model(name, num_classes=10, seed=0, width={"wrn28_10": 80}.get(name))
    flops = block_flops(model, skippable_blocks(model), (3, side, side))
    whole = flops_per_image(model, (3, side, side)).training
    assert len(flops) == count
    assert sum(flops.values()) / whole == pytest.approx(share, abs=0.01)
    for fixed, expected in ((1, saved), (0, saved_unfixed)):
        chosen = RaptrSchedule(keep=(0.5, 1.0), fixed_first=fixed, fixed_last=fixed).choose(list(flops))
        assert 0.25 * sum(flops[block] for block in chosen) / whole == pytest.approx(expected, abs=0.01)


def test_torchvisions_blocks() -> None:
    counts = [len(skippable_blocks(network(f"torchvision.{name}"))) for name in ("resnet18", "wide_resnet50_2")]
    assert counts == [5, 12]


def naive_block(block: Any, x: Tensor, factor: float) -> Tensor:
    """x + factor * (what the block adds), written out for each kind of block."""
    kind = type(block).__name__
    if kind == "TransformerBlock":
        q, k, v = block.qkv(block.norm1(x)).unflatten(2, (3, block.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v
        x = x + factor * block.project(mixed.transpose(1, 2).flatten(2))
        return x + factor * block.shrink(F.gelu(block.grow(block.norm2(x))))
    if kind == "PreActBlock":
        out = block.conv1(F.relu(block.bn1(x)))
        return x + factor * block.conv2(F.relu(block.bn2(out)))
    out = F.relu(block.bn1(block.conv1(x)))
    out = block.bn2(block.conv2(out))
    if kind == "Bottleneck":
        out = block.bn3(block.conv3(F.relu(out)))
    return F.relu(x + factor * out)


@pytest.mark.parametrize("rescale", ["inverse", "inverse_sqrt"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_subnetwork_equals_the_naive_one(name: str, rescale: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    p, side = 0.5, NETWORKS[name][1]
    model = network(name).train()
    subnetworks = Subnetworks(model, RaptrSchedule(keep=(p, 1.0), rescale=rescale), seed=2)
    reference = copy.deepcopy(model)
    x = torch.randn(6, 3, side, side, generator=generator(0))
    with subnetworks.drawn(0, 0, 0.0) as skipped:
        found = model(x)
    assert 0 < len(skipped) < len(subnetworks.blocks)
    factor = {"inverse": 1 / p, "inverse_sqrt": 1 / math.sqrt(p)}[rescale]
    for block in subnetworks.blocks:
        module = reference.get_submodule(block)
        monkeypatch.setattr(
            module,
            "forward",
            lambda x, module=module, runs=block not in skipped: naive_block(module, x, factor) if runs else x,
        )
    torch.testing.assert_close(found, reference(x), rtol=1e-4, atol=1e-5)
    whole = copy.deepcopy(model).eval()(x)
    assert not torch.allclose(found, whole, rtol=1e-2)
    assert torch.equal(model.eval()(x), whole)  # outside of a step the model is the full network


@pytest.mark.parametrize("name", ["resnet18", "wrn28_10", "vit_small"])
def test_a_step_leaves_skipped_blocks_as_they_are(name: str) -> None:
    """Weights, momentum and BatchNorm statistics keep their bits; those of the blocks that run change."""
    trainer, images = make_trainer(name, epochs=2), blocks()
    subnetworks, steps = trainer.subnetworks, len(batch_sizes(len(images), 20))
    parameters = [name for name, _ in trainer.model.named_parameters()]
    before, seen = state(trainer), set()

    def after_step(done: int, _count: int) -> None:
        nonlocal before
        progress = trainer.progress
        now, step, epoch = state(trainer), math.ceil((done - progress.images) / 20) - 1, progress.epoch
        share = torch.tensor([(epoch + step / steps) / 2], dtype=torch.float64)
        (runs_D,) = RAPTR.draw(len(subnetworks.blocks), 1, epoch, torch.tensor([step]), share)
        for block, runs in zip(subnetworks.blocks, runs_D.tolist(), strict=True):
            own = [f"model/{key}" for key in state_of(trainer.model) if key.startswith(f"{block}.")]
            momenta = [f"momentum/{i}" for i, key in enumerate(parameters) if key.startswith(f"{block}.")]
            old = {key: before.get(key) for key in own + momenta}
            same = [key in now and value is not None and torch.equal(now[key], value) for key, value in old.items()]
            started = momenta[0] in before
            seen.add((runs, started))
            if runs:
                assert not any(same), block
            else:
                assert all(same) if started else all(same[: len(own)]) and not now.keys() & set(momenta), block
        before = now

    trainer.advance = after_step
    train(trainer, lambda _trainer: (images, None))
    assert seen == {(True, False), (True, True), (False, False), (False, True)}


@pytest.mark.parametrize("steps", [None, 21])
@pytest.mark.parametrize("name", ["resnet18", "wrn28_10", "vit_small"])
def test_flops_are_those_of_the_executed_blocks(name: str, steps: int | None) -> None:
    """torch counts the FLOPs of the training while it runs; and the prediction is exact."""
    trainer, images = make_trainer(name, steps=steps), blocks(n=70)
    with CountFlops() as counted:
        train(trainer, lambda _trainer: (images, None))
    progress, shape = trainer.progress, (3, 8, 8)
    whole = progress.images * flops_per_image(trainer.model, shape).training
    assert whole - saved_flops(trainer.model, progress.skipped, shape) == counted.total < 0.95 * whole
    expected = RAPTR.skipped_images(trainer.subnetworks.blocks, 1, 6, batch_sizes(70, 20), steps)
    assert progress.skipped == {block: count for block, count in expected.items() if count}


def test_resuming_repeats_the_run_bit_by_bit() -> None:
    images, straight, first, resumed = blocks(), make_trainer(), make_trainer(), make_trainer()
    train(straight, lambda _trainer: (images, None))
    first.run_epoch(images)
    first.run_epoch(images)
    resumed.restore(state(first), TrainingProgress(**copy.deepcopy(vars(first.progress))))
    train(resumed, lambda _trainer: (images, None))
    assert resumed.progress == straight.progress
    expected = straight.tensors()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.tensors().items())


def test_the_mean_depth_of_each_stage_is_that_of_the_schedule() -> None:
    """Each block runs as often as p says, within 5 standard deviations: a wrong draw fails, chance at 1 in 10^6."""
    epochs, steps, count, keep = 40, 100, 7, (0.2, 0.5, 0.5, 0.9)
    raptr = RaptrSchedule(keep=(*keep, 1.0))
    share_ES = (torch.arange(epochs)[:, None] + torch.arange(steps) / steps).double() / epochs
    runs_ESD = torch.stack(
        [raptr.draw(count, 3, epoch, torch.arange(steps), share_ES[epoch]) for epoch in range(epochs)]
    )
    for stage, p in enumerate(keep):
        drawn_SD = runs_ESD[8 * stage : 8 * stage + 8].flatten(0, 1).double()  # 8 of 40 epochs: a fifth
        bound = 5 * math.sqrt(p * (1 - p) / 800)
        assert ((drawn_SD.mean(0) - p).abs() < bound).all()
        assert float(drawn_SD.sum(1).mean()) == pytest.approx(count * p, abs=5 * math.sqrt(count * p * (1 - p) / 800))
        # Blocks are drawn one by one: the depth has the variance of independent draws.
        assert float(drawn_SD.sum(1).var()) == pytest.approx(count * p * (1 - p), rel=0.3)
    assert runs_ESD[32:].all()
    assert not torch.equal(runs_ESD[0], runs_ESD[1])
    assert not torch.equal(runs_ESD[0], raptr.draw(count, 4, 0, torch.arange(steps), share_ES[0]))


def test_the_last_stage_trains_the_full_network() -> None:
    model = network("resnet18").train()
    x = torch.randn(6, 3, 8, 8, generator=generator(0))
    expected = copy.deepcopy(model)(x)
    with Subnetworks(model, RAPTR, seed=0).drawn(5, 3, 2 / 3) as skipped:
        assert torch.equal(model(x), expected)
    assert not skipped


def test_batchnorm_is_that_of_the_full_network_afterwards() -> None:
    trainer, images = make_trainer(raptr=RaptrSchedule(keep=(0.2, 0.2, 0.2, 1.0)), epochs=3), blocks(n=300)
    trainer.run_epoch(images)
    reference = copy.deepcopy(trainer.model)
    augment, rows = trainer.recipe.augment, torch.arange(256)
    seen = ResidentImages(images_NCHW=augment(images.images_NCHW[:256], rows, 7), labels_N=images.labels_N[:256])
    recalibrate_batchnorm(reference, seen, device=CPU)
    before = state_of(trainer.model)
    assert recalibrate(trainer.model, images, augment=augment, seed=7, device=CPU, precision="fp32") == 256
    expected, found = state_of(reference), state_of(trainer.model)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
    assert not torch.allclose(found["blocks.3.bn1.running_var"], before["blocks.3.bn1.running_var"], rtol=0.05)


def test_the_branch_of_a_users_block_must_exist() -> None:
    model = smooth_residual(num_classes=4)
    block = model.features[6]
    block.branch_ends = "norm"  # a tuple of one name, whose comma was forgotten
    assert skippable_blocks(model) == ["features.6", "features.7"]
    block.branch_ends = ("conv", "nrom")
    with pytest.raises(UsageError, match=r"features\.6 has no module 'nrom'\n  -> correct the branch_ends of Residual"):
        skippable_blocks(model)
    block.branch_ends = ("conv",)
    block.conv.branch_ends = ("0",)  # type: ignore[assignment]
    with pytest.raises(UsageError, match=r"block features\.6\.conv lies in block features\.6\n"):
        skippable_blocks(model)


class Frozen(nn.Sequential):
    """A user's network whose first BatchNorm stays in eval mode."""

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self[1].eval()
        return self


def test_frozen_statistics_stay() -> None:
    model, images = Frozen(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)), blocks()
    model[1].running_mean.fill_(5)
    recalibrate(model, images, augment=no_augmentation, seed=0, device=CPU, precision="fp32")
    assert model[1].running_mean.tolist() == [5] * 4
    assert model[3].running_mean.abs().min() > 0


def test_a_network_without_batchnorm_is_not_recalibrated() -> None:
    model = network("vit_small")
    assert recalibrate(model, blocks(), augment=no_augmentation, seed=0, device=CPU, precision="fp32") == 0
    assert model.training


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": [0.5, 0.9]}, "end with 1"),
        ({"keep": [0.0, 1.0]}, "above 0"),
        ({"keep": [0.9, 0.5, 1.0]}, "never fall"),
        ({"keep": [1.0]}, "at least 2"),
        ({"rescale": "sqrt"}, "rescale"),
        ({"fixed_first": -1}, "fixed_first"),
        ({"depth": 3}, "unknown key"),
    ],
)
@pytest.mark.parametrize("section", ["initialise", "train"])
def test_wrong_settings_are_one_line(section: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config({section: {"raptr": settings}})
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert f"{section}.raptr" in caught.value.message


@pytest.mark.parametrize("section", ["initialise", "train"])
def test_a_network_that_no_step_can_shorten_is_refused(section: str) -> None:
    config = parse_config({"model": {"width": 4}, section: {"raptr": {"fixed_first": 3, "fixed_last": 2}}})
    with pytest.raises(UsageError, match=f"^{section}.raptr: the network has 5 blocks .* leave none"):
        check_model(config, None)
    assert check_model(parse_config({"model": {"width": 4}, section: {"raptr": {}}}), None) > 0
