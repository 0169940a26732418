"""Distances to the prototypes of a clustering: against plain loops, and where the answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from selection_samples import make, permuted, run
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection import Candidates, select


def naive(features_ND: Tensor, clusters: int, seed: int) -> list[float]:
    """The distance of each sample to its prototype, in plain loops."""
    units = [row / np.linalg.norm(row) for row in features_ND.double().numpy()]
    generator, centres, nearest = torch.Generator().manual_seed(seed), list[np.ndarray](), [2.0] * len(units)
    for _ in range(clusters):  # k-means++
        left = torch.rand(1, generator=generator, dtype=torch.float64).item() * sum(nearest)
        for unit, weight in zip(units, nearest, strict=True):
            left -= weight
            if left < 0:
                centres.append(unit)
                break
        nearest = [min(weight, 1 - unit @ centres[-1]) for unit, weight in zip(units, nearest, strict=True)]
        nearest = [weight if weight > 1e-12 else 0.0 for weight in nearest]
    owners = list[int]()
    for _ in range(100):
        before, owners = owners, [int(np.argmax([unit @ centre for centre in centres])) for unit in units]
        if owners == before:
            break
        for p in range(clusters):
            total = sum(
                (unit for unit, owner in zip(units, owners, strict=True) if owner == p), np.zeros_like(units[0])
            )
            centres[p] = total / np.linalg.norm(total) if p in owners else centres[p]
    return [1 - max(unit @ centre for centre in centres) for unit in units]


@settings(max_examples=25)
@given(n=st.integers(12, 60), clusters=st.integers(1, 6), seed=st.integers(0, 999))
def test_the_distances_are_those_of_plain_loops(n: int, clusters: int, seed: int) -> None:
    candidates = make(n, 3, 5, seed=seed)
    expected = np.array(naive(candidates.outputs[0].features_ND, clusters, seed))
    for keep, sign in (("hard", 1), ("easy", -1)):
        options = {"keep": keep, "clusters": clusters, "seed": seed}
        everyone = run("prototypes", candidates, n, **options)
        np.testing.assert_allclose(sign * everyone.scores_N, expected, atol=1e-7)
        picked = run("prototypes", candidates, n // 3, **options).indices_K
        first = np.sort(sign * expected)[::-1][: n // 3]  # the two of a cluster of two are equally far: any order
        np.testing.assert_allclose(sign * expected[picked], first, rtol=1e-9, atol=1e-12)


def test_there_are_as_many_prototypes_as_classes_unless_you_say_so() -> None:
    candidates = make(60, 4)
    plain = select("prototypes", candidates, k=12)
    assert plain.options == {"keep": "hard", "clusters": None}
    assert torch.equal(plain.scores_N, select("prototypes", candidates, k=12, clusters=4).scores_N)
    assert not torch.equal(plain.scores_N, select("prototypes", candidates, k=12, clusters=5).scores_N)


def test_without_labels_the_number_of_prototypes_must_be_given() -> None:
    candidates = make(60, 4)
    unlabelled = Candidates.of([0] * 60, features=candidates.outputs[0].features_ND)
    with pytest.raises(UsageError, match="there is one class, and clusters is None"):
        select("prototypes", unlabelled, k=12)
    labelled = select("prototypes", candidates, k=12, balanced=False, clusters=4)
    assert torch.equal(select("prototypes", unlabelled, k=12, clusters=4).scores_N, labelled.scores_N)


def test_a_single_prototype_is_the_mean_direction() -> None:
    candidates = make(50, 3)
    unit = torch.nn.functional.normalize(candidates.outputs[0].features_ND, dim=1)
    expected = 1 - unit @ torch.nn.functional.normalize(unit.mean(0), dim=0)
    torch.testing.assert_close(run("prototypes", candidates, 9, clusters=1).scores_N, expected.float())


def bundles(n: int, seed: int) -> tuple[Candidates, Tensor]:
    """Three narrow bundles of directions at right angles, of any lengths; and the distance of each to its middle."""
    g = torch.Generator().manual_seed(seed)
    which_N = torch.arange(n) % 3
    units_ND = torch.eye(8, dtype=torch.float64)[which_N] + 0.05 * torch.randn(n, 8, generator=g, dtype=torch.float64)
    units_ND /= units_ND.norm(dim=1, keepdim=True)
    middles = torch.stack([units_ND[which_N == b].mean(0) for b in range(3)])
    expected_N = 1 - (units_ND * (middles / middles.norm(dim=1, keepdim=True))[which_N]).sum(1)
    candidates = make(n, 2, 8, seed=seed)
    lengths_N1 = 10.0 ** torch.randint(-3, 4, (n, 1), generator=g)
    return replace(candidates, outputs=[replace(candidates.outputs[0], features_ND=units_ND * lengths_N1)]), expected_N


@pytest.mark.parametrize("seed", range(5))
def test_bundles_are_found_whatever_the_seed_and_the_order_of_the_rows(seed: int) -> None:
    candidates, expected = bundles(91, seed)
    order = torch.randperm(91, generator=torch.Generator().manual_seed(seed))
    for keep, sign in (("hard", 1), ("easy", -1)):
        options = {"keep": keep, "clusters": 3, "seed": seed}
        farthest = (sign * expected).sort(descending=True).indices
        assert run("prototypes", candidates, 20, **options).indices_K.tolist() == farthest[:20].tolist()
        shuffled = run("prototypes", permuted(candidates, order), 20, **options).indices_K
        assert order[shuffled].tolist() == farthest[:20].tolist()


def test_labels_only_split_the_budget() -> None:
    candidates = make(61, 3)
    other = replace(candidates, labels_N=candidates.labels_N.flip(0))
    first, second = (select("prototypes", each, k=15, seed=4) for each in (candidates, other))
    assert torch.equal(first.scores_N, second.scores_N)
    for selection, given_to in ((first, candidates), (second, other)):
        for c, share in enumerate(torch.bincount(given_to.labels_N[selection.indices_K], minlength=3).tolist()):
            own = (given_to.labels_N == c).nonzero().flatten()
            farthest = own[selection.scores_N[own].sort(descending=True, stable=True).indices]
            picked = selection.indices_K[given_to.labels_N[selection.indices_K] == c]
            assert picked.tolist() == farthest[:share].tolist()


def test_features_of_several_models_are_stacked() -> None:
    candidates = make(40, 3, models=3)
    stacked = torch.cat([each.features_ND for each in candidates.outputs], 1)
    alone = replace(candidates, outputs=[replace(candidates.outputs[0], features_ND=stacked)])
    scores = [run("prototypes", each, 9).scores_N for each in (candidates, alone)]
    torch.testing.assert_close(*scores)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distinct", [1, 2, 7])
def test_samples_that_are_prototypes_themselves_go_by_index(distinct: int, dtype: torch.dtype) -> None:
    base = make(distinct, 3, 37, dtype=dtype)
    origins = torch.randint(distinct, (700,), generator=torch.Generator().manual_seed(0))
    for keep in ("hard", "easy"):
        selection = run("prototypes", permuted(base, origins), 30, clusters=9, keep=keep)
        assert selection.scores_N.count_nonzero() == 0
        assert selection.indices_K.tolist() == list(range(30))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_of_a_sample_have_the_same_distance(dtype: torch.dtype) -> None:
    origins = torch.randint(50, (700,), generator=torch.Generator().manual_seed(1))
    scores = run("prototypes", permuted(make(50, 3, 37, dtype=dtype), origins), 30).scores_N
    assert len(torch.stack([scores, origins.float()], 1).unique(dim=0)) == len(origins.unique())


def test_features_without_a_direction_are_the_farthest_and_move_no_prototype() -> None:
    candidates = make(40, 3)
    without, with_them = (candidates.outputs[0].features_ND.relu() + 0.01 for _ in range(2))  # none at an obtuse angle
    with_them[[3, 17]] = 0
    options = {"clusters": 1, "k": 5, "balanced": False}
    found = select("prototypes", replaced(candidates, with_them), **options)
    assert found.indices_K[:2].tolist() == [3, 17]
    assert found.scores_N[[3, 17]].tolist() == [1, 1]
    rest = [i for i in range(40) if i not in (3, 17)]
    alone = select("prototypes", permuted(replaced(candidates, without), torch.tensor(rest)), **options)
    torch.testing.assert_close(found.scores_N[rest], alone.scores_N)
    nothing = select("prototypes", replaced(candidates, torch.zeros_like(without)), k=5, balanced=False)
    assert nothing.scores_N.tolist() == [1] * 40
    assert nothing.indices_K.tolist() == list(range(5))


def replaced(candidates: Candidates, features_ND: Tensor) -> Candidates:
    return replace(candidates, outputs=[replace(candidates.outputs[0], features_ND=features_ND)])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_samples_than_prototypes(n: int) -> None:
    candidates = make(n, 5)
    for k in range(1, n + 1):
        assert run("prototypes", candidates, k).indices_K.tolist() == list(range(k))
