"""Selection against the textbook loops on dense gradients, in one run: `python benchmarks/selection.py [--threads 2]`.

The loops keep all n C (d + 1) gradient numbers and solve every step from scratch, as published implementations do. Both
sides see the same float32 inputs; "same" is the share of the k positions at which both picked the same sample (medoids
tie often, and the engine takes the lowest index where the loop goes by rounding). The last column is the engine alone
at the size of one CIFAR-10 class (n = 5000, C = 10, d = 512, k = 500), where the loops take minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from lipt.core.selection import Candidates, Outputs, select

LAM = 0.5


def sample(n: int, classes: int, d: int) -> Candidates:
    """One class: non-negative clustered features and the logits of a linear classifier, as after a ReLU network."""
    g = torch.Generator().manual_seed(0)
    features = (
        torch.randn(6, d, generator=g)[torch.randint(6, (n,), generator=g)] * 0.6 + torch.randn(n, d, generator=g) * 0.5
    ).relu()
    logits = features @ torch.randn(d, classes, generator=g) * 2 / d**0.5
    logits[:, 0] += 1.5
    labels = torch.zeros(n, dtype=torch.int64)
    return Candidates(labels_N=labels, num_classes=classes, outputs=[Outputs(logits_NC=logits, features_ND=features)])


def dense(candidates: Candidates) -> np.ndarray:
    """All gradients (n, C (d + 1))."""
    (outputs,) = candidates.outputs
    h1 = torch.cat([outputs.features_ND, torch.ones(len(candidates), 1)], 1)
    error = outputs.logits_NC.softmax(1) - torch.eye(candidates.num_classes)[candidates.labels_N]
    return (error[:, :, None] * h1[:, None, :]).flatten(1).numpy()


def textbook_grand(c: Candidates, k: int) -> list[int]:
    return np.argsort(-np.linalg.norm(dense(c), axis=1), kind="stable")[:k].tolist()


def textbook_gradmatch(c: Candidates, k: int) -> list[int]:
    a = dense(c)
    b, picked = a.sum(0), list[int]()
    residual = b
    for _ in range(k):
        scores = a @ residual
        scores[picked] = -np.inf
        picked.append(int(scores.argmax()))
        system = a[picked] @ a[picked].T + LAM * np.eye(len(picked))
        root = np.linalg.cholesky(system.astype(np.float64))
        weights, _ = nnls(root.T, np.linalg.solve(root, a[picked] @ b))
        residual = b - weights.astype(np.float32) @ a[picked]
    return picked


def textbook_glister(c: Candidates, k: int) -> list[int]:
    a, (outputs,) = dense(c), c.outputs
    h1 = torch.cat([outputs.features_ND, torch.ones(len(c), 1)], 1)
    eta, z, picked = 0.1 / float(h1.square().sum(1).mean()), outputs.logits_NC, list[int]()
    for _ in range(k):
        moved = Candidates(
            labels_N=c.labels_N,
            num_classes=c.num_classes,
            outputs=[Outputs(logits_NC=z, features_ND=outputs.features_ND)],
        )
        gains = a @ dense(moved).mean(0)
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


TEXTBOOK: dict[str, Callable[[Candidates, int], list[int]]] = {
    "grand": textbook_grand, "gradmatch": textbook_gradmatch, "glister": textbook_glister, "craig": textbook_craig,
    "herding": textbook_herding, "k_center": textbook_k_center,
}  # fmt: skip


def timed(function: Callable[[], Tensor | list[int]], repeats: int = 1) -> tuple[float, list[int]]:
    """Best wall-clock seconds of `repeats`, and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return min(seconds), [int(i) for i in result]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    n, k = 1200, 120
    small, full = sample(n, 10, 256), sample(5000, 10, 512)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; n={n} C=10 d=256 k={k}, float32")
    print(f"{'algorithm':<12}{'textbook s':>12}{'engine s':>10}{'ratio':>8}{'same':>7}{'n=5000 k=500 s':>17}")
    for name, textbook in TEXTBOOK.items():
        theirs_s, theirs = timed(lambda textbook=textbook: textbook(small, k))
        ours_s, ours = timed(lambda name=name: select(name, small, fraction=k / n).indices_K, 3)
        full_s, _ = timed(lambda name=name: select(name, full, fraction=0.1).indices_K)
        same = sum(a == b for a, b in zip(ours, theirs, strict=True)) / k
        print(f"{name:<12}{theirs_s:>12.3f}{ours_s:>10.4f}{theirs_s / ours_s:>7.0f}x{same:>7.0%}{full_s:>17.3f}")


if __name__ == "__main__":
    main()
