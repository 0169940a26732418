"""The selection engine against the loops that users would write: `python benchmarks/selection.py [--threads 2]`.

1. One class of CIFAR-10 shape (n = 5000, C = 10, d = 512, k = 500, float32) against textbook loops on dense gradients,
   which keep all n C (d + 1) numbers and solve every step from scratch, as published implementations do. "same" is the
   share of the k positions at which both picked the same sample (medoids and centres tie often; the engine takes the
   lowest index where a loop goes by rounding), "same in float64" the one at which the engine picks it in float64, too.
2. CRAIG with C = 100, where dense gradients fill memory: time, and the memory that each needs beyond its inputs.
3. All of CIFAR-10 (50,000 x (10 + 512), 10 %): every algorithm, in per cent of one forward pass of ResNet-18.

Prints Markdown; ten minutes on two threads. Both sides of a ratio run in this process on the same threads.
"""

from __future__ import annotations

import argparse
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "30000")  # as the command line does: see lipt.cli

import numpy as np
import torch
from scipy.linalg import lstsq
from scipy.optimize import nnls
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lipt.selection import ALGORITHMS, Candidates, Outputs, requirements, select
from lipt.training.networks import build_model, on_device

#: In units of the mean squared gradient norm, as the engine takes it.
LAM = 0.03


def sample(n: int, classes: int, d: int, labels: Tensor | None = None) -> Candidates:
    """Non-negative clustered features and the logits of a linear classifier, as after a ReLU network."""
    g = torch.Generator().manual_seed(0)
    features = (
        torch.randn(6, d, generator=g)[torch.randint(6, (n,), generator=g)] * 0.6 + torch.randn(n, d, generator=g) * 0.5
    ).relu()
    logits = features @ torch.randn(d, classes, generator=g) * 2 / d**0.5
    labels = torch.zeros(n, dtype=torch.int64) if labels is None else labels
    logits[torch.arange(n), labels] += 1.5
    outputs = [Outputs(logits_NC=logits, features_ND=features)]
    return Candidates(
        labels_N=labels, num_classes=classes, outputs=outputs, forgetting_N=torch.randint(9, (n,), generator=g).float()
    )


def dense(candidates: Candidates, logits: Tensor | None = None) -> np.ndarray:
    """All gradients (n, C (d + 1))."""
    (outputs,) = candidates.outputs
    h1 = torch.cat([outputs.features_ND, torch.ones(len(candidates), 1)], 1)
    error = (outputs.logits_NC if logits is None else logits).softmax(1)
    error = error - torch.eye(candidates.num_classes)[candidates.labels_N]
    return (error[:, :, None] * h1[:, None, :]).flatten(1).numpy()


def textbook_grand(c: Candidates, k: int) -> list[int]:
    return np.argsort(-np.linalg.norm(dense(c), axis=1), kind="stable")[:k].tolist()


def numpy_pursuit(c: Candidates, k: int, solve: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> list[int]:
    """Orthogonal matching pursuit with rows stacked anew and all weights solved from scratch in every step."""
    a = dense(c)
    b, picked, ridge = a.sum(0), list[int](), LAM * float(np.square(a).sum(1).mean())
    residual, chosen = b, np.empty((0, a.shape[1]), dtype=np.float32)
    for _ in range(k):
        scores = a @ residual
        scores[picked] = -np.inf
        picked.append(int(scores.argmax()))
        chosen = np.vstack([chosen, a[picked[-1]]])
        residual = b - chosen.T @ solve(chosen @ chosen.T + ridge * np.eye(len(picked)), chosen @ b)
    return picked


def published_gradmatch(c: Candidates, k: int) -> list[int]:
    """As published libraries do it in numpy: unconstrained; the identity turns weights, residual and with them, in
    every step, all gradients into float64."""
    return numpy_pursuit(c, k, lambda system, right: lstsq(system, right)[0])


def float32_gradmatch(c: Candidates, k: int) -> list[int]:
    """The same without that conversion."""
    return numpy_pursuit(c, k, lambda system, right: lstsq(system, right)[0].astype(np.float32))


def textbook_gradmatch(c: Candidates, k: int) -> list[int]:
    """As the paper has it: weights are not negative."""

    def solve(system: np.ndarray, right: np.ndarray) -> np.ndarray:
        root = np.linalg.cholesky(system)
        return nnls(root.T, np.linalg.solve(root, right))[0].astype(np.float32)

    return numpy_pursuit(c, k, solve)


def torch_gradmatch(c: Candidates, k: int) -> list[int]:
    """As the GPU path of the usual libraries: no constraint on the weights, one dense solve per step."""
    a = torch.from_numpy(dense(c))
    b, picked, ridge = a.sum(0), list[int](), LAM * float(a.square().sum(1).mean())
    residual = b
    for _ in range(k):
        scores = a @ residual
        scores[picked] = -torch.inf
        picked.append(int(scores.argmax()))
        chosen = a[picked]
        system = chosen @ chosen.T + ridge * torch.eye(len(picked))
        residual = b - torch.linalg.solve(system, chosen @ b) @ chosen
    return picked


def textbook_glister(c: Candidates, k: int) -> list[int]:
    a, (outputs,) = dense(c), c.outputs
    h1 = torch.cat([outputs.features_ND, torch.ones(len(c), 1)], 1)
    eta, z, picked = 0.1 / float(h1.square().sum(1).mean()), outputs.logits_NC, list[int]()
    for _ in range(k):
        gains = a @ dense(c, z).mean(0)
        gains[picked] = -np.inf
        picked.append(int(gains.argmax()))
        z = z - eta * h1 @ torch.from_numpy(a[picked[-1]]).reshape(c.num_classes, -1).T
    return picked


def textbook_craig(c: Candidates, k: int) -> list[int]:
    a = torch.from_numpy(dense(c))
    similarity = torch.cdist(a, a)
    similarity = similarity.max() - similarity
    best, picked = torch.zeros(len(a)), list[int]()
    for _ in range(k):
        gains = (similarity - best).clamp_min(0).sum(1)
        gains[picked] = -1
        picked.append(int(gains.argmax()))
        best = torch.maximum(best, similarity[picked[-1]])
    return picked


def textbook_herding(c: Candidates, k: int) -> list[int]:
    h = c.outputs[0].features_ND
    picked, total = list[int](), torch.zeros(h.shape[1])
    for t in range(k):
        errors = (h.mean(0) - (total + h) / (t + 1)).norm(dim=1)
        errors[picked] = torch.inf
        picked.append(int(errors.argmin()))
        total += h[picked[-1]]
    return picked


def textbook_k_center(c: Candidates, k: int) -> list[int]:
    h = c.outputs[0].features_ND
    distances = torch.cdist(h, h)
    picked = [int((h - h.mean(0)).norm(dim=1).argmin())]
    while len(picked) < k:
        picked.append(int(distances[:, picked].min(1).values.argmax()))
    return picked


#: algorithm, its loop, what the loop is, and the ratio that we want to hold
TEXTBOOK: list[tuple[str, Callable[[Candidates, int], list[int]], str, int | None]] = [
    ("grand", textbook_grand, "numpy", 20),
    ("gradmatch", published_gradmatch, "numpy, as published", 100),
    ("gradmatch", float32_gradmatch, "numpy, the same in float32", None),
    ("gradmatch", textbook_gradmatch, "numpy, NNLS of the Gram matrix", None),
    ("gradmatch", torch_gradmatch, "torch, unconstrained", 10),
    ("glister", textbook_glister, "numpy", 30),
    ("craig", textbook_craig, "torch", None),
    ("herding", textbook_herding, "torch", None),
    ("k_center", textbook_k_center, "torch", 15),
]


def timed(function: Callable[[], Tensor | list[int]], repeats: int = 1) -> tuple[float, list[int]]:
    """Best wall-clock seconds of `repeats`, and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return min(seconds), [int(i) for i in result]


class Memory(TorchDispatchMode):
    """The most bytes that tensors made under it held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.peak, self._seen = 0, 0, dict[int, int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(each, Tensor) and (address := each.untyped_storage().data_ptr()) not in self._seen:
                size = self._seen[address] = each.untyped_storage().nbytes()
                self.held += size
                self.peak = max(self.peak, self.held)
                weakref.finalize(each.untyped_storage(), self._free, address)
        return result

    def _free(self, address: int) -> None:
        self.held -= self._seen.pop(address, 0)


def peak_mb(function: Callable[[], object]) -> float:
    with Memory() as memory:
        function()
    return memory.peak / 1e6


def in_float64(c: Candidates) -> Candidates:
    outputs = [Outputs(logits_NC=each.logits_NC.double(), features_ND=each.features_ND.double()) for each in c.outputs]
    return replace(c, outputs=outputs)


def agreement(ours: list[int], theirs: list[int]) -> str:
    return f"{sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours):.1%}"


def row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def one_class() -> None:
    n, k = 5000, 500
    full = sample(n, 10, 512)
    exact = in_float64(full)
    print(f"### One class: n = {n}, C = 10, d = 512, k = {k}, float32\n")
    print("| algorithm | loop | loop, s | engine, s | ratio | wanted | same picks | same in float64 |")
    print("|---|---|---|---|---|---|---|---|")
    for name, loop, kind, wanted in TEXTBOOK:
        ours_s, ours = timed(lambda name=name: select(name, full, fraction=k / n).indices_K, 5)
        loop_s, theirs = timed(lambda loop=loop: loop(full, k), 5 if name == "grand" else 1)
        same = agreement(ours, theirs), agreement(ours, select(name, exact, fraction=k / n).indices_K.tolist())
        ratio, goal = f"**{loop_s / ours_s:.0f}x**", f"{wanted}x" if wanted else ""
        row(f"`{name}`", kind, f"{loop_s:.3f}", f"{ours_s:.4f}", ratio, goal, *same)


def many_classes() -> None:
    n, k = 5000, 500
    full = sample(n, 100, 512)
    print(f"\n### CRAIG with C = 100, n = {n}, d = 512, k = {k}\n")
    print("| | time, s | memory, MB |\n|---|---|---|")
    ours_s, _ = timed(lambda: select("craig", full, fraction=k / n).indices_K, 3)
    loop_s, _ = timed(lambda: textbook_craig(full, k))
    ours_mb, loop_mb = peak_mb(lambda: select("craig", full, fraction=k / n)), peak_mb(lambda: textbook_craig(full, k))
    print(f"| loop on dense gradients | {loop_s:.1f} | {loop_mb:,.0f} |")
    print(f"| engine | {ours_s:.2f} | {ours_mb:,.0f} |")
    faster, smaller = f"**{loop_s / ours_s:.0f}x** (wanted 15x)", f"**{loop_mb / ours_mb:.0f}x** (wanted 10x)"
    print(f"| ratio | {faster} | {smaller} |", flush=True)


@torch.no_grad()
def forward_s(dtype: torch.dtype, images: int = 5120) -> float:
    """Seconds for 50,000 images through ResNet-18, by the share that is really run."""
    model = on_device(build_model("resnet18", num_classes=10, seed=0), torch.device("cpu")).eval()
    x = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)  # as the scoring pass runs it
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        model(x)
        start = time.perf_counter()
        for _ in range(images // 128):
            model(x)
    return (time.perf_counter() - start) * 50_000 / images


def whole_cifar() -> None:
    passes = {dtype: forward_s(dtype) for dtype in (torch.float32, torch.bfloat16)}
    labels = torch.arange(50_000) % 10
    full = sample(50_000, 10, 512, labels)
    two = Candidates(labels_N=labels, num_classes=10, outputs=[*full.outputs, *sample(50_000, 10, 512, labels).outputs])
    print("\n### CIFAR-10: 50,000 x (10 + 512), 10 %, class by class\n")
    print("| algorithm | s | of a forward pass in float32 | in bfloat16 |\n|---|---|---|---|")
    row("one forward pass of ResNet-18 (from 5,120 images)", "", *(f"{seconds:.0f} s" for seconds in passes.values()))
    variants: list[tuple[str, dict[str, object]]] = [
        (name, {}) for name in ALGORITHMS if not requirements(name, 0.1).scores
    ]
    variants += [
        ("glister", {"greedy": "r_greedy"}),
        ("glister", {"greedy": "stochastic"}),
        ("gradmatch", {"per": "class_gradient"}),
        ("gradmatch", {"per": "batch"}),
        ("craig", {"greedy": "stochastic"}),
        ("facility_location", {"greedy": "stochastic"}),
    ]
    for name, options in variants:
        given = two if requirements(name, 0.1).models > 1 else full
        ours_s, _ = timed(lambda name=name, o=options, g=given: select(name, g, fraction=0.1, options=o).indices_K, 2)
        text = ", ".join(f"{key}: {value}" for key, value in options.items())
        row(f"`{name}` {text}", f"{ours_s:.3f}", *(f"{ours_s / seconds:.2%}" for seconds in passes.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}\n")
    one_class()
    many_classes()
    whole_cifar()


if __name__ == "__main__":
    main()
