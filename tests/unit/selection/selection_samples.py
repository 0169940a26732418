"""Small candidates, and the textbook algorithms on dense gradients that the engine must agree with."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from lipt.selection import ALGORITHMS, Candidates, Outputs, Selection, select


def make(
    n: int = 40,
    classes: int = 4,
    d: int = 6,
    *,
    models: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    labels: Tensor | None = None,
) -> Candidates:
    """Candidates whose logits come from a random classifier of clustered features."""
    g = torch.Generator().manual_seed(seed)
    labels_N = torch.randint(classes, (n,), generator=g) if labels is None else labels
    centres = torch.randn(classes, d, generator=g)
    outputs = []
    for _ in range(models):
        features = (centres[labels_N] + torch.randn(n, d, generator=g)).to(dtype)
        logits = features @ torch.randn(d, classes, generator=g).to(dtype)
        outputs.append(Outputs(logits_NC=logits, features_ND=features))
    forgetting = torch.randint(5, (n,), generator=g).float()
    forgetting[:: max(2, n // 4)] = torch.inf
    scores = torch.randn(n, generator=g)
    return Candidates(labels_N=labels_N, num_classes=classes, outputs=outputs, forgetting_N=forgetting, scores_N=scores)


#: Algorithms that need no trajectory; `make` gives all that they read.
FROM_OUTPUTS = [name for name in ALGORITHMS if name not in ("aum", "dyn_unc")]


def one_class(n: int = 30, d: int = 5, classes: int = 4, *, seed: int = 0, models: int = 1) -> Candidates:
    """All candidates in class 0, so that positions in the group are positions in the candidates."""
    return make(n, classes, d, seed=seed, models=models, labels=torch.zeros(n, dtype=torch.int64))


def permuted(candidates: Candidates, order_N: Tensor) -> Candidates:
    forgetting = candidates.forgetting_N
    return Candidates(
        labels_N=candidates.labels_N[order_N],
        num_classes=candidates.num_classes,
        outputs=[
            Outputs(logits_NC=o.logits_NC[order_N], features_ND=o.features_ND[order_N]) for o in candidates.outputs
        ],
        forgetting_N=None if forgetting is None else forgetting[order_N],
        scores_N=None if candidates.scores_N is None else candidates.scores_N[order_N],
    )


def run(algorithm: str, candidates: Candidates, k: int, **options: object) -> Selection:
    """k of all candidates, as one group."""
    return select(algorithm, candidates, fraction=k / len(candidates), balanced=False, **options)


def dense_gradients(candidates: Candidates, model: int = 0) -> Tensor:
    """Per-sample gradients of the classifier by autograd (N, C E), from the definition of the loss."""
    outputs = candidates.outputs[model]
    rows = []
    for z, h, y in zip(outputs.logits_NC, outputs.features_ND, candidates.labels_N, strict=True):
        step = torch.zeros(len(z), len(h) + 1, dtype=z.dtype, requires_grad=True)  # the classifier moves by `step`
        logits = z + step @ torch.cat([h, h.new_ones(1)])
        loss = torch.nn.functional.cross_entropy(logits[None], y[None])
        rows.append(torch.autograd.grad(loss, step)[0].flatten())
    return torch.stack(rows)


def omp(gradients_NP: Tensor, k: int, lam: float, goal_P: Tensor) -> tuple[list[int], np.ndarray]:
    """Textbook orthogonal matching pursuit on dense gradients; weights by scipy's NNLS on the ridge system, with the
    ridge in units of their mean squared norm."""
    a, b = gradients_NP.numpy(), goal_P.numpy()
    ridge = lam * np.square(a).sum(1).mean()
    picked: list[int] = []
    weights, residual = np.zeros(0), b
    for _ in range(k):
        scores = a @ residual
        scores[picked] = -np.inf
        picked.append(int(scores.argmax()))
        system = np.vstack([a[picked].T, math.sqrt(ridge) * np.eye(len(picked))])
        weights, _ = nnls(system, np.concatenate([b, np.zeros(len(picked))]))
        residual = b - weights @ a[picked]
    return picked, weights


def medoids(distances_NN: Tensor, k: int) -> list[int]:
    """Naive greedy: every gain of every candidate in every step; gains equal up to rounding go by index."""
    picked: list[int] = []
    for _ in range(k):
        costs = [
            math.inf if j in picked else float(distances_NN[[*picked, j]].min(0).values.sum())
            for j in range(len(distances_NN))
        ]
        before = float(distances_NN[picked].min(0).values.sum()) if picked else 0.0
        gains = [before - cost for cost in costs]
        tie = 1e-6 * max(gains) if picked else 0.0
        picked.append(next(j for j, gain in enumerate(gains) if gain >= max(gains) - tie))
    return picked


def glister(candidates: Candidates, validation: Candidates, k: int, eta: float) -> list[int]:
    """Naive GLISTER: after each pick the validation gradient is recomputed at the moved classifier, densely."""
    gradients = dense_gradients(candidates)
    z = validation.outputs[0].logits_NC.clone()
    h1 = torch.cat([validation.outputs[0].features_ND, torch.ones(len(validation), 1, dtype=z.dtype)], 1)
    picked: list[int] = []
    for _ in range(k):
        moved = Candidates(
            labels_N=validation.labels_N,
            num_classes=validation.num_classes,
            outputs=[Outputs(logits_NC=z, features_ND=validation.outputs[0].features_ND)],
        )
        gains = gradients @ dense_gradients(moved).mean(0)
        gains[picked] = -torch.inf
        picked.append(int(gains.argmax()))
        step = gradients[picked[-1]].reshape(validation.num_classes, -1)
        z = z - eta * h1 @ step.T
    return picked


def matching_error(gradients_NP: Tensor, indices_K: Tensor, weights_K: Tensor) -> float:
    """|mean gradient - weighted mean of the subset's|."""
    weights = weights_K.double() / weights_K.double().sum()
    return float((gradients_NP.mean(0) - weights @ gradients_NP[indices_K]).norm())


def same(one: Selection, other: Selection) -> None:
    """Assert that two selections are, bit by bit."""
    for name in ("indices_K", "weights_K", "scores_N", "labels_N", "positions_N"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None) == (theirs is None), name
        assert mine is None or (mine.dtype == theirs.dtype and torch.equal(mine, theirs)), name
    assert one.provenance == other.provenance


def peak_bytes(work: Callable[[], object]) -> int:
    """What all tensors that `work` makes take together, at most."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(accumulate(changes, initial=0))


def everyone(candidates: Candidates) -> Tensor:
    return torch.arange(len(candidates))
