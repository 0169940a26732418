"""GradMatch beside the published code and the installed library."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import libraries
from benchmarks.peers.batches import BATCH, by_batch, published_gradmatch
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
from benchmarks.peers.page import DEEPCORE, OURS, RANDOM, Line, Section, cost, percent, whole
from lipt.selection import select
from lipt.selection.algorithms.gradmatch import LAM


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
    plain = select("gradmatch", candidates, fraction=FRACTION, lam=0.0)
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
