"""CRAIG, facility location, stochastic greedy, graph cut: greedy algorithms on distances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import libraries
from benchmarks.peers.inputs import (
    FRACTION,
    Problem,
    cover,
    measured,
    naive_medoids,
    outcome,
    overlap,
    progress,
    random_sets,
    stratified_sets,
)
from benchmarks.peers.page import APRICOT, DEEPCORE, OURS, RANDOM, SUBMODLIB, Line, Section, cost, percent, whole
from lipt.selection import Candidates, Outputs, select

SEEDS = range(5)


def craig(p: Problem) -> Section:
    k, g = round(FRACTION * len(p)), p.gradients()
    own = [p.members(label) for label in range(p.classes)]
    linear = [torch.cdist(g[rows], g[rows]) for rows in own]
    squared = [each.square() for each in linear]
    exact = {"linear": class_medoids(linear), "squared": class_medoids(squared)}

    def value(picks: Tensor | list[int], which: list[Tensor]) -> float:
        chosen = torch.as_tensor(picks)
        local = [(rows[:, None] == chosen[p.labels[chosen] == label]).nonzero() for label, rows in enumerate(own)]
        return sum(cover(each, index[:, 0]) for each, index in zip(which, local, strict=True))

    def score(picks: Tensor | list[int], which: list[Tensor], name: str) -> float:
        best = sum(cover(each, index) for each, index in zip(which, exact[name], strict=True))
        chance = np.mean([value(each, which) for each in stratified_sets(p)])
        return progress(value(picks, which), float(chance), best)

    mine, seconds, memory = measured(lambda: select("craig", p.candidates(), fraction=FRACTION))
    theirs, their_s, their_mb = measured(lambda: libraries.cords("craig", p, k, selection_type="PerClass"))
    all_at_once, all_s, all_mb = measured(lambda: libraries.cords("craig", p, k, selection_type="Supervised"))
    reseeded = libraries.cords("craig", p, k, selection_type="PerClass", seed=1)[0]
    order = torch.randperm(len(p), generator=torch.Generator().manual_seed(5))
    shuffled = p.rows(order)
    moved = order[select("craig", shuffled.candidates(), fraction=FRACTION).indices_K]
    their_moved = order[torch.tensor(libraries.cords("craig", shuffled, k, selection_type="PerClass")[0])]
    peers: dict[str, list[int]] = {APRICOT: [], SUBMODLIB: []}
    for rows, each in zip(own, linear, strict=True):
        similarity = (each.max() - each).numpy()
        budget = round(FRACTION * len(rows))
        peers[APRICOT] += rows[libraries.apricot_facility(similarity, budget)].tolist()
        peers[SUBMODLIB] += rows[libraries.submodlib_facility(similarity, budget)].tolist()
    indices = mine.indices_K
    off_by_one = float(mine.weights_K.sum()) + len(indices)
    one, two = "cords, PerClass", "cords, Supervised"
    random_overlap = float(np.mean([overlap(indices, each) for each in stratified_sets(p)]))
    return Section(
        "CRAIG",
        f"{k} of {len(p)} samples, class by class. Value: 0 % = random, 100 % = the exact greedy, which computes every "
        "gain again in every step. Each library is judged by its own objective (cords squares the distances). apricot "
        "and submodlib have no CRAIG; they run facility location on the gradient distances. Re-implemented: weights "
        "start at 1 instead of 0.",
        [
            Line(
                "value between random and exact greedy",
                lambda v: v > 0.99,
                {
                    OURS: score(indices, linear, "linear"),
                    one: score(theirs[0], squared, "squared"),
                    two: score(all_at_once[0], squared, "squared"),
                    **{name: score(picks, linear, "linear") for name, picks in peers.items()},
                    RANDOM: 0.0,
                },
                "cords fills the rows of its distance matrix in random order but reads them as if they were in order: "
                "it is no better than random. On the same distances apricot and submodlib are right",
                percent,
            ),
            Line(
                "same picks with another seed",
                lambda v: v == 1,
                {
                    OURS: overlap(indices, select("craig", p.candidates(), fraction=FRACTION, seed=1).indices_K),
                    one: overlap(theirs[0], reseeded),
                    RANDOM: random_overlap,
                },
                "",
                percent,
            ),
            Line(
                "same picks with the rows permuted",
                lambda v: v > 0.95,  # ties go to the lowest row
                {OURS: overlap(indices, moved), one: overlap(theirs[0], their_moved), RANDOM: random_overlap},
                "",
                percent,
            ),
            Line(
                "sum of the weights",
                lambda v: v == len(p),
                {
                    OURS: float(mine.weights_K.sum()),
                    one: sum(theirs[1]),
                    two: sum(all_at_once[1]),
                    DEEPCORE: off_by_one,
                },
                "the weights of cords add up, but belong to other samples than those returned",
                whole,
            ),
            Line(
                "exactly k distinct",
                lambda v: v == k,
                {OURS: len(set(indices.tolist())), one: len(set(theirs[0])), two: len(set(all_at_once[0]))},
                "",
                whole,
            ),
            Line(
                "CPU time, memory",
                None,
                {OURS: cost(seconds, memory), one: cost(their_s, their_mb), two: cost(all_s, all_mb)},
                "lipt: without the pass that computes logits and features",
            ),
        ],
    )


def class_medoids(distances: list[Tensor]) -> list[list[int]]:
    return [naive_medoids(each, round(FRACTION * len(each))) for each in distances]


def one_class(features: Tensor) -> Candidates:
    """Only features matter: one class, logits of zero."""
    return Candidates(
        labels_N=torch.zeros(len(features), dtype=torch.int64),
        num_classes=1,
        outputs=[Outputs(logits_NC=torch.zeros(len(features), 1), features_ND=features)],
    )


def cosine(features: Tensor) -> np.ndarray:
    """(1 + cos) / 2, float64."""
    unit = torch.nn.functional.normalize(features.double(), dim=1)
    return ((1 + unit @ unit.T) / 2).numpy()


def facility_location(p: Problem) -> Section:
    features = p.features[:800]
    k, candidates, similarity = 80, one_class(features), cosine(features)
    distances = 1 - torch.from_numpy(similarity)
    exact = naive_medoids(distances, k)
    best = cover(distances, exact)
    chance = float(np.mean([cover(distances, each) for each in random_sets(len(features), k)]))

    def run(pick: Callable[[int], Tensor | list[int]], seeds: range = range(2)) -> tuple[float, float, str]:
        """Value and shared samples on average, and the least time: the first call may import or compile."""
        runs = [measured(lambda seed=seed: pick(seed)) for seed in seeds]
        values = [progress(cover(distances, picks), chance, best) for picks, _, _ in runs]
        shared = [overlap(exact, picks) for picks, _, _ in runs]
        return float(np.mean(values)), float(np.mean(shared)), cost(min(r[1] for r in runs), max(r[2] for r in runs))

    def ours(seed: int, **options: object) -> Tensor:
        return select("facility_location", candidates, fraction=k / len(features), seed=seed, **options).indices_K

    lazy = {
        OURS: run(ours),
        APRICOT: run(lambda _: libraries.apricot_facility(similarity, k)),
        SUBMODLIB: run(lambda _: libraries.submodlib_facility(similarity, k)),
    }
    stochastic = {
        OURS: run(lambda seed: ours(seed, greedy="stochastic"), SEEDS),
        APRICOT: run(lambda seed: libraries.apricot_facility(similarity, k, "stochastic", seed=seed), SEEDS),
        SUBMODLIB: run(lambda _: libraries.submodlib_facility(similarity, k, "StochasticGreedy")),
    }
    equal = {
        OURS: run(lambda seed: ours(seed, greedy="stochastic", epsilon=0.01), SEEDS),
        APRICOT: run(
            lambda seed: libraries.apricot_facility(similarity, k, "stochastic", seed=seed, epsilon=0.01), SEEDS
        ),
    }
    cut = cuts(candidates, similarity, k)
    cut_best, cut_chance = (
        cut_value(similarity, naive_cut(similarity, k)),
        float(np.mean([cut_value(similarity, each) for each in random_sets(len(features), k)])),
    )
    cut_values = {name: progress(cut_value(similarity, picks), cut_chance, cut_best) for name, picks in cut}

    def loss(value: float) -> float:
        """Facility-location value lost against the exact greedy, relative."""
        return (1 - value) * (chance - best) / (len(features) - best)

    shared = float(np.mean([overlap(exact, each) for each in random_sets(len(features), k)]))
    return Section(
        "Facility location, stochastic greedy and graph cut",
        f"{k} of {len(features)} samples. All libraries use the same similarities, (1 + cos) / 2 of the features. "
        "Value: 0 % = random, 100 % = the exact greedy, which computes every gain again in every step. Stochastic "
        "runs: mean over five seeds (submodlib accepts none).",
        [
            Line(
                "lazy greedy, value",
                lambda v: v > 0.9999,
                {n: v[0] for n, v in lazy.items()} | {RANDOM: 0.0},
                "all three are right",
                percent,
            ),
            Line(
                "lazy greedy, samples shared with the exact greedy",
                None,  # ties: equal value, other samples
                {n: v[1] for n, v in lazy.items()} | {RANDOM: shared},
                "",
                percent,
            ),
            Line(
                "lazy greedy, CPU time and memory",
                None,
                {n: v[2] for n, v in lazy.items()},
                "the time of submodlib excludes the matrix, which it is given; the time of lipt includes it",
            ),
            Line(
                "stochastic greedy by default, value",
                None,
                {n: v[0] for n, v in stochastic.items()} | {RANDOM: 0.0},
                "default epsilon: .01 (lipt), .9 (apricot, and cords, which uses it), .1 (submodlib); at .9 each pick "
                "considers a single candidate",
                percent,
            ),
            Line(
                "stochastic greedy, epsilon .01, value",
                None,
                {n: v[0] for n, v in equal.items()} | {RANDOM: 0.0},
                "apricot is right with this epsilon",
                percent,
            ),
            Line(
                "stochastic greedy by default, loss of facility-location value",
                lambda v: v < 0.01,
                {n: loss(v[0]) for n, v in stochastic.items()} | {RANDOM: loss(0)},
                "compared with the exact greedy; allowed: 1 %",
                lambda v: f"{v:.2%}",
            ),
            Line(
                "stochastic greedy, epsilon .01, loss of facility-location value",
                lambda v: v < 0.01,
                {n: loss(v[0]) for n, v in equal.items()} | {RANDOM: loss(0)},
                "",
                lambda v: f"{v:.2%}",
            ),
            Line(
                "graph cut, lam .5, value",
                lambda v: v > 0.9999,
                cut_values | {RANDOM: 0.0},
                "all three are right; lipt never forms the matrix",
                percent,
            ),
        ],
        [
            f"cords offers both as `SubmodularSelectionStrategy`. Constructing it gives: "
            f"`{outcome(lambda: libraries.cords_submodular(p))}`"
        ],
    )


def cuts(candidates: Candidates, similarity: np.ndarray, k: int) -> list[tuple[str, list[int]]]:
    mine = select("graph_cut", candidates, fraction=k / len(candidates), lam=0.5)
    return [
        (OURS, mine.indices_K.tolist()),
        (APRICOT, libraries.apricot_cut(similarity, k, alpha=2.0)),
        (SUBMODLIB, libraries.submodlib_cut(similarity, k, lam=0.5)),
    ]


def cut_value(similarity: np.ndarray, picks: Tensor | list[int], lam: float = 0.5) -> float:
    index = np.asarray(picks)
    return float(similarity[:, index].sum() - lam * similarity[np.ix_(index, index)].sum())


def naive_cut(similarity: np.ndarray, k: int) -> list[int]:
    """The exact greedy on the value itself."""
    total, own, picked = similarity.sum(0), similarity.diagonal(), list[int]()
    for _ in range(k):
        gains = total - 0.5 * own - similarity[:, picked].sum(1)
        gains[picked] = -np.inf
        picked.append(int(gains.argmax()))
    return picked
