"""Samples that occur several times: every greedy against a naive one that scores each distinct sample once, so that
rounding cannot tell equal samples apart and the lowest index is picked first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import nnls
from selection_samples import dense_gradients, make, permuted

from lipt.selection import Candidates, select
from lipt.selection.algorithms.gradmatch import LAM

Array = NDArray[np.float64]
#: What each of the R distinct samples (R,) adds to those that are picked, which are positions among the distinct ones.
Gains = Callable[[list[int]], Array]

DISTINCT = 10


def herding(x_RD: Array, counts_R: Array) -> Gains:
    mean_D = counts_R @ x_RD / counts_R.sum()
    return lambda picked: -np.linalg.norm(mean_D - (x_RD[picked].sum(0) + x_RD) / (len(picked) + 1), axis=1)


def k_center(x_RD: Array, counts_R: Array) -> Gains:
    mean_D = counts_R @ x_RD / counts_R.sum()
    distances_RR = between(x_RD)
    return lambda picked: distances_RR[picked].min(0) if picked else -np.linalg.norm(x_RD - mean_D, axis=1)


def graph_cut(x_RD: Array, counts_R: Array) -> Gains:
    similar_RR = (1 + cosines(x_RD)) / 2
    return lambda picked: counts_R @ similar_RR - 0.5 * (2 * similar_RR[picked].sum(0) + similar_RR.diagonal())


def facility_location(x_RD: Array, counts_R: Array) -> Gains:
    return covering(1 - cosines(x_RD), counts_R)


def craig(x_RD: Array, counts_R: Array) -> Gains:
    return covering(between(x_RD), counts_R)


def gradmatch(x_RD: Array, counts_R: Array) -> Gains:
    goal_D = counts_R @ x_RD
    ridge = LAM * (counts_R @ np.square(x_RD).sum(1)) / counts_R.sum()

    def gains(picked: list[int]) -> Array:
        chosen = x_RD[picked]
        system = np.vstack([chosen.T, np.sqrt(ridge) * np.eye(len(picked))])
        weights = nnls(system, np.concatenate([goal_D, np.zeros(len(picked))]))[0] if picked else np.zeros(0)
        residual_R: Array = x_RD @ (goal_D - weights @ chosen)
        return residual_R

    return gains


def moderate(x_RD: Array, counts_R: Array) -> Gains:
    distances_R = np.linalg.norm(x_RD - counts_R @ x_RD / counts_R.sum(), axis=1)
    middle = np.median(np.repeat(distances_R, counts_R.astype(int)))
    return lambda picked: -np.abs(distances_R - middle)


def covering(distances_RR: Array, counts_R: Array) -> Gains:
    """What a pick takes off the sum of distances to the nearest one."""
    far_R = distances_RR.max(0)  # no sample is farther: the first pick has the smallest sum

    def gains(picked: list[int]) -> Array:
        nearest_R = distances_RR[picked].min(0) if picked else far_R
        taken_R: Array = np.maximum(nearest_R - distances_RR, 0) @ counts_R
        return taken_R

    return gains


def between(x_RD: Array) -> Array:
    distances_RR: Array = np.linalg.norm(x_RD[:, None] - x_RD, axis=2)
    return distances_RR


def cosines(x_RD: Array) -> Array:
    unit_RD = x_RD / np.linalg.norm(x_RD, axis=1, keepdims=True)
    cosines_RR: Array = unit_RD @ unit_RD.T
    return cosines_RR


def naive(gains: Gains, origins: list[int], k: int) -> list[int]:
    """The greedy over all samples: of those that gain most, which equal samples do alike, the first that is free.

    Skips examples in which distinct samples gain almost the same: there rounding may decide.
    """
    picked: list[int] = []
    for _ in range(k):
        gains_R = gains([origins[pick] for pick in picked])
        free = [i for i in range(len(origins)) if i not in picked]
        behind = max(gains_R[origins[i]] for i in free) - gains_R
        size = np.abs(gains_R).max()
        assume(not any(1e-9 * size < behind[origins[i]] < 1e-5 * size for i in free))
        picked.append(next(i for i in free if behind[origins[i]] <= 1e-9 * size))
    return picked


def repeated(seed: int, copies: list[int]) -> tuple[Candidates, Candidates, list[int]]:
    """Distinct samples, copies of each in random order, and which sample each row is a copy of."""
    distinct = make(DISTINCT, 4, 37, seed=seed, labels=torch.zeros(DISTINCT, dtype=torch.int64))
    distinct.outputs[0].logits_NC.div_(6)  # nobody is certain: no gradient vanishes
    origins_N = torch.arange(DISTINCT).repeat_interleave(torch.tensor(copies))
    origins_N = origins_N[torch.randperm(len(origins_N), generator=torch.Generator().manual_seed(seed))]
    return distinct, permuted(distinct, origins_N), origins_N.tolist()


@pytest.mark.parametrize("of", [herding, k_center, graph_cut, facility_location, craig, gradmatch, moderate])
@settings(max_examples=12)
@given(seed=st.integers(0, 9999), copies=st.lists(st.integers(1, 5), min_size=DISTINCT, max_size=DISTINCT))
def test_repeated_samples_are_picked_as_by_the_naive_greedy(
    of: Callable[[Array, Array], Gains], seed: int, copies: list[int]
) -> None:
    of_gradients = of in (craig, gradmatch)
    distinct, candidates, origins = repeated(seed, copies)
    x_RD = (dense_gradients(distinct) if of_gradients else distinct.outputs[0].features_ND).numpy()
    k = DISTINCT if of in (craig, facility_location) else len(origins) // 2
    expected = naive(of(x_RD, np.array(copies, dtype=float)), origins, k)
    assert select(of.__name__, candidates, k=k).indices_K.tolist() == expected
