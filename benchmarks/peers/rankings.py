"""Herding, k-center, rankings, and properties of every algorithm: budgets, k = n, NaN, seeds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import libraries
from benchmarks.peers.coverage import cosine, one_class
from benchmarks.peers.inputs import FRACTION, Problem, outcome, overlap, problem, random_sets
from benchmarks.peers.page import APRICOT, DEEPCORE, OURS, RANDOM, SUBMODLIB, Line, Section, percent, whole
from lipt.selection import Candidates, select
from lipt.selection.algorithms.ranking import difficulty


def herd(features: Tensor, k: int, *, largest: bool = False) -> list[int]:
    """Herding by its definition, float64; with `largest`, re-implemented: argmax instead of argmin."""
    h = features.double()
    picked, total = list[int](), torch.zeros_like(h[0])
    for t in range(k):
        errors = ((t + 1) * h.mean(0) - total - h).norm(dim=1)
        errors[picked] = -torch.inf if largest else torch.inf
        picked.append(int(errors.argmax() if largest else errors.argmin()))
        total += h[picked[-1]]
    return picked


def farthest(distances: Tensor, first: int, k: int) -> list[int]:
    picked = [first]
    while len(picked) < k:
        picked.append(int(distances[:, picked].min(1).values.argmax()))
    return picked


def geometry(p: Problem) -> Section:
    features = p.features[:800]
    k, candidates, mean = 80, one_class(features), features.double().mean(0)
    sets = random_sets(len(features), k)

    def error(picks: Tensor | list[int]) -> float:
        return float((features[torch.as_tensor(picks)].double().mean(0) - mean).norm())

    unit = torch.nn.functional.normalize(features, dim=1)
    distances = torch.cdist(unit.double(), unit.double())

    def radius(picks: Tensor | list[int]) -> float:
        return float(distances[:, torch.as_tensor(picks)].min(1).values.max())

    herding = select("herding", candidates, fraction=k / len(features)).indices_K.tolist()
    exact = herd(features, k)
    center = select("k_center", one_class(unit), fraction=k / len(features)).indices_K.tolist()
    brute = farthest(distances, center[0], k)
    theirs = libraries.submodlib_farthest(cosine(features), k)
    chance, far = float(np.mean([error(s) for s in sets])), float(np.mean([radius(s) for s in sets]))
    return Section(
        "Herding and k-center",
        f"{k} of {len(features)} samples. No installable library has herding. Radius: the largest distance from a "
        "sample to its nearest pick, on features of length 1. submodlib runs DisparityMin on cosines: farthest-first "
        "from another start. Re-implemented: argmax instead of argmin.",
        [
            Line(
                "herding, \\|mean − mean of the picks\\|",
                lambda v: v < chance,
                {OURS: error(herding), DEEPCORE: error(herd(features, k, largest=True)), RANDOM: chance},
                "argmax moves the mean away",
            ),
            Line(
                "herding, picks shared with the definition in float64",
                lambda v: v > 0.99,
                {
                    OURS: overlap(exact, herding),
                    DEEPCORE: overlap(exact, herd(features, k, largest=True)),
                    RANDOM: float(np.mean([overlap(exact, s) for s in sets])),
                },
                "",
                percent,
            ),
            Line(
                "k-center, radius",
                lambda v: v < far,
                {OURS: radius(center), SUBMODLIB: radius(theirs), RANDOM: far},
                "both are right",
            ),
            Line(
                "k-center, picks shared with brute force",
                lambda v: v > 0.99,
                {OURS: overlap(brute, center), RANDOM: float(np.mean([overlap(brute, s) for s in sets]))},
                "",
                percent,
            ),
        ],
    )


def scores(p: Problem) -> Section:
    k, candidates = round(FRACTION * len(p)), p.candidates()
    with torch.no_grad():
        probabilities = p.model(p.features).double().softmax(1)
    entropy = -(probabilities * probabilities.log()).sum(1)
    picks = select("uncertainty", candidates, fraction=FRACTION, balanced=False).indices_K
    exact, reversed_ = entropy.topk(k).indices, (-entropy).topk(k).indices
    counts = torch.randint(0, 6, (len(p),), generator=torch.Generator().manual_seed(3)).float()
    never = entropy.topk(50).indices
    known = counts.clone()
    known[never] = torch.inf
    tracked = Candidates(labels_N=p.labels, num_classes=p.classes, forgetting_N=known)
    forgotten = select("forgetting", tracked, fraction=FRACTION, balanced=False).indices_K
    zero = counts.clone()
    zero[never] = 0
    lost = zero.argsort(descending=True, stable=True)[:k]
    norms = p.gradients().norm(dim=1).topk(k).indices
    grand = select("grand", candidates, fraction=FRACTION, balanced=False).indices_K
    el2n = select("el2n", candidates, fraction=FRACTION, balanced=False).indices_K
    return Section(
        "Rankings",
        f"{k} of {len(p)} samples, classes ignored. No installable library has these rankings. Re-implemented: the "
        "most certain sample comes first (DeepCore's uncertainty without balancing), and samples that were never "
        "learned (50 of them) count as never forgotten.",
        [
            Line(
                "uncertainty: picks among the k least certain",
                lambda v: v == 1,
                {OURS: overlap(exact, picks), DEEPCORE: overlap(exact, reversed_), RANDOM: FRACTION},
                "",
                percent,
            ),
            Line(
                "uncertainty: mean entropy of the picks, nats",
                lambda v: v > float(entropy.mean()),
                {
                    OURS: float(entropy[picks].mean()),
                    DEEPCORE: float(entropy[reversed_].mean()),
                    RANDOM: float(entropy.mean()),
                },
                "",
            ),
            Line(
                "forgetting: never-learned samples picked, of 50",
                lambda v: v == 50,
                {OURS: overlap(never, forgotten) * 50, DEEPCORE: overlap(never, lost) * 50, RANDOM: 50 * FRACTION},
                "lipt scores them +inf, so they come first; scored 0 they come last",
                whole,
            ),
            Line(
                "GraNd: picks among the k largest gradients",
                lambda v: v == 1,
                {OURS: overlap(norms, grand), RANDOM: FRACTION},
                "the norms are checked above",
                percent,
            ),
            Line(
                "EL2N: picks among the k largest errors",
                lambda v: v == 1,
                {OURS: overlap(p.errors().norm(dim=1).topk(k).indices, el2n), RANDOM: FRACTION},
                "",
                percent,
            ),
            Line(
                "EL2N scores against float64, largest relative error",
                lambda v: v < 1e-5,
                {OURS: float((difficulty(candidates, "el2n") / p.errors().norm(dim=1) - 1).abs().max())},
                "",
                lambda v: f"{v:.1e}",
            ),
        ],
    )


def contract(seed: int) -> Section:
    uneven = problem((333, 501, 499, 667), seed=seed)
    k = round(FRACTION * len(uneven))
    goal = [round(FRACTION * int((uneven.labels == c).sum())) for c in range(uneven.classes)]

    def budget(picks: Tensor | list[int]) -> str:
        index = torch.as_tensor(picks)
        counts = torch.bincount(uneven.labels[index], minlength=uneven.classes).tolist()
        text = f"{len(index)}: {', '.join(map(str, counts))}"
        return text if counts == goal else f"**{text}** ✗"

    small = problem((50, 50), seed=seed)
    matrix, n = cosine(small.features), len(small)
    broken = small.rows(torch.arange(n))
    broken.features = broken.features.clone()
    broken.features[17, 3] = torch.nan
    nan = cosine(broken.features)

    def everything(picks: Tensor | list[int]) -> str:
        distinct = len({int(i) for i in picks})
        text = f"{distinct} of {len(picks)} distinct"
        return text if distinct == len(picks) == n else f"**{text}** ✗"

    def ten(picks: Tensor | list[int]) -> str:
        return f"{len(set(map(int, picks)))} distinct"

    def silent(picks: Tensor | list[int]) -> str:
        return f"**{len(picks)} indices, no error** ✗"

    def cords(kind: str, p: Problem, k: int, **options: object) -> list[int]:
        return libraries.cords(kind, p, k, selection_type="PerClass", **options)[0]

    draws = [set(select("random", small.candidates(), fraction=0.1, seed=s).indices_K.tolist()) for s in range(5)]
    again = set(select("random", small.candidates(), fraction=0.1, seed=0).indices_K.tolist())
    shared = max(overlap(list(a), list(b)) for a, b in combinations(draws, 2))
    tied = Candidates(labels_N=torch.zeros(9, dtype=torch.int64), num_classes=1, forgetting_N=torch.ones(9))
    glister = {"greedy": "Naive", "eta": 0.01}
    solver, naive, stochastic = "cords, GradMatch", "cords, Glister Naive", "cords, Glister Stochastic"
    return Section(
        "Properties of every selection",
        f"The first row uses {len(uneven)} samples in classes of 333, 501, 499 and 667, and fraction {FRACTION:g}. The "
        f"rows on k = n, NaN and a budget of 10 use {n} samples. For the row on NaN, one feature of sample 17 is NaN.",
        [
            Line(
                f"picks in total and per class; correct: {sum(goal)}: {', '.join(map(str, goal))}",
                None,
                {
                    OURS: budget(select("gradmatch", uneven.candidates(), fraction=FRACTION).indices_K),
                    solver: budget(cords("gradmatch", uneven, k)),
                    naive: budget(cords("glister", uneven, k, **glister)),
                },
                "cords rounds every class up; its GradMatch adds random samples from any class",
            ),
            Line(
                "k = n returns everything",
                None,
                {
                    OURS: everything(select("gradmatch", small.candidates(), fraction=1).indices_K),
                    solver: outcome(lambda: everything(cords("gradmatch", small, n))),
                    naive: outcome(lambda: everything(cords("glister", small, n, **glister))),
                    stochastic: outcome(lambda: everything(cords("glister", small, n, greedy="Stochastic", eta=0.01))),
                    APRICOT: outcome(lambda: everything(libraries.apricot_facility(matrix, n))),
                    SUBMODLIB: outcome(lambda: everything(libraries.submodlib_facility(matrix, n))),
                },
                "submodlib refuses by design; cords GradMatch reaches n with random samples; cords Stochastic draws "
                "more samples than are left",
            ),
            Line(
                "a total budget of 10",
                None,
                {
                    OURS: outcome(lambda: ten(select("glister", small.candidates(), fraction=0.1).indices_K)),
                    naive: outcome(lambda: ten(cords("glister", small, 10, **glister))),
                    "cords, Glister RGreedy": outcome(
                        lambda: ten(cords("glister", small, 10, greedy="RGreedy", eta=0.01))
                    ),
                },
                "RGreedy picks int(k / 15) samples per round: none for k < 15",
            ),
            Line(
                "NaN is an error that names the sample",
                None,
                {
                    OURS: outcome(lambda: silent(select("gradmatch", broken.candidates(), fraction=0.1).indices_K)),
                    solver: outcome(lambda: silent(cords("gradmatch", broken, 10))),
                    naive: outcome(lambda: silent(cords("glister", broken, 10, **glister))),
                    APRICOT: outcome(lambda: silent(libraries.apricot_facility(nan, 10))),
                    SUBMODLIB: outcome(lambda: silent(libraries.submodlib_facility(nan, 10))),
                },
                "",
            ),
            Line(
                "random: same seed, same picks; five seeds, five subsets",
                None,
                {OURS: f"{percent(overlap(list(draws[0]), list(again)))} same; at most {percent(shared)} shared"},
                "DeepCore's experiments use one seed for all repeats",
            ),
            Line(
                "equal scores go to the lowest index",
                None,
                {OURS: str(select("forgetting", tied, fraction=0.4).indices_K.tolist())},
                "four picks out of nine equal scores",
            ),
        ],
    )
