"""The guard against two bugs in oneDNN's weight gradients of strided convolutions."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lipt.training.flops import flops_per_image
from lipt.training.networks import build_model, on_device
from lipt.training.onednn import guard_convolutions
from tests.programs import run_python

CPU = torch.device("cpu")

#: sizes at which the plain convolution crashed or was wrong, with one thread and with two
TRAINS_AFFECTED_SHAPES = """
import torch
from lipt.training.networks import on_device
ONE, TWO = [(32, 3, 64), (32, 4, 64), (32, 8, 64)], [(11, 4, 16), (11, 8, 16), (11, 12, 16)]
for threads, batch, channels, side in [(1, *shape) for shape in ONE] + [(2, *shape) for shape in TWO]:
    torch.set_num_threads(threads)
    conv = on_device(torch.nn.Conv2d(channels, 2 * channels, 1, 2, bias=False), torch.device("cpu"))
    x = torch.randn(batch, channels, side, side).contiguous(memory_format=torch.channels_last)
    gradient = torch.randn_like(conv(x))
    expected = torch.einsum("bohw,bchw->oc", gradient.double(), x[..., ::2, ::2].double())
    for _ in range(5):
        conv.weight.grad = None
        conv(x).backward(gradient)
        torch.testing.assert_close(conv.weight.grad[..., 0, 0].double(), expected, rtol=1e-3, atol=1e-3)
print("whole")
"""


class Standardized(nn.Conv2d):
    """A subclass that computes its weight first and reads the stride itself."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.weight - self.weight.mean(), self.bias, self.stride, self.padding)


def gradients(module: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = module(x)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return [out, *torch.autograd.grad((out * weights).sum(), [x, *module.parameters()])]


def strides_of_1x1(model: nn.Module) -> set[tuple[int, ...]]:
    return {conv.stride for conv in model.modules() if isinstance(conv, nn.Conv2d) and conv.kernel_size == (1, 1)}


@pytest.mark.parametrize("side", [1, 7, 8])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Conv2d(4, 6, 1, 2, bias=False),
        lambda: nn.Conv2d(4, 6, 1, (1, 3)),
        lambda: nn.Conv2d(4, 6, 1, 2, groups=2, padding="valid"),
        lambda: Standardized(4, 6, 1, 2),
        lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 6, 1, 2)),
    ],
)
def test_same_outputs_and_gradients(make: Callable[[], nn.Module], side: int) -> None:
    plain = make().double()
    guarded = copy.deepcopy(plain)
    guard_convolutions(guarded)
    guard_convolutions(guarded)
    assert all(conv.stride[-1] == 1 for conv in guarded.modules() if isinstance(conv, nn.Conv1d | nn.Conv2d))
    x = torch.randn(3, 4, side, side, dtype=torch.float64)
    for network in (guarded, copy.deepcopy(guarded)):
        for ours, theirs in zip(gradients(network, x), gradients(plain, x), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("options", [{"padding": 1}, {"kernel_size": 3}, {"stride": 1}])
def test_other_convolutions_keep_their_stride(options: dict[str, Any]) -> None:
    conv = nn.Conv2d(4, 6, **{"kernel_size": 1, "stride": 2} | options)
    stride = conv.stride
    guard_convolutions(conv)
    assert conv.stride == stride


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "options",
    [
        {"padding": 1},
        {"padding": 2},  # a zero at the right would add a column to the output of some widths
        {"padding": 1, "stride": 3},
        {"padding": 1, "stride": (1, 4)},
        {"kernel_size": 5, "padding": 2},
        {"kernel_size": 7, "padding": 3},
        {"padding": 2, "dilation": 2},
        {"padding": 1, "padding_mode": "replicate"},
    ],
    ids=str,
)
def test_narrow_inputs_give_the_same(options: dict[str, Any], width: int) -> None:
    plain = nn.Conv2d(4, 6, **{"kernel_size": 3, "stride": 2} | options).double()
    guarded = copy.deepcopy(plain)
    guard_convolutions(guarded)
    guard_convolutions(guarded)
    assert len(guarded._forward_pre_hooks) == 1
    x = torch.randn(3, 4, 3, width, dtype=torch.float64)
    for ours, theirs in zip(gradients(guarded, x), gradients(plain, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (3, 3), (5, 2), (7, 2)])
def test_weights_that_meet_only_padding_get_no_gradient(kernel: int, stride: int) -> None:
    """In bfloat16 oneDNN leaves there what was in memory before; NaN fills the memory here."""
    for _ in range(5):
        conv = on_device(nn.Conv2d(16, 32, kernel, stride, kernel // 2, bias=False), CPU)
        x = torch.randn(32, 16, 1, 1).contiguous(memory_format=torch.channels_last)
        dirt = [torch.full((conv.weight.numel() + extra,), torch.nan) for extra in range(8)]
        del dirt
        with torch.autocast("cpu", dtype=torch.bfloat16):
            conv(x).float().sum().backward()
        assert conv.weight.grad is not None
        middle = kernel // 2
        assert conv.weight.grad[..., middle, middle].abs().sum() > 0
        assert conv.weight.grad.abs().sum() == conv.weight.grad[..., middle, middle].abs().sum()


@pytest.mark.parametrize("name", ["resnet18", "wrn28_10", "torchvision.resnet18", "torchvision.wide_resnet50_2"])
def test_no_network_on_the_cpu_keeps_a_strided_1x1_convolution(name: str) -> None:
    with torch.device("meta"):
        plain = build_model(name, num_classes=4, seed=0)
    guarded = copy.deepcopy(plain)
    guard_convolutions(guarded)
    assert (2, 2) in strides_of_1x1(plain)
    assert strides_of_1x1(guarded) == {(1, 1)}
    assert list(guarded.state_dict()) == list(plain.state_dict())


def test_flops_stay() -> None:
    plain = build_model("resnet18", num_classes=4, seed=0, width=8)
    before = flops_per_image(plain, (3, 32, 32))
    assert flops_per_image(on_device(plain, CPU), (3, 32, 32)) == before


def test_the_heap_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_CHECK_", "3")  # glibc checks the heap at every call of malloc and free
    if sys.platform == "linux":
        monkeypatch.setenv("LD_PRELOAD", f"libc_malloc_debug.so.0 {os.environ.get('LD_PRELOAD', '')}".strip())
    assert run_python("-c", TRAINS_AFFECTED_SHAPES).strip() == "whole"
