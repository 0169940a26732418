"""GLISTER beside DeepCORE and a brute-force greedy."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.peers import libraries
from benchmarks.peers.inputs import FRACTION, Problem, measured, overlap, stratified_sets
from benchmarks.peers.page import DEEPCORE, OURS, RANDOM, Line, Section, cost, percent, whole
from lipt.selection import select


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
    mine, seconds, memory = measured(lambda: select("glister", candidates, fraction=FRACTION, eta=eta))
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
