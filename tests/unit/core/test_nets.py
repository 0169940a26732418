"""Networks: sizes of the paper, seeds, the user's own model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lipt.core.nets import build_model, logits_and_features, train_flops_per_image
from lipt.errors import UsageError


@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [("resnet18", 10, 11_173_962), ("wrn28_10", 100, 36_536_884), ("torchvision.wide_resnet50_2", 1000, 68_883_240)],
)
def test_parameter_counts_of_the_literature(name: str, classes: int, parameters: int) -> None:
    model = build_model(name, num_classes=classes, seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_resnet18_flops() -> None:
    forward, both = train_flops_per_image(build_model("resnet18", num_classes=10, seed=0), (3, 32, 32))
    assert forward == pytest.approx(2 * 0.5554e9, rel=0.01)  # 0.56 GMAC (Kuangliu's CIFAR ResNet-18)
    assert both == pytest.approx(3 * forward, rel=0.01)


def test_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = build_model("resnet18", num_classes=3, seed=5, width=8).state_dict()
    torch.manual_seed(2)
    before = torch.rand(1)
    torch.manual_seed(2)
    again = build_model("resnet18", num_classes=3, seed=5, width=8).state_dict()
    assert torch.equal(torch.rand(1), before)  # the global generator is left alone
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = build_model("resnet18", num_classes=3, seed=6, width=8).state_dict()
    assert not torch.equal(first["stem.weight"], other["stem.weight"])


@pytest.mark.parametrize("name", ["resnet18", "wrn28_10"])
def test_features_are_the_classifiers_input(name: str) -> None:
    model = build_model(name, num_classes=4, seed=0, width=8).eval()
    logits, features = logits_and_features(model, torch.randn(3, 3, 16, 16))
    classifier = model.get_submodule("classifier")
    torch.testing.assert_close(classifier(features), logits)
    assert features.shape == (3, classifier.in_features)


def own_model(num_classes: int) -> nn.Module:
    """A user's model, named by `test_nets:own_model`."""
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, num_classes))


def not_a_model(num_classes: int) -> int:
    return num_classes


def test_own_model_by_import_path() -> None:
    model = build_model(f"{__name__}:own_model", num_classes=5, seed=0, classifier="3")
    logits, features = logits_and_features(model, torch.randn(2, 3, 2, 2))
    assert (logits.shape, features.shape) == ((2, 5), (2, 6))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet81", {}, "did you mean 'resnet18'"),
        ("torchvision.resnet18", {"width": 8}, "fixed width"),
        ("no.such.module:net", {}, "cannot import"),
        (f"{__name__}:nothing", {}, "cannot import"),
        (f"{__name__}:not_a_model", {}, "not an nn.Module"),
        (f"{__name__}:own_model", {}, "is not a linear layer"),
        (f"{__name__}:own_model", {"classifier": "2"}, "is not a linear layer"),
        (f"{__name__}:own_model", {"classifier": "1"}, "6 outputs for 5 classes"),
    ],
)
def test_errors_name_the_remedy(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_model(name, num_classes=5, seed=0, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert caught.value.remedy
