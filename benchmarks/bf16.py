"""bfloat16 on a CPU: what torch's autocast does to a step of a network, and what LiPT's does.

    python -m benchmarks.bf16 [--rounds 7]

Prints CPU milliseconds of one forward and backward pass on one thread: the median over the rounds, and how many times
as long as in float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from statistics import median
from typing import NamedTuple

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from benchmarks.networks import convnet
from benchmarks.tables import markdown
from lipt.training.networks import build_model, on_device
from lipt.training.onednn import guard_convolutions
from lipt.training.precision import autocast, native_precision

CPU = torch.device("cpu")
Context = Callable[[], AbstractContextManager[object]]


class Case(NamedTuple):
    build: Callable[[], nn.Module]
    pixels: int
    batch: int


CASES = {
    "`resnet18` of width 16, 32 px": Case(lambda: build_model("resnet18", num_classes=10, seed=0, width=16), 32, 64),
    "`vit_small`, 32 px": Case(lambda: build_model("vit_small", num_classes=10, seed=0), 32, 64),
    "torchvision's `vit_b_16`, 224 px": Case(lambda: torchvision.models.vit_b_16(num_classes=10), 224, 1),
    "ConvNet with group normalisation, 16 px": Case(lambda: convnet(10), 16, 64),
    "torchvision's `mobilenet_v3_small`, 64 px": Case(
        lambda: torchvision.models.mobilenet_v3_small(num_classes=10), 64, 16
    ),
    "torchvision's `efficientnet_b0`, 64 px": Case(lambda: torchvision.models.efficientnet_b0(num_classes=10), 64, 8),
    "torchvision's `convnext_tiny`, 64 px": Case(lambda: torchvision.models.convnext_tiny(num_classes=10), 64, 4),
}


def milliseconds(case: Case, prepared: Callable[[nn.Module], nn.Module], context: Context, rounds: int) -> float:
    """CPU time of a step: the median after one that is not counted."""
    torch.manual_seed(0)
    model = prepared(case.build()).train()
    x = torch.randn(case.batch, 3, case.pixels, case.pixels).contiguous(memory_format=torch.channels_last)
    y, taken = torch.randint(0, 10, (case.batch,)), []
    for _ in range(rounds + 1):
        started = time.process_time()
        with context():
            logits = model(x)
        F.cross_entropy(logits.float(), y).backward()
        taken.append(time.process_time() - started)
        model.zero_grad()
    return 1e3 * median(taken[1:])


def channels_last(model: nn.Module) -> nn.Module:
    """As torch's guide advises for a CPU. Without the guard some of torch's convolutions write out of bounds."""
    guard_convolutions(model)
    return model.to(memory_format=torch.channels_last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, native precision {native_precision(CPU)}\n")
    ours, torchs = partial(on_device, device=CPU), partial(torch.autocast, "cpu", torch.bfloat16)
    rows = []
    for name, case in CASES.items():
        exact, *others = (
            milliseconds(case, prepared, context, rounds)
            for prepared, context in (
                (ours, nullcontext),
                (channels_last, torchs),
                (ours, partial(autocast, CPU, "bf16")),
            )
        )
        rows.append([name, *(f"{taken:.0f} ({taken / exact:.1f})" for taken in (exact, *others))])
    print(markdown(["CPU ms of a step", "float32", "bf16, torch's autocast", "bf16, LiPT"], rows))


if __name__ == "__main__":
    main()
