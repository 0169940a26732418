"""Precision by the hardware: bf16 training resumes bit by bit, scores as float32 does, and learns as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from lipt.data.augmentation import StandardAugment
from lipt.training.forward import accuracies, outputs_of, recalibrate_batchnorm
from lipt.training.loop import Trainer, train
from lipt.training.networks import build_model, on_device
from lipt.training.precision import Precision, autocast, native_precision, plain_layers
from lipt.training.recipe import Recipe, TrainingProgress
from lipt.training.tensor_files import state_of
from tests.unit.training.helpers import blocks

CPU = torch.device("cpu")


def trained(precision: Precision, *, interrupted: bool = False) -> Trainer:
    def trainer() -> Trainer:
        augment = StandardAugment(padding=1, flip=False)
        recipe = Recipe(epochs=8, batch_size=16, lr=0.05, schedule="cosine", augment=augment, precision=precision)
        model = build_model("resnet18", num_classes=4, seed=0, width=4)
        return Trainer(model, recipe, seed=0, device=CPU)

    found, images = trainer(), blocks()
    if interrupted:
        for _ in range(3):
            found.run_epoch(images)
        tensors, progress = found.tensors(), TrainingProgress(**vars(found.progress))
        found = trainer()
        found.restore({name: tensor.clone() for name, tensor in tensors.items()}, progress)
    train(found, lambda _trainer: (images, None))
    return found


def test_bf16_resumes_bit_by_bit_keeps_float32_weights_and_learns() -> None:
    straight, resumed, reference = trained("bf16"), trained("bf16", interrupted=True), trained("fp32")
    expected = state_of(straight.model)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in state_of(resumed.model).items())
    assert resumed.progress == straight.progress
    assert {tensor.dtype for tensor in expected.values() if tensor.is_floating_point()} == {torch.float32}
    assert not torch.equal(expected["classifier.weight"], state_of(reference.model)["classifier.weight"])
    assert accuracies([straight.model], blocks(seed=1), device=CPU, precision="bf16")[0] > 0.9


def test_scores_in_bf16_are_near_those_in_float32_and_have_no_ties() -> None:
    model, images = trained("fp32").model, blocks(n=400, seed=2)
    exact, near = (outputs_of(model, images, device=CPU, precision=precision) for precision in ("fp32", "bf16"))
    error_N = [(F.softmax(found.logits_NC, 1) - F.one_hot(images.labels_N)).norm(dim=1) for found in (exact, near)]
    ranks = torch.stack([error.argsort().argsort().double() for error in error_N])
    assert torch.corrcoef(ranks)[0, 1] > 0.95
    assert 0 < (exact.logits_NC - near.logits_NC).abs().mean() < 0.05 * exact.logits_NC.abs().mean()
    # Logits rounded to bf16 would take a few hundred values between them.
    assert len(near.logits_NC.unique()) > 0.99 * near.logits_NC.numel()
    assert (near.logits_NC.dtype, near.features_ND.dtype) == (torch.float32, torch.float32)


def test_statistics_in_bf16_are_near_those_in_float32() -> None:
    found = {}
    for precision in ("fp32", "bf16"):
        model = build_model("resnet18", num_classes=4, seed=0, width=4)
        recalibrate_batchnorm(model, blocks(), device=CPU, precision=precision)
        found[precision] = state_of(model)
    for name, tensor in found["fp32"].items():
        torch.testing.assert_close(found["bf16"][name], tensor, rtol=0.05, atol=0.02, msg=name)


def test_what_is_slow_in_bf16_on_a_cpu_stays_float32() -> None:
    x = torch.randn(2, 8, 6, 6)
    q, k, v = torch.randn(3, 2, 4, 5, 16).bfloat16()
    mask = torch.zeros(5, 5).bfloat16()
    depthwise = nn.Conv2d(8, 16, 3, stride=2, groups=8)
    dense = nn.Conv2d(8, 16, 3, groups=2)
    model = on_device(on_device(nn.Sequential(depthwise, dense), CPU), CPU)
    exact = F.conv2d(x.bfloat16().float(), depthwise.weight, depthwise.bias, stride=2, groups=8)
    with autocast(CPU, "bf16"):
        normalised = F.group_norm(x.bfloat16(), 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.5)
        convolved = model[0](x.bfloat16())
        assert model[1](x).dtype == torch.bfloat16
    assert torch.equal(normalised, F.group_norm(x.bfloat16().float(), 4))
    assert torch.equal(mixed, F.scaled_dot_product_attention(q.float(), k.float(), v.float(), mask.float(), scale=0.5))
    torch.testing.assert_close(convolved, exact)
    assert {type(layer) for layer in plain_layers(model)} == {nn.Conv2d}


class Checkpointed(nn.Module):
    """Forgets what its normalisation computed, and computes it again in the backward pass."""

    classifier_name = "classifier"

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.classifier = nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(lambda x: self.norm(self.conv(x)).relu(), x, use_reentrant=False)
        return self.classifier(x.mean((2, 3)))


def test_what_a_backward_pass_computes_again_has_the_same_format() -> None:
    augment = StandardAugment(padding=1, flip=False)
    recipe = Recipe(epochs=1, batch_size=16, lr=0.05, schedule="cosine", augment=augment, precision="bf16")
    trainer = Trainer(Checkpointed(), recipe, seed=0, device=CPU)
    trainer.run_epoch(blocks())  # checkpoint refuses other formats
    assert trainer.progress.steps > 0


def test_the_users_own_autocast_stays_as_it_is() -> None:
    with autocast(CPU, "bf16"):
        pass
    x, (q, k, v) = torch.randn(2, 8, 6, 6).bfloat16(), torch.randn(3, 2, 4, 5, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert F.group_norm(x, 4).dtype == torch.bfloat16
        assert F.group_norm(x.float(), 4).dtype == torch.float32
        assert F.scaled_dot_product_attention(q, k, v).dtype == torch.bfloat16
        assert F.scaled_dot_product_attention(q.double(), k.double(), v.double()).dtype == torch.float64


class Attentions(TorchDispatchMode):
    """Notes the number format of each attention and of its backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.formats: list[torch.dtype] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "scaled_dot_product" in str(func):
            self.formats.append(args[0].dtype)
        return func(*args, **(kwargs or {}))


def test_attention_inside_of_torchs_own_layer_is_float32_in_both_directions() -> None:
    layer, x = nn.MultiheadAttention(16, 2, batch_first=True), torch.randn(2, 5, 16)
    with Attentions() as seen:
        with autocast(CPU, "bf16"):
            mixed = layer(x, x, x, need_weights=False)[0]
        mixed.float().sum().backward()
    assert mixed.dtype == torch.bfloat16
    assert seen.formats == [torch.float32] * 2


def test_the_native_precision_is_what_the_processor_says() -> None:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        pytest.skip("no /proc/cpuinfo")
    flags = set(cpuinfo.read_text().split()) if hasattr(torch.cpu, "get_capabilities") else set()
    assert native_precision(CPU) == ("bf16" if flags & {"avx512_bf16", "amx_bf16"} else "fp32")
