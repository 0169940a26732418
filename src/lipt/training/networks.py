"""Networks, built from a name and a seed.

Shape legend: B batch, C classes, D penultimate features. Small-image nets take (B, 3, H, W) with H, W from 8 to 64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from lipt.errors import UsageError, did_you_mean
from lipt.rng import global_seed
from lipt.training.onednn import guard_convolutions
from lipt.training.precision import Float32Linear, depthwise_in_float32
from lipt.training.user_model import build_user_model
from lipt.training.vision_transformer import VisionTransformer


class BasicBlock(nn.Module):
    """conv-BN-ReLU-conv-BN plus shortcut (He et al. 2016, CIFAR form with a 1x1 projection)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        self.branch_ends: tuple[str, ...] = ("bn2",)
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )
            self.branch_ends = ()

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class PreActBlock(nn.Module):
    """BN-ReLU-conv-BN-ReLU-conv plus shortcut (Zagoruyko & Komodakis 2016)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.projects = stride != 1 or channels_in != channels
        self.shortcut: nn.Module = (
            nn.Conv2d(channels_in, channels, 1, stride, bias=False) if self.projects else nn.Identity()
        )
        self.branch_ends = () if self.projects else ("conv2",)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(x))
        shortcut: Tensor = self.shortcut(out if self.projects else x)
        residual: Tensor = self.conv2(F.relu(self.bn2(self.conv1(out))))
        return residual + shortcut


class SmallImageNet(nn.Module):
    """3x3 stem without pooling, stages of residual blocks that halve the side, global average, one linear layer.

    Args:
        block: the residual block.
        stem: channels after the stem.
        widths: channels per stage.
        depth: blocks per stage.
        num_classes: C.
        final_norm: BN-ReLU before the average, which pre-activation blocks need.
    """

    def __init__(
        self,
        block: Callable[[int, int, int], nn.Module],
        stem: int,
        widths: list[int],
        depth: int,
        num_classes: int,
        *,
        final_norm: bool,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, stem, 3, 1, 1, bias=False)
        self.stem_norm = nn.Identity() if final_norm else nn.Sequential(nn.BatchNorm2d(stem), nn.ReLU())
        blocks, channels = [], stem
        for stage, width in enumerate(widths):
            for position in range(depth):
                blocks.append(block(channels, width, 2 if stage > 0 and position == 0 else 1))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.final_norm = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU()) if final_norm else nn.Identity()
        self.classifier = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.final_norm(self.blocks(self.stem_norm(self.stem(x))))
        logits: Tensor = self.classifier(x.mean(dim=(2, 3)))
        return logits


def _resnet18(num_classes: int, width: int) -> nn.Module:
    return SmallImageNet(BasicBlock, width, [width, 2 * width, 4 * width, 8 * width], 2, num_classes, final_norm=False)


def _wrn28_10(num_classes: int, width: int) -> nn.Module:
    return SmallImageNet(PreActBlock, 16, [width, 2 * width, 4 * width], 4, num_classes, final_norm=True)


def _vit_small(num_classes: int, width: int) -> nn.Module:
    return VisionTransformer(num_classes, width, depth=8)


def _torchvision(name: str, num_classes: int) -> nn.Module:
    import torchvision.models  # here: it takes 0.7 s, and --help does not need it

    model: nn.Module = getattr(torchvision.models, name)(weights=None, num_classes=num_classes)
    return model


#: name -> (builder, default width or None when it has none, classifier layer)
_BUILDERS: dict[str, tuple[Callable[..., nn.Module], int | None, str]] = {
    "resnet18": (_resnet18, 64, "classifier"),
    "wrn28_10": (_wrn28_10, 160, "classifier"),
    "vit_small": (_vit_small, 64, "classifier"),
    "torchvision.resnet18": (partial(_torchvision, "resnet18"), None, "fc"),
    "torchvision.wide_resnet50_2": (partial(_torchvision, "wide_resnet50_2"), None, "fc"),
}


def check_model_name(name: str) -> None:
    """
    Raises:
        UsageError: there is no such network here.
    """
    if name not in _BUILDERS:
        raise UsageError(
            f"model.name: no model {name!r}", f"{did_you_mean(name, _BUILDERS)} or use package.module:function"
        )


def default_width(name: str) -> int | None:
    """Channels of the first stage if `model.width` is null; None: the network has a fixed width."""
    return _BUILDERS[name][1] if name in _BUILDERS else None


def build_model(
    name: str,
    *,
    num_classes: int,
    seed: int,
    width: int | None = None,
    classifier: str | None = None,
    code: str | None = None,
) -> nn.Module:
    """Build a network whose initial weights depend on `seed` alone.

    The attribute `classifier_name` of the model is the dotted name of its last linear layer.

    Args:
        name: a name in `_BUILDERS`, or `package.module:function`, also of a module in the current folder. The function
            is called with `num_classes`.
        width: channels of the first stage; None = the default of the network.
        classifier: name of the last linear layer; None if the model has only one.
        code: the digest that the file of a user's network must have (`code_digest`); None: any.

    Raises:
        RunError: that file has another digest.
        UsageError: the name is unknown, the model has a fixed width, the function cannot be imported or called, it
            raises or does not return an nn.Module, or there is no such classifier layer.
    """
    if width is not None and (":" in name or (name in _BUILDERS and default_width(name) is None)):
        raise UsageError(f"model.width: {name} has a fixed width", "leave it out")
    with global_seed(seed, "weights"):
        if ":" in name:
            model = build_user_model(name, num_classes, code=code)
        else:
            check_model_name(name)
            builder, usual_width, default_classifier = _BUILDERS[name]
            model = builder(num_classes, width or usual_width) if usual_width else builder(num_classes)
            classifier = classifier or default_classifier
    if not isinstance(model, nn.Module):
        raise UsageError(f"model.name: {name} returned {type(model).__name__}, not an nn.Module", "return the network")
    for weight, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise UsageError(f"model.name: {weight} of {name} has no size yet", "use no lazy layers: give all sizes")
    classifier, layer = _classifier(model, name, classifier)
    if layer.out_features != num_classes:
        raise UsageError(
            f"model.classifier: {classifier} has {layer.out_features} outputs for {num_classes} classes",
            "use num_classes",
        )
    if type(layer) is nn.Linear:
        layer.__class__ = Float32Linear  # keeps parameters, name and place
    model.classifier_name = classifier  # type: ignore[assignment]
    model.same_each_step = ":" not in name  # type: ignore[assignment]
    return model


def same_each_step(model: nn.Module) -> bool:
    """Whether the network is known to do the same for all batches of a size: ours do. A user's may decide in Python."""
    return bool(getattr(model, "same_each_step", False))


class _WithoutInitialisation(TorchFunctionMode):
    """Skips the initialisation of weights. On the meta device it has no effect, but would import torch's compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _INITIALISERS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


_INITIALISERS = {"normal_", "uniform_", "trunc_normal_", "kaiming_normal_", "kaiming_uniform_", "xavier_uniform_"}


@contextmanager
def shapes_only() -> Iterator[None]:
    """Models that are built inside the block have shapes, but no memory and no weights."""
    with torch.device("meta"), _WithoutInitialisation():
        yield


def on_device(model: nn.Module, device: torch.device) -> nn.Module:
    """Move the model to `device`, with channels last in memory: convolutions are 1.4x faster on CPU and GPU."""
    if device.type == "cpu":
        guard_convolutions(model)
        depthwise_in_float32(model)
    model = model.to(device)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 4:  # `model.to` would try it with five dimensions, too, which have no such format
            tensor.data = tensor.data.to(memory_format=torch.channels_last)
    return model


def _classifier(model: nn.Module, name: str, wanted: str | None) -> tuple[str, nn.Linear]:
    """Name and layer of the linear layer `wanted`; None = the only one."""
    layers = {key: module for key, module in model.named_modules() if key and isinstance(module, nn.Linear)}
    if not layers:
        raise UsageError(f"model.name: {name} has no linear layer", "let its last layer be an nn.Linear")
    if wanted is None and len(layers) == 1:
        return next(iter(layers.items()))
    if wanted is None:
        raise UsageError(
            f"model.classifier: {name} has {len(layers)} linear layers", f"name the last one; they are {list(layers)}"
        )
    if wanted not in layers:
        raise UsageError(f"model.classifier: {wanted!r} is not a linear layer of {name}", f"name one of {list(layers)}")
    return wanted, layers[wanted]
