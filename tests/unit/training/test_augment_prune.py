"""Augmentation and pruning."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lipt.data.augmentation import RandAugment, StandardAugment, normalise
from lipt.training.networks import build_model
from lipt.training.pruning import PruningMethod, draw_density, prunable, prune
from tests.unit.training.helpers import blocks

IMAGES = torch.randint(0, 256, (64, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def test_shift_equals_the_naive_crop_of_a_padded_image() -> None:
    shifted = StandardAugment(padding=2, flip=False, resized=False)(IMAGES, 5)
    padded = F.pad(IMAGES, [2] * 4)
    for index in range(len(IMAGES)):
        crops = [padded[index, :, y : y + 8, x : x + 8] for y in range(5) for x in range(5)]
        assert any(torch.equal(shifted[index], crop) for crop in crops)
    assert not torch.equal(shifted, IMAGES)


def test_flip_mirrors_about_half() -> None:
    flipped = StandardAugment(padding=0, flip=True, resized=False)(IMAGES, 1)
    mirrored = [torch.equal(a, b.flip(2)) for a, b in zip(flipped, IMAGES, strict=True)]
    kept = [torch.equal(a, b) for a, b in zip(flipped, IMAGES, strict=True)]
    assert all(m or k for m, k in zip(mirrored, kept, strict=True))
    assert 16 < sum(mirrored) < 48


@pytest.mark.parametrize(
    "augment",
    [
        StandardAugment(padding=2, flip=True, resized=False),
        StandardAugment(padding=0, flip=True, resized=True),
        RandAugment(num_ops=2, magnitude=9),
    ],
)
def test_a_view_depends_on_its_seed_alone(augment: StandardAugment | RandAugment) -> None:
    torch.manual_seed(0)
    first = augment(IMAGES, 3)
    torch.manual_seed(99)
    assert torch.equal(first, augment(IMAGES, 3))
    assert not torch.equal(first, augment(IMAGES, 4))
    assert (first.shape, first.dtype) == (IMAGES.shape, torch.uint8)


def test_normalise_is_channelwise() -> None:
    x = normalise(torch.full((1, 3, 2, 2), 255, dtype=torch.uint8))
    expected = [(1 - mean) / std for mean, std in zip((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), strict=True)]
    torch.testing.assert_close(x[0, :, 0, 0], torch.tensor(expected))


@pytest.mark.parametrize("method", ["magnitude", "random", "snip"])
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_density_is_exact_and_only_weights_are_touched(method: PruningMethod, scope: str) -> None:
    model, images = build_model("resnet18", num_classes=4, seed=0, width=4), blocks()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x, y = normalise(images.images_NCHW), images.labels_N
    reached = prune(model, method, 0.8, seed=1, scope=scope, loss=lambda: F.cross_entropy(model.eval()(x), y))  # type: ignore[arg-type]
    assert reached == pytest.approx(0.8, abs=0.002)
    weights = prunable(model)
    for name, tensor in model.state_dict().items():
        if name not in weights:
            assert torch.equal(tensor, before[name]), name
        else:
            assert torch.equal(tensor[tensor != 0], before[name][tensor != 0]), name
            if scope == "layer":
                assert int((tensor != 0).sum()) == round(0.8 * tensor.numel())


def test_magnitude_drops_the_smallest_of_the_whole_model() -> None:
    model = build_model("resnet18", num_classes=4, seed=0, width=4)
    before = torch.cat([weight.detach().abs().flatten() for weight in prunable(model).values()])
    prune(model, "magnitude", 0.7, seed=0)
    after = torch.cat([weight.detach().abs().flatten() for weight in prunable(model).values()])
    assert before[after == 0].max() <= before[after != 0].min()


def test_snip_keeps_what_the_loss_depends_on() -> None:
    """|w dL/dw| on a linear layer, against autograd written out."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 3, bias=False))
    x, y = torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
    weight = model[0].weight
    saliency = (weight * torch.autograd.grad(F.cross_entropy(model(x), y), weight)[0]).abs().flatten()
    prune(model, "snip", 0.5, seed=0, loss=lambda: F.cross_entropy(model(x), y))
    assert set(saliency.argsort()[:9].tolist()) == set((weight == 0).flatten().nonzero().flatten().tolist())


def test_no_pruning_and_random_density() -> None:
    model = build_model("resnet18", num_classes=4, seed=0, width=4)
    assert prune(model, "none", 0.5, seed=0) == 1.0
    drawn = [draw_density(0.85, 0.95, seed=seed) for seed in range(50)]
    assert len(set(drawn)) == 50
    assert 0.85 <= min(drawn) < 0.87
    assert 0.93 < max(drawn) <= 0.95
