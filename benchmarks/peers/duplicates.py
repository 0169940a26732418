"""Algorithms on data with duplicates."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import libraries
from benchmarks.peers.coverage import cosine, one_class
from benchmarks.peers.inputs import Problem, random_sets
from benchmarks.peers.page import APRICOT, DEEPCORE, OURS, RANDOM, SUBMODLIB, Line, Section, whole
from lipt.selection import select


def duplicates(p: Problem) -> Section:
    """Each sample exists twice; counts the picks that repeat an earlier one."""
    distinct, k = p.rows(torch.arange(150)), 60
    twice = distinct.rows(torch.arange(300) % 150)
    similarity, candidates = cosine(twice.features), one_class(twice.features)

    def repeats(picks: Tensor | list[int]) -> int:
        return len(picks) - len({int(i) % 150 for i in picks})

    def ours(algorithm: str) -> int:
        return repeats(select(algorithm, candidates, fraction=k / 300).indices_K)

    craig_picks = select("craig", twice.candidates(), fraction=k / 300, balanced=False).indices_K
    wrong = log_determinant(similarity, k, sign=-1)
    chance = float(np.mean([repeats(each) for each in random_sets(300, k)]))
    return Section(
        "Duplicates",
        f"150 samples, each of them twice; {k} are picked. The figure is the number of picks that repeat an earlier "
        "pick. Re-implemented: a log-determinant gain that lost its sign and the term of the sample itself, s_xA S_A⁻¹ "
        "s_Ax.",
        [
            Line(
                "facility location",
                none,
                {
                    OURS: ours("facility_location"),
                    APRICOT: repeats(libraries.apricot_facility(similarity, k)),
                    SUBMODLIB: repeats(libraries.submodlib_facility(similarity, k)),
                    RANDOM: chance,
                },
                "",
                whole,
            ),
            Line("CRAIG", none, {OURS: repeats(craig_picks), RANDOM: chance}, "", whole),
            Line(
                "farthest first",
                none,
                {
                    OURS: ours("k_center"),
                    SUBMODLIB: repeats(libraries.submodlib_farthest(similarity, k)),
                    RANDOM: chance,
                },
                "lipt: k_center; submodlib: DisparityMin",
                whole,
            ),
            Line(
                "log-determinant",
                none,
                {
                    SUBMODLIB: repeats(libraries.submodlib_logdet(similarity, k, 0.01)),
                    DEEPCORE: repeats(wrong),
                    RANDOM: chance,
                },
                "lipt has none; with the wrong sign the most redundant sample is picked",
                whole,
            ),
        ],
    )


def none(value: float) -> bool:
    return value == 0


def log_determinant(similarity: np.ndarray, k: int, sign: int, ridge: float = 1e-6) -> list[int]:
    """Greedy log det S_A: gain s_xx - s_xA S_A^-1 s_Ax (sign 1), or re-implemented, the subtracted term (sign -1)."""
    picked = [0]
    while len(picked) < k:
        cross = similarity[:, picked]
        inverse = np.linalg.pinv(similarity[np.ix_(picked, picked)] + ridge * np.eye(len(picked)))
        taken = np.einsum("ij,jk,ik->i", cross, inverse, cross)
        gains = similarity.diagonal() - taken if sign > 0 else taken
        gains[picked] = -np.inf
        picked.append(int(gains.argmax()))
    return picked
