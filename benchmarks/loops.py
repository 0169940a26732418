"""The selection algorithms as users would write them: loops on dense gradients, as published implementations have them.

They keep all n C (d + 1) numbers and compute every step from scratch. `python -m benchmarks.selection` times them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.linalg import lstsq
from torch import Tensor

from lipt.selection import Candidates, Outputs

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


def published_gradmatch(c: Candidates, k: int) -> list[int]:
    """Orthogonal matching pursuit as published libraries do it in numpy: no constraint on the weights, rows stacked
    anew and all weights solved from scratch in every step; the identity turns weights, residual and with them, in every
    step, all gradients into float64."""
    a = dense(c)
    b, picked, ridge = a.sum(0), list[int](), LAM * float(np.square(a).sum(1).mean())
    residual, chosen = b, np.empty((0, a.shape[1]), dtype=np.float32)
    for _ in range(k):
        scores = a @ residual
        scores[picked] = -np.inf
        picked.append(int(scores.argmax()))
        chosen = np.vstack([chosen, a[picked[-1]]])
        system = chosen @ chosen.T + ridge * np.eye(len(picked))
        residual = b - chosen.T @ lstsq(system, chosen @ b)[0]
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


LOOPS: dict[str, Callable[[Candidates, int], list[int]]] = {
    "grand": textbook_grand, "gradmatch": published_gradmatch, "glister": textbook_glister, "craig": textbook_craig,
    "herding": textbook_herding, "k_center": textbook_k_center,
}  # fmt: skip
