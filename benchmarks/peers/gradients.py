"""Batch size, GradMatch and Glister: the algorithms that use last-layer gradients."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from benchmarks.peers import libraries
from benchmarks.peers.inputs import (
    FRACTION,
    Problem,
    matching_error,
    measured,
    nnls_excess,
    overlap,
    problem,
    stratified_sets,
)
from benchmarks.peers.page import CORDS, DEEPCORE, OURS, RANDOM, Line, Section, cost, percent, whole
from lipt.selection import select
from lipt.selection.algorithms.gradmatch import LAM
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


def residual(p: Problem, picks: Tensor | list[int], weights: Tensor | list[float]) -> float:
    """|sum over S of w_i g_i - sum of all g_i| / |sum of all g_i|, averaged over the classes."""
    g, picks, weights = p.gradients(), torch.as_tensor(picks), torch.as_tensor(weights).double()
    errors = []
    for label in range(p.classes):
        own, goal = p.labels[picks] == label, g[p.members(label)].sum(0)
        errors.append(float(((weights[own, None] * g[picks[own]]).sum(0) - goal).norm() / goal.norm()))
    return float(np.mean(errors))


def class_errors(p: Problem, picks: list[int], k: int) -> float:
    """Largest distance of a class from its exact share of the budget."""
    counts = torch.bincount(p.labels[torch.tensor(picks)], minlength=p.classes)
    shares = torch.bincount(p.labels, minlength=p.classes) * k / len(p)
    return float((counts - shares).abs().max())


def gradmatch(p: Problem) -> Section:
    k, candidates = round(FRACTION * len(p)), p.candidates()
    runs = {
        "cords, CPU solver": measured(lambda: libraries.cords("gradmatch", p, k, selection_type="PerClass")),
        "cords, torch solver": measured(
            lambda: libraries.cords(
                "gradmatch", p, k, device=libraries.TORCH_SOLVER, selection_type="PerClass", lam=0.5
            )
        ),
    }
    again = libraries.cords("gradmatch", p, k, selection_type="PerClass", seed=1)[0]
    mine, seconds, memory = measured(lambda: select("gradmatch", candidates, fraction=FRACTION))
    plain = select("gradmatch", candidates, fraction=FRACTION, options={"lam": 0.0})
    indices = mine.indices_K.tolist()
    twice = select("gradmatch", candidates, fraction=FRACTION, seed=1).indices_K
    sure = problem(apart=1.5, steps=3000)
    of_sure = select("gradmatch", sure.candidates(), fraction=FRACTION)
    theirs_of_sure = libraries.cords(
        "gradmatch", sure, k, device=libraries.TORCH_SOLVER, selection_type="PerClass", lam=0.5
    )
    order_of_sure, weights_of_sure, _ = published_gradmatch(sure, sure.gradients())
    g, scaled = p.gradients(), by_batch(p, BATCH)
    order, weights, static = published_gradmatch(p, g)
    shrunk, shrunk_weights, shrunk_static = published_gradmatch(p, scaled)
    sets = stratified_sets(p)
    chance = float(np.mean([matching_error(p, each, torch.ones(len(each))) for each in sets]))
    residual_chance = float(np.mean([residual(p, each, torch.full(each.shape, len(p) / k)) for each in sets]))
    counts = [int((each > 0).sum()) for each in (shrunk_weights, weights)]
    kept = f"{counts[0]} ({counts[1]})" + " ✗" * (min(counts) < k)
    first = runs["cords, CPU solver"][0][0]
    return Section(
        "GradMatch",
        f"{k} of {len(p)} samples in {p.classes} classes. cords has two solvers. The first runs only if the device is "
        'the string "cpu", and fixes lam at 0. On every other device the second one runs. Re-implemented: OMP '
        "towards the mean with lam 1, then NNLS, then samples of weight zero are dropped. It runs on gradients divided "
        "by the batch size (in brackets: on correct gradients).",
        [
            Line(
                "samples chosen by the algorithm",
                lambda v: v == k,
                {OURS: len(set(indices)), **{name: k - run[0][2] for name, run in runs.items()}, DEEPCORE: kept},
                "cords drops picks whose weight becomes negative. A repeated pick ends the search (CPU) or wastes a "
                "step (torch). It adds random samples up to k. DeepCore loses samples of weight 0",
                whole,
            ),
            Line(
                "of them with weight 0",
                None,
                {
                    OURS: f"{int((mine.weights_K == 0).sum())}",
                    **{name: f"{sum(w == 0 for w in run[0][1])}" for name, run in runs.items()},
                },
                "lipt keeps them to return k samples. In cords, random samples weigh 1 and chosen ones about n / k",
            ),
            Line(
                "samples returned, distinct",
                lambda v: v == k,
                {OURS: len(set(indices)), **{name: len(set(run[0][0])) for name, run in runs.items()}, DEEPCORE: kept},
                "with its random samples, cords returns k distinct ones",
                whole,
            ),
            Line(
                "largest deviation of a class from its budget",
                lambda v: v == 0,
                {OURS: class_errors(p, indices, k), **{n: class_errors(p, r[0][0], k) for n, r in runs.items()}},
                "the random samples of cords come from any class",
                whole,
            ),
            Line(
                "same picks with another seed",
                lambda v: v == 1,
                {OURS: overlap(indices, twice), "cords, CPU solver": overlap(first, again)},
                "OMP uses no random numbers; the random samples of cords do",
                percent,
            ),
            Line(
                "share of a static top-k by \\<g_i, mean g\\>",
                lambda v: v < 0.9,
                {
                    OURS: overlap(indices, static),
                    **{n: overlap(r[0][0], static) for n, r in runs.items()},
                    DEEPCORE: f"{percent(overlap(shrunk, shrunk_static))} ({percent(overlap(order, static))})",
                },
                "with tiny gradients an absolute ridge dominates: the residual stays constant and OMP becomes a "
                "ranking",
                percent,
            ),
            Line(
                "objective above that of NNLS on the same samples",
                lambda v: v < 1e-3,
                {
                    OURS: nnls_excess(p, indices, mine.weights_K, LAM, relative=True),
                    **{
                        name: nnls_excess(p, run[0][0], run[0][1], lam)
                        for (name, run), lam in zip(runs.items(), (0.0, 0.5), strict=True)
                    },
                },
                "reference: the best weights for the returned samples, by scipy; each side with its own lam",
                lambda v: f"{v:.1%}",
            ),
            Line(
                "matching error, weights as in training",
                lambda v: v < chance,
                {
                    OURS: matching_error(p, indices, mine.weights_K),
                    **{n: matching_error(p, r[0][0], r[0][1]) for n, r in runs.items()},
                    DEEPCORE: matching_error(p, shrunk, shrunk_weights),
                    RANDOM: chance,
                },
                "\\|mean g − weighted mean g_S\\| / \\|mean g\\|; here the defects of cords have little effect",
            ),
            Line(
                "the same, lam 0 on both sides",
                lambda v: v < chance,
                {
                    OURS: matching_error(p, plain.indices_K, plain.weights_K),
                    "cords, CPU solver": matching_error(p, first, runs["cords, CPU solver"][0][1]),
                    RANDOM: chance,
                },
                "no important difference",
            ),
            Line(
                "residual \\|Σ w g_S − Σ g\\| / \\|Σ g\\|, lam 0",
                lambda v: v < chance,
                {
                    OURS: residual(p, plain.indices_K, plain.weights_K),
                    "cords, CPU solver": residual(p, first, runs["cords, CPU solver"][0][1]),
                    RANDOM: residual_chance,
                },
                "OMP minimises this residual; random has weights n / k",
            ),
            Line(
                "the same for a confident model, each side with its own lam",
                lambda v: v < residual_chance,
                {
                    OURS: residual(sure, of_sure.indices_K, of_sure.weights_K),
                    "cords, torch solver": residual(sure, theirs_of_sure[0], theirs_of_sure[1]),
                    DEEPCORE: residual(sure, order_of_sure, weights_of_sure * len(p) / p.classes),
                },
                f"mean \\|g\\|² is {float(sure.gradients().square().sum(1).mean()):.2g} instead of "
                f"{float(g.square().sum(1).mean()):.2g}. lam is a constant in cords (.5) and DeepCore (1). In "
                f"lipt it is {LAM} times the mean \\|g\\|² of a class. Earlier versions of lipt used a constant .5 "
                "and had the same defect",
            ),
            Line(
                "CPU time, memory",
                None,
                {OURS: cost(seconds, memory), **{name: cost(*run[1:]) for name, run in runs.items()}},
                "lipt: without the pass that computes logits and features",
            ),
        ],
    )


def brute_glister(p: Problem, label: int, k: int, eta: float) -> list[int]:
    """The greedy of the definition on dense float64 gradients, one Taylor step after every pick."""
    own = p.rows(p.members(label))
    g, h1 = own.gradients(), torch.cat([torch.ones(len(own), 1), own.features], 1).double()
    with torch.no_grad():
        z = own.model(own.features).double()
    onehot, picked = torch.eye(p.classes).double()[own.labels], list[int]()
    for _ in range(k):
        error = (z.softmax(1) - onehot) / len(own)
        goal = torch.cat([error.sum(0), (error.T @ h1[:, 1:]).flatten()])
        gains = g @ goal
        gains[picked] = -torch.inf
        picked.append(int(gains.argmax()))
        step = g[picked[-1]]
        z = z - eta * (step[: p.classes] + h1[:, 1:] @ step[p.classes :].reshape(p.classes, -1).T)
    return p.members(label)[torch.tensor(picked)].tolist()


def glister(p: Problem) -> Section:
    k, candidates = round(FRACTION * len(p)), p.candidates()
    eta = 0.1 / float((p.features.square().sum(1) + 1).mean())
    budgets = [round(FRACTION * len(p.members(label))) for label in range(p.classes)]
    brute = [brute_glister(p, label, budget, eta) for label, budget in enumerate(budgets)]
    mine, seconds, memory = measured(lambda: select("glister", candidates, fraction=FRACTION, options={"eta": eta}))
    options = {"eta": eta, "selection_type": "PerClass"}
    naive = measured(lambda: libraries.cords("glister", p, k, greedy="Naive", **options))
    groups = measured(lambda: libraries.cords("glister", p, k, greedy="RGreedy", **options))
    all_at_once = libraries.cords("glister", p, k, greedy="RGreedy", eta=eta, selection_type="Supervised")
    g, static = p.gradients(), []
    for label, budget in enumerate(budgets):
        own = p.members(label)
        static += own[(g[own] @ g[own].mean(0)).topk(budget).indices].tolist()
    exact = [i for each in brute for i in each]

    def positions(picks: list[int]) -> float:
        return float(np.mean([a == b for a, b in zip(picks, exact, strict=True)]))

    indices = mine.indices_K.tolist()
    one, two = "cords, Naive", "cords, RGreedy"
    return Section(
        "Glister",
        f"{k} of {len(p)} samples, class by class. The training data serve as validation data; all use the same step "
        f"size eta = {eta:.2g}. Brute force: dense float64 gradients; every gain is computed again after every Taylor "
        "step. Re-implemented: the Taylor step never runs.",
        [
            Line(
                "positions equal to the brute-force greedy",
                lambda v: v == 1,
                {OURS: positions(indices), one: positions(naive[0][0]), DEEPCORE: positions(static)},
                "cords Naive is right; without the Taylor step the greedy is a fixed ranking",
                percent,
            ),
            Line(
                "samples shared with the brute-force greedy",
                lambda v: v > 0.99,
                {
                    OURS: overlap(exact, indices),
                    one: overlap(exact, naive[0][0]),
                    two: overlap(exact, groups[0][0]),
                    DEEPCORE: overlap(exact, static),
                    RANDOM: float(np.mean([overlap(exact, each) for each in stratified_sets(p)])),
                },
                "RGreedy makes several picks per step: an intended approximation",
                percent,
            ),
            Line(
                "indices − weights returned",
                lambda v: v == 0,
                {
                    OURS: len(indices) - len(mine.weights_K),
                    one: len(naive[0][0]) - len(naive[0][1]),
                    two: len(groups[0][0]) - len(groups[0][1]),
                },
                f"RGreedy picks int(k / 15) per round and exceeds the budget; with all classes at once it returns "
                f"{len(all_at_once[0])} indices and {len(all_at_once[1])} weights",
                whole,
            ),
            Line(
                "indices returned − budget",
                lambda v: v == 0,
                {OURS: len(indices) - k, one: len(naive[0][0]) - k, two: len(groups[0][0]) - k},
                "",
                whole,
            ),
            Line(
                "CPU time, memory",
                None,
                {OURS: cost(seconds, memory), one: cost(*naive[1:]), two: cost(*groups[1:])},
                "",
            ),
        ],
    )
