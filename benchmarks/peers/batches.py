"""The effect of the batch size of the scoring pass on GradMatch."""

from __future__ import annotations

import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from benchmarks.peers import libraries
from benchmarks.peers.inputs import FRACTION, Problem, overlap
from benchmarks.peers.page import CORDS, DEEPCORE, OURS, RANDOM, Line, Section, percent
from lipt.selection import select
from lipt.selection.algorithms.ranking import difficulty

BATCH = 110


def by_batch(p: Problem, batch: int) -> Tensor:
    """Re-implemented: gradients of the mean loss of each scoring batch, class by class; the last batch is smaller."""
    g = p.gradients()
    for label in range(p.classes):
        for part in p.members(label).split(batch):
            g[part] /= len(part)
    return g


def published_pursuit(g: Tensor, k: int, lam: float = 1.0) -> tuple[Tensor, Tensor]:
    """Re-implemented: OMP towards the mean; unconstrained weights until NNLS at the end. Order and weights."""
    b, picked, residual = g.mean(0), list[int](), g.mean(0)
    for _ in range(k):
        scores = g @ residual
        scores[picked] = -torch.inf
        picked.append(int(scores.argmax()))
        system = g[picked] @ g[picked].T + lam * torch.eye(len(picked)).double()
        residual = b - g[picked].T @ torch.linalg.solve(system, g[picked] @ b)
    weights, _ = nnls(system.numpy(), (g[picked] @ b).numpy(), maxiter=50 * k)
    return torch.tensor(picked), torch.from_numpy(weights)


def published_gradmatch(p: Problem, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Order, weights and static ranking by <g_i, mean g>, class after class."""
    order, weights, static = [], [], []
    for label in range(p.classes):
        own = p.members(label)
        k = round(FRACTION * len(own))
        picked, w = published_pursuit(g[own], k)
        order.append(own[picked])
        weights.append(w)
        static.append(own[(g[own] @ g[own].mean(0)).topk(k).indices])
    return torch.cat(order), torch.cat(weights), torch.cat(static)


def batch_size(p: Problem) -> Section:
    k = round(FRACTION * len(p))
    small, full = p.candidates(BATCH), p.candidates()

    def ours(algorithm: str) -> float:
        return overlap(*(select(algorithm, c, fraction=FRACTION).indices_K for c in (small, full)))

    def theirs(kind: str, **options: object) -> float:
        return overlap(*(libraries.cords(kind, p, k, batch=batch, **options)[0] for batch in (BATCH, len(p))))

    scaled = by_batch(p, BATCH)
    last = torch.cat([p.members(label)[-(len(p.members(label)) % BATCH) :] for label in range(p.classes)])
    norms, wrong = p.gradients().norm(dim=1), scaled.norm(dim=1)
    picks, right = largest(p, wrong), largest(p, norms)
    order, true_order = published_gradmatch(p, scaled)[0], published_gradmatch(p, p.gradients())[0]
    grand = select("grand", small, fraction=FRACTION).indices_K
    scores = difficulty(full, "grand").double()
    matched = libraries.cords("gradmatch", p, k, batch=BATCH, selection_type="PerClass")[0]
    everyone = overlap(torch.arange(len(p)), last)
    cords_g = libraries.cords_gradients(p).norm(dim=1)
    same = "both are right"
    return Section(
        "Gradients and the scoring batch",
        f"The samples are scored in batches of {BATCH} and all at once. The figure is the share of picks that are "
        "equal in both cases. Re-implemented: each gradient comes from the mean loss of its batch, so it is divided by "
        "the batch size. The last batch of a class is smaller than the others.",
        [
            Line(
                "largest error of \\|g_i\\| against autograd, relative",
                lambda v: v < 1e-5,
                {
                    OURS: relative(scores, autograd_norms(p)),
                    CORDS: relative(cords_g, autograd_norms(p)),
                    DEEPCORE: relative(wrong, autograd_norms(p)),
                },
                "lipt and cords compute the same gradients; the re-implemented ones are divided by the batch size",
                lambda v: f"{v:.1e}",
            ),
            Line(
                "GraNd independent of the batch",
                lambda v: v == 1,
                {OURS: ours("grand"), DEEPCORE: overlap(right, picks)},
                "",
                percent,
            ),
            Line(
                "GradMatch independent of the batch",
                lambda v: v == 1,
                {
                    OURS: ours("gradmatch"),
                    CORDS: theirs("gradmatch", selection_type="PerClass"),
                    DEEPCORE: overlap(true_order, order),
                },
                "cords uses the loss per sample; all its picks but the random ones (below) are right",
                percent,
            ),
            Line(
                "Glister independent of the batch",
                lambda v: v == 1,
                {OURS: ours("glister"), CORDS: theirs("glister", selection_type="PerClass", greedy="Naive", eta=0.01)},
                same,
                percent,
            ),
            Line(
                "CRAIG independent of the batch",
                lambda v: v == 1,
                {OURS: ours("craig")},
                "cords: see CRAIG; there the error has another cause",
                percent,
            ),
            Line(
                "GraNd picks from the last batch of each class",
                lambda v: v < 3 * everyone,
                {OURS: overlap(grand, last), DEEPCORE: overlap(picks, last), RANDOM: everyone},
                "the smallest batch gets the longest gradients",
                percent,
            ),
            Line(
                "GradMatch picks from the last batch of each class",
                lambda v: v < 3 * everyone,
                {
                    OURS: overlap(select("gradmatch", small, fraction=FRACTION).indices_K, last),
                    CORDS: overlap(matched, last),
                    DEEPCORE: overlap(order, last),
                    RANDOM: everyone,
                },
                "",
                percent,
            ),
        ],
    )


def largest(p: Problem, scores: Tensor) -> Tensor:
    """The highest scores of every class."""
    own = [p.members(label) for label in range(p.classes)]
    return torch.cat([rows[scores[rows].topk(round(FRACTION * len(rows))).indices] for rows in own])


def relative(found: Tensor, truth: Tensor) -> float:
    return float(((found.double() - truth) / truth).abs().max())


def autograd_norms(p: Problem) -> Tensor:
    """Gradient norms, one backward pass per sample."""
    parameters, norms = list(p.model.parameters()), []
    for h, y in zip(p.features, p.labels, strict=True):
        parts = torch.autograd.grad(nn.functional.cross_entropy(p.model(h[None]), y[None]), parameters)
        norms.append(torch.cat([part.flatten() for part in parts]).double().norm())
    return torch.stack(norms)
