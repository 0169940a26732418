"""Samples that are selected already: covered, and not picked again. Against the definitions, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from selection_samples import dense_gradients, make, one_class, permuted
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection import Candidates, select
from lipt.selection.algorithms import submodular

COVERING = ["k_center", "herding", "graph_cut", "facility_location", "craig"]
N, K = 30, 8


def distances(candidates: Candidates, algorithm: str) -> Tensor:
    if algorithm == "craig":
        rows = dense_gradients(candidates)
        return torch.cdist(rows, rows)
    unit = torch.nn.functional.normalize(candidates.outputs[0].features_ND, dim=1)
    return 1 - unit @ unit.T


def value(candidates: Candidates, algorithm: str) -> Callable[[list[int], int], float]:
    """What one more sample is worth, from the definition of the algorithm."""
    h = candidates.outputs[0].features_ND
    if algorithm == "k_center":
        return lambda picked, j: float((h[picked] - h[j]).norm(dim=1).min())
    if algorithm == "herding":
        return lambda picked, j: -float((h[[*picked, j]].mean(0) - h.mean(0)).norm())
    d = distances(candidates, algorithm)
    if algorithm == "graph_cut":
        s = 1 - d / 2
        return lambda picked, j: float(s[:, [*picked, j]].sum() - 0.5 * s[[*picked, j]][:, [*picked, j]].sum())
    return lambda picked, j: float((d[picked].min(0).values - d[[*picked, j]].min(0).values).sum())


def naive_medoids(candidates: Candidates, initial: list[int], k: int) -> list[int]:
    gain, picked = value(candidates, "facility_location"), list(initial)
    for _ in range(k):
        gains = {j: gain(picked, j) for j in range(len(candidates)) if j not in picked}
        most = max(gains.values())  # of two that are left of a cluster each would serve both: the lower index
        picked.append(min(j for j, found in gains.items() if found >= most - 1e-6 * abs(most)))
    return picked[len(initial) :]


@pytest.mark.parametrize("algorithm", COVERING)
@settings(max_examples=10)
@given(seed=st.integers(0, 999), count=st.integers(1, 12))
def test_the_greedy_goes_on_from_what_is_selected(algorithm: str, seed: int, count: int) -> None:
    candidates = one_class(N, seed=seed)
    initial = torch.randperm(N, generator=torch.Generator().manual_seed(seed))[:count].sort().values
    picked = select(algorithm, candidates, k=K, initial=initial).indices_K.tolist()
    gain, before = value(candidates, algorithm), initial.tolist()
    for pick in picked:  # the best one, or one so near that the definition's own rounding decides
        gains = {j: gain(before, j) for j in range(N) if j not in before}
        most = max(gains.values())
        assert gains[pick] >= most - 1e-6 * abs(most)
        before.append(pick)


@pytest.mark.parametrize("algorithm", COVERING)
def test_half_and_the_rest_are_the_whole(algorithm: str) -> None:
    candidates = one_class(300)  # more than compete at first
    whole = select(algorithm, candidates, k=60).indices_K
    rest = select(algorithm, candidates, k=50, initial=whole[:10].flip(0)).indices_K
    assert rest.tolist() == whole[10:].tolist()


@pytest.mark.parametrize("greedy", ["lazy", "sparse", "stochastic"])
def test_every_greedy_of_the_medoids_goes_on(monkeypatch: pytest.MonkeyPatch, greedy: str) -> None:
    candidates = one_class(N)
    options = {"greedy": greedy, "neighbours": N, "epsilon": 1e-9}  # looks at all
    expected = naive_medoids(candidates, [4, 9, 20], K)
    for limit in (submodular.DENSE_LIMIT, 10):  # from memory, and computed when needed
        monkeypatch.setattr(submodular, "DENSE_LIMIT", limit)
        picked = select("facility_location", candidates, k=K, initial=[4, 9, 20], **options).indices_K
        assert picked.tolist() == expected


def test_weights_count_what_the_new_samples_stand_for() -> None:
    candidates = one_class(N)
    selection = select("craig", candidates, k=K, initial=[4, 9, 20])
    nearest = distances(candidates, "craig")[[4, 9, 20, *selection.indices_K.tolist()]].argmin(0)
    assert selection.weights_K.tolist() == torch.bincount(nearest, minlength=3 + K)[3:].tolist()
    assert float(selection.weights_K.sum()) < N


@pytest.mark.parametrize("algorithm", COVERING)
@settings(max_examples=8)
@given(seed=st.integers(0, 999), balanced=st.booleans())
def test_nothing_is_picked_again_and_the_budget_is_of_new_ones(algorithm: str, seed: int, balanced: bool) -> None:
    base = make(20, 3, seed=seed)
    candidates = permuted(base, torch.arange(20).repeat(2))  # each twice: a twin of a selected one may be picked
    initial = torch.randperm(40, generator=torch.Generator().manual_seed(seed))[:15]
    selection = select(algorithm, candidates, k=25, balanced=balanced, initial=[*initial.tolist(), int(initial[0])])
    assert sorted([*selection.indices_K.tolist(), *initial.tolist()]) == list(range(40))
    few = select(algorithm, candidates, k=6, balanced=balanced, initial=initial)
    assert len(set(few.indices_K.tolist()) - set(initial.tolist())) == 6
    if balanced:
        free = np.bincount(np.delete(candidates.labels_N.numpy(), initial.numpy()), minlength=3)
        taken = torch.bincount(candidates.labels_N[few.indices_K], minlength=3).numpy()
        assert (abs(taken - 6 * free / 25) < 1).all()


def test_nothing_selected_yet_is_no_initial() -> None:
    candidates = one_class(N)
    for algorithm in ("herding", "el2n"):
        plain = select(algorithm, candidates, k=K).indices_K.tolist()
        assert select(algorithm, candidates, k=K, initial=[]).indices_K.tolist() == plain


def test_a_class_that_is_covered_already_is_not_missing() -> None:
    candidates = make(30, 3, labels=torch.arange(30) % 3)
    assert "2 of 3 classes get none" in select("herding", candidates, k=1).remarks[0]
    assert select("herding", candidates, k=1, initial=[0, 1, 2]).remarks == ()


@pytest.mark.parametrize(
    ("algorithm", "initial", "message"),
    [
        ("el2n", [1], r"algorithm el2n takes no initial samples\n  -> leave them out of the candidates"),
        ("herding", [1, 30], r"initial: position 30 is outside 0..29"),
        ("herding", [-1], r"initial: position -1 is outside 0..29"),
        ("herding", [0.5], "initial must be integers, not torch.float64"),
        ("herding", [[1]], r"initial must be positions \(I,\), not \(1, 1\)"),
        ("herding", select("random", one_class(N), k=2), r"not numbers\n  -> hand over .* such as selection.indices_K"),
        ("herding", list(range(25)), "8 samples cannot be picked: 5 candidates are not in initial"),
    ],
)
def test_what_is_wrong_with_initial(algorithm: str, initial: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        select(algorithm, one_class(N), k=K, initial=initial)
