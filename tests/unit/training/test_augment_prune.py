"""Augmentation and pruning."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lipt.data.augmentation import Augment, StandardAugment, no_augmentation, normalise
from lipt.data.randaugment import RandAugment, operations_at
from lipt.stages.pretrain import _batch_loss
from lipt.training.networks import build_model, on_device
from lipt.training.pruning import PruningMethod, draw_density, prunable, prune
from tests.tiny import tiny_context
from tests.unit.training.helpers import blocks

IMAGES = torch.randint(0, 256, (64, 3, 12, 10), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
ROWS = torch.randperm(1000, generator=torch.Generator().manual_seed(1))[: len(IMAGES)]
AUGMENTS: dict[str, Augment] = {
    "shift and flip": StandardAugment(padding=2, flip=True),
    "randaugment": RandAugment(num_ops=2, magnitude=9),
    "none": no_augmentation,
}


@pytest.mark.parametrize("flip", [True, False])
def test_shift_and_flip_equal_the_naive_crop_of_each_padded_image(flip: bool) -> None:
    views = StandardAugment(padding=2, flip=flip)(IMAGES, ROWS, 5)
    found = Counter()
    for image, view in zip(IMAGES, views, strict=True):
        padded = F.pad(image, [2] * 4)
        places = [
            (y, x, mirrored)
            for y in range(5)
            for x in range(5)
            for mirrored in (False, True)
            for crop in [padded[:, y : y + 12, x : x + 10]]
            if torch.equal(view, crop.flip(2) if mirrored else crop)
        ]
        assert len(places) == 1
        found.update(enumerate(places[0]))
    assert all(found[axis, place] for axis in (0, 1) for place in range(5))
    assert (16 < found[2, True] < 48) if flip else not found[2, True]


@pytest.mark.parametrize("name", AUGMENTS)
def test_a_view_depends_on_seed_and_row_alone(name: str) -> None:
    augment = AUGMENTS[name]
    torch.manual_seed(0)
    before = IMAGES.clone()
    whole = augment(IMAGES, ROWS, 3)
    assert (whole.shape, whole.dtype) == (IMAGES.shape, torch.uint8)
    assert torch.equal(IMAGES, before)
    torch.manual_seed(99)
    for part in torch.randperm(len(ROWS)).split(23):
        assert torch.equal(augment(IMAGES[part], ROWS[part], 3), whole[part])
    assert augment(IMAGES[:0], ROWS[:0], 3).shape == IMAGES[:0].shape
    if name != "none":
        assert not torch.equal(whole, augment(IMAGES, ROWS, 4))


@pytest.mark.parametrize("magnitude", [0, 2, 9, 17, 30])
@pytest.mark.parametrize("shape", [(12, 10), (32, 32), (2, 5)])
def test_the_operations_are_those_of_torchvision(magnitude: int, shape: tuple[int, int]) -> None:
    from torchvision.transforms.v2 import RandAugment as Transform

    reference = Transform(num_ops=1, magnitude=magnitude)
    noise = torch.randint(0, 256, (12, 3, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    smooth = F.interpolate(noise[:, :, :2, :2].float(), shape, mode="bilinear").to(torch.uint8)
    flat = torch.arange(36, dtype=torch.uint8).view(12, 3, 1, 1).expand(12, 3, *shape).contiguous() * 7
    images = torch.cat([noise, smooth, flat])
    ours = operations_at(magnitude, *shape)
    assert list(ours) == list(reference._AUGMENTATION_SPACE)
    for name, (magnitudes, signed) in reference._AUGMENTATION_SPACE.items():
        values = magnitudes(31, *shape)
        value = 0.0 if values is None else float(values[magnitude])
        assert len(ours[name]) == (2 if signed else 1)
        for sign, operation in zip((1, -1), ours[name], strict=False):
            expected = reference._apply_image_or_video_transform(
                images, name, sign * value, interpolation=reference.interpolation, fill=reference._fill
            )
            assert torch.equal(operation(images), expected), (name, sign)


def test_randaugment_draws_one_operation_per_image() -> None:
    expected = {
        (name, sign): operation(IMAGES)
        for name, signs in operations_at(9, 12, 10).items()
        for sign, operation in enumerate(signs)
    }
    drawn = set()
    for seed in range(8):
        for index, view in enumerate(RandAugment(num_ops=1, magnitude=9)(IMAGES, ROWS, seed)):
            same = {key for key, images in expected.items() if torch.equal(images[index], view)}
            assert same
            drawn |= same
    assert drawn == set(expected)


def test_normalise_is_channelwise() -> None:
    x = normalise(torch.full((1, 3, 2, 2), 255, dtype=torch.uint8))
    expected = [(1 - mean) / std for mean, std in zip((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), strict=True)]
    torch.testing.assert_close(x[0, :, 0, 0], torch.tensor(expected))


def guarded() -> nn.Module:
    """A network as trainings have it. Without the guard of training/onednn.py, torch's library can end the process."""
    return on_device(build_model("resnet18", num_classes=4, seed=0, width=4), torch.device("cpu"))


@pytest.mark.parametrize("method", ["magnitude", "random", "snip"])
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_density_is_exact_and_only_weights_are_touched(method: PruningMethod, scope: str) -> None:
    model, images = guarded(), blocks()
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
    model = nn.Sequential(nn.Linear(6, 3, bias=False))
    x, y = torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
    weight = model[0].weight
    saliency = (weight * torch.autograd.grad(F.cross_entropy(model(x), y), weight)[0]).abs().flatten()
    prune(model, "snip", 0.5, seed=0, loss=lambda: F.cross_entropy(model(x), y))
    assert set(saliency.argsort()[:9].tolist()) == set((weight == 0).flatten().nonzero().flatten().tolist())


class Partly(nn.Module):
    """A user's network: a frozen layer, one that takes no part, and two that share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.unused = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8)
        self.first, self.second, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.second(self.first(self.frozen(x))))
        return y


@pytest.mark.parametrize("method", ["magnitude", "random", "snip"])
def test_weights_of_a_users_network(method: PruningMethod) -> None:
    model, x = Partly(), torch.randn(5, 8)
    frozen = model.frozen.weight.clone()
    assert set(prunable(model)) == {"unused.weight", "first.weight", "head.weight"}
    assert prune(model, method, 0.5, seed=0, scope="layer", loss=lambda: model(x).square().sum()) == 0.5
    assert torch.equal(model.frozen.weight, frozen)
    assert int((model.second.weight == 0).sum()) == 32
    assert prune(model.requires_grad_(False), method, 0.5, seed=0) == 1.0


def test_snip_leaves_the_batchnorm_statistics() -> None:
    """Its forward pass is one of the training, which would move them."""
    model, images = guarded().train(), blocks()
    before = [buffer.clone() for buffer in model.buffers()]
    x, y = normalise(images.images_NCHW), images.labels_N
    prune(model, "snip", 0.8, seed=0, loss=lambda: F.cross_entropy(model(x), y))
    assert all(map(torch.equal, model.buffers(), before))


def test_snip_takes_labels_to_the_device_of_the_images(tmp_path: Path) -> None:
    """Labels stay in memory. The meta device refuses them like a GPU."""
    ctx = tiny_context(tmp_path, {"pretrain": {"prune": "snip"}})
    vars(ctx)["device"] = device = torch.device("meta")
    model = build_model("resnet18", num_classes=4, seed=0, width=4).to(device)
    assert _batch_loss(model, blocks(), ctx)().device == device


def test_no_pruning_and_random_density() -> None:
    model = build_model("resnet18", num_classes=4, seed=0, width=4)
    assert prune(model, "none", 0.5, seed=0) == 1.0
    drawn = [draw_density(0.85, 0.95, seed=seed) for seed in range(50)]
    assert len(set(drawn)) == 50
    assert 0.85 <= min(drawn) < 0.87
    assert 0.93 < max(drawn) <= 0.95
