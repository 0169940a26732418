"""Networks: sizes of the paper, seeds, the user's own model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lipt.errors import UsageError
from lipt.selection.inputs.dataset import logits_and_features
from lipt.training.flops import flops_per_image
from lipt.training.networks import build_model, on_device


@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [("resnet18", 10, 11_173_962), ("wrn28_10", 100, 36_536_884), ("torchvision.wide_resnet50_2", 1000, 68_883_240)],
)
def test_parameter_counts_of_the_literature(name: str, classes: int, parameters: int) -> None:
    model = build_model(name, num_classes=classes, seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_resnet18_flops() -> None:
    forward, both = flops_per_image(build_model("resnet18", num_classes=10, seed=0), (3, 32, 32))
    assert forward == pytest.approx(2 * 0.5554e9, rel=0.01)  # 0.56 GMAC (Kuangliu's CIFAR ResNet-18)
    assert both == pytest.approx(3 * forward, rel=0.01)


class Attention(nn.Module):
    """Products of matrices that are no layers."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.classifier = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(1, 2)[:, :6].transpose(1, 2)
        y: torch.Tensor = self.classifier(self.attention(rows, rows, rows)[0].mean(1))
        return y


@pytest.mark.parametrize("name", ["wrn28_10", "torchvision.resnet18", "vit_small", "attention"])
def test_flops_are_those_that_torch_counts(name: str) -> None:
    width = {"wrn28_10": 8, "vit_small": 16}.get(name)
    model = Attention() if name == "attention" else build_model(name, num_classes=4, seed=0, width=width)
    with FlopCounterMode(display=False) as forward:
        loss = model.eval()(torch.zeros(1, 3, 32, 32)).sum()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    expected = forward.get_total_flops(), forward.get_total_flops() + backward.get_total_flops()
    assert flops_per_image(model, (3, 32, 32)) == expected
    assert expected[1] > expected[0] > 0


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_flops_of_convolutions(kind: type[nn.Conv2d | nn.ConvTranspose2d], groups: int) -> None:
    """Each weight is used once per place: in the forward pass, for its own gradient, and for that of the input."""
    model = nn.Sequential(kind(3, 8, 1), kind(8, 16, 3, stride=2, groups=groups))
    first, second = 2 * 3 * 8 * 81, 2 * 9 * 8 * 16 // groups * (16 if kind is nn.Conv2d else 81)
    # The images need no gradient.
    assert flops_per_image(model, (3, 9, 9)) == (first + second, 2 * first + 3 * second)


def test_channels_last_leaves_tensors_that_have_no_such_format() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(1, 2, 3))
    model.register_buffer("mask", torch.zeros(2, 3, 4, 5))
    on_device(model, torch.device("cpu"))
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert model.mask.is_contiguous(memory_format=torch.channels_last)
    assert model[1].weight.is_contiguous()


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


@pytest.mark.parametrize("name", ["resnet18", "wrn28_10", "vit_small"])
def test_features_are_the_classifiers_input(name: str) -> None:
    model = build_model(name, num_classes=4, seed=0, width=16).eval()
    logits, features = logits_and_features(model, torch.randn(3, 3, 16, 16))
    classifier = model.get_submodule("classifier")
    torch.testing.assert_close(classifier(features), logits)
    assert features.shape == (3, classifier.in_features)


def test_an_image_that_is_too_large_for_the_vision_transformer_is_refused() -> None:
    model = build_model("vit_small", num_classes=4, seed=0, width=16)
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 4)
    with pytest.raises(UsageError, match="up to 64 pixels, not 65"):
        model(torch.zeros(1, 3, 8, 65))


@pytest.mark.parametrize(("height", "width"), [(3, 3), (30, 30), (8, 6)])
def test_an_image_that_patches_do_not_fill_is_refused(height: int, width: int) -> None:
    model = build_model("vit_small", num_classes=4, seed=0, width=16)
    with pytest.raises(UsageError, match=f"fill {width} x {height}\n  -> set data.image_size to a multiple of 4"):
        model(torch.zeros(1, 3, height, width))


def test_the_blocks_of_the_vision_transformer_are_those_of_torch() -> None:
    """torch's pre-LN encoder layer with the same weights, over the patches that are cut out one by one."""
    model = build_model("vit_small", num_classes=4, seed=0, width=32).eval()
    x = torch.randn(3, 3, 12, 8, generator=torch.Generator().manual_seed(0))
    parts = dict(model.named_modules())
    rows = []
    for top in range(0, 12, 4):
        for left in range(0, 8, 4):
            patch = x[:, :, top : top + 4, left : left + 4].flatten(1)
            projected = patch @ parts["patches"].weight.flatten(1).T + parts["patches"].bias
            rows.append(projected + model.positions[top // 4, left // 4])
    tokens = torch.stack(rows, 1)
    names = {
        "qkv.": "self_attn.in_proj_", "project.": "self_attn.out_proj.", "grow.": "linear1.", "shrink.": "linear2.",
    }  # fmt: skip
    for block in parts["blocks"]:
        layer = nn.TransformerEncoderLayer(32, 2, 128, activation="gelu", batch_first=True, norm_first=True).eval()
        weights = block.state_dict()
        for ours, theirs in names.items():
            weights = {name.replace(ours, theirs): tensor for name, tensor in weights.items()}
        layer.load_state_dict(weights)
        tokens = layer(tokens)
    torch.testing.assert_close(model(x), parts["classifier"](parts["final_norm"](tokens).mean(1)))


def own_model(num_classes: int) -> nn.Module:
    """A user's model, named by `test_nets:own_model`."""
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, num_classes))


def one_layer(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, num_classes))


def lazy(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))


def no_layer(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(num_classes))


def not_a_model(num_classes: int) -> int:
    return num_classes


def exits(num_classes: int) -> nn.Module:
    raise SystemExit(3)


def takes_nothing() -> nn.Module:
    return one_layer(3)


def wants_more(num_classes: int, depth: int) -> nn.Module:
    return one_layer(num_classes * depth)


def raises(num_classes: int) -> nn.Module:
    return one_layer([][num_classes])


def test_own_model_by_import_path() -> None:
    model = build_model(f"{__name__}:own_model", num_classes=5, seed=0, classifier="3")
    logits, features = logits_and_features(model, torch.randn(2, 3, 2, 2))
    assert (logits.shape, features.shape) == ((2, 5), (2, 6))


def test_the_only_linear_layer_needs_no_name() -> None:
    assert build_model(f"{__name__}:one_layer", num_classes=5, seed=0).classifier_name == "1"


def test_what_a_module_prints_is_no_result_and_it_may_not_end_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loud.py").write_text(
        "from torch import nn\nprint('imported')\n"
        "def net(num_classes):\n    print('built')\n    return nn.Sequential(nn.Linear(3, num_classes))\n"
    )
    (tmp_path / "ending.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.chdir(tmp_path)
    build_model("loud:net", num_classes=5, seed=0)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "imported\nbuilt\n")
    with pytest.raises(UsageError, match="importing ending raised SystemExit: 3"):
        build_model("ending:net", num_classes=5, seed=0)


def test_a_module_of_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_layers.py").write_text("from torch import nn\n")
    (tmp_path / "my_nets.py").write_text(
        "def net(num_classes):\n    from my_layers import nn\n    return nn.Sequential(nn.Linear(3, num_classes))\n"
    )
    (tmp_path / "broken.py").write_text("def net(:\n")
    path = list(sys.path)
    with pytest.raises(UsageError, match="cannot import my_nets:net"):
        build_model("my_nets:net", num_classes=5, seed=0)
    monkeypatch.chdir(tmp_path)
    assert build_model("my_nets:net", num_classes=5, seed=0).classifier_name == "0"
    with pytest.raises(UsageError, match=r"importing broken raised SyntaxError: .*broken\.py, line 1"):
        build_model("broken:net", num_classes=5, seed=0)
    assert sys.path == path


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet81", {}, "did you mean 'resnet18'"),
        ("torchvision.resnet18", {"width": 8}, "fixed width"),
        (f"{__name__}:one_layer", {"width": 8}, "model.width: tests.unit.training.test_networks:one_layer has a fixed"),
        ("vit_small", {"width": 24}, "24 cannot be divided into attention heads of 16"),
        ("no.such.module:net", {}, "cannot import"),
        (f"{__name__}:nothing", {}, "test_networks.py has no function nothing\n  -> correct its name"),
        ("nets.py:net", {}, "nets.py is a file, not a module\n  -> write nets:net"),
        (f"{__name__}:exits", {}, "exits raised SystemExit: 3"),
        (f"{__name__}:not_a_model", {}, "not an nn.Module"),
        (":net", {}, "':net' is not of the form package.module:function"),
        ("os:path", {}, "os:path is not a function"),
        (f"{__name__}:takes_nothing", {}, "cannot be called with num_classes=5: got an unexpected keyword"),
        (f"{__name__}:wants_more", {}, "cannot be called with num_classes=5: missing a required argument: 'depth'"),
        (f"{__name__}:raises", {}, "raised IndexError: list index out of range"),
        (f"{__name__}:no_layer", {}, "has no linear layer"),
        (f"{__name__}:lazy", {}, "1.weight of tests.unit.training.test_networks:lazy has no size yet"),
        (f"{__name__}:own_model", {}, "has 2 linear layers\n  -> name the last one; they are ['1', '3']"),
        (f"{__name__}:own_model", {"classifier": "2"}, "is not a linear layer"),
        (f"{__name__}:own_model", {"classifier": "1"}, "6 outputs for 5 classes"),
    ],
)
def test_errors_name_the_remedy(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_model(name, num_classes=5, seed=0, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert caught.value.remedy
