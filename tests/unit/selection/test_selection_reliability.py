"""How sure scores are, against the textbook definitions in plain loops."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
import torch
from selection_samples import make
from torch import Tensor

from lipt.config import Select
from lipt.selection import Candidates, StoredOutputs, Trajectory, requirements, select
from lipt.selection.reliability import class_correlation, overlap, rank_correlation, reliability, spearman_brown
from lipt.stages.select import _reliability, apply

N = 200


def naive_ranks(values: list[float]) -> list[float]:
    """Number of smaller values, plus half of the equal ones."""
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]


def test_rank_correlation_is_that_of_the_mean_ranks() -> None:
    g = torch.Generator().manual_seed(3)
    for ties in (1000, 4):
        a, b = (torch.randint(ties, (N,), generator=g).float() for _ in range(2))
        b = b + a
        expected = statistics.correlation(naive_ranks(a.tolist()), naive_ranks(b.tolist()))
        assert rank_correlation(a, b) == pytest.approx(expected)
    assert rank_correlation(a, a.exp()) == pytest.approx(1)
    assert rank_correlation(a, -a) == pytest.approx(-1)
    assert rank_correlation(a, torch.ones(N)) == 0
    never = torch.tensor([1.0, torch.inf, 2, torch.inf])
    assert rank_correlation(never, torch.tensor([1.0, 4, 2, 4])) == pytest.approx(1)


def test_spearman_brown_foretells_the_reliability_of_twice_as_many() -> None:
    """Means of normal scores with equal noise: r of n scorers is n s / (n s + 1) for a signal of variance s."""
    assert spearman_brown(1 / 3) == pytest.approx(1 / 2)
    assert spearman_brown(-0.2) == 0
    for signal in (0.3, 2.0):
        of_half, of_all = (count * signal / (count * signal + 1) for count in (5, 10))
        assert spearman_brown(of_half) == pytest.approx(of_all)


def noisy(epochs: int, noise: float, models: int = 1, seed: int = 0) -> Candidates:
    """Trajectories whose epochs see the same difficulty with independent noise."""
    g = torch.Generator().manual_seed(seed)
    truth_N1 = torch.rand(N, 1, generator=g)
    trajectories = []
    for _ in range(models):
        p_NT = (truth_N1 + noise * torch.randn(N, epochs, generator=g)).clamp(0.01, 0.99)
        trajectories.append(Trajectory(p_NT=p_NT, error_NT=1 - p_NT, margin_NT=p_NT))
    return Candidates(labels_N=torch.arange(N) % 4, num_classes=4, trajectories=trajectories)


def scores_of(algorithm: str, candidates: Candidates) -> Tensor | None:
    return select(algorithm, candidates, fraction=0.1).scores_N


def found(algorithm: str, candidates: Candidates, *, balanced: bool = False) -> tuple[float, str] | None:
    sure = reliability(
        candidates, requirements(algorithm, 0.1), lambda half: scores_of(algorithm, half), balanced=balanced
    )
    return (sure.value, sure.halved) if sure else None


@pytest.mark.parametrize("epochs", [8, 9])
def test_a_trajectory_is_halved_into_even_and_odd_epochs(epochs: int) -> None:
    candidates = noisy(epochs, 0.3)
    error_NT = candidates.trajectories[0].error_NT.tolist()
    even, odd = ([statistics.fmean(row[start:8:2]) for row in error_NT] for start in (0, 1))
    r = statistics.correlation(naive_ranks(even), naive_ranks(odd))
    assert found("el2n", candidates) == (pytest.approx(2 * r / (1 + r), abs=1e-5), "epochs")
    assert 0.5 < 2 * r / (1 + r) < 0.99


def test_a_balanced_selection_is_as_sure_as_its_order_within_classes() -> None:
    """Classes of different difficulty, noise within each: halves agree on the classes, which decides nothing."""
    g = torch.Generator().manual_seed(0)
    labels_N = torch.arange(N) % 4
    error_NT = 0.2 * labels_N[:, None] + 0.1 * torch.rand(N, 8, generator=g)
    trajectory = Trajectory(p_NT=1 - error_NT, error_NT=error_NT, margin_NT=-error_NT)
    candidates = Candidates(labels_N=labels_N, num_classes=4, trajectories=[trajectory])
    pooled, within = found("el2n", candidates), found("el2n", candidates, balanced=True)
    assert pooled is not None
    assert within is not None
    assert pooled[0] > 0.9
    even, odd = (error_NT[:, start::2].mean(1) for start in (0, 1))
    naive = statistics.fmean(
        statistics.correlation(naive_ranks(even[rows].tolist()), naive_ranks(odd[rows].tolist()))
        for rows in (labels_N == label for label in range(4))
    )
    assert within[0] == pytest.approx(max(0, 2 * naive / (1 + naive)), abs=1e-5)
    assert within[0] < 0.5


def test_classes_count_by_their_samples_and_single_samples_do_not() -> None:
    a, b = torch.tensor([1.0, 2, 3, 4, 5, 6, 7]), torch.tensor([1.0, 2, 3, 4, 6, 5, 0])
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    assert class_correlation(a, b, labels) == pytest.approx((4 * 1 + 2 * -1) / 6)
    assert class_correlation(a[:1], b[:1], labels[:1]) == 0


def test_more_epochs_and_less_noise_are_more_reliable() -> None:
    values = [found("el2n", noisy(epochs, noise)) for epochs, noise in ((20, 0.3), (4, 0.3), (4, 3.0))]
    assert [each is not None for each in values] == [True] * 3
    few = [each[0] for each in values if each]
    assert few[0] > few[1] > few[2]


def test_several_trainings_are_halved_into_models() -> None:
    sure = found("dual", noisy(3, 0.3, models=4))
    assert sure is not None
    assert sure[1] == "models"


@pytest.mark.parametrize("algorithm", ["el2n", "grand", "dual", "ccs"])
def test_stored_models_are_as_sure_as_those_in_memory(algorithm: str) -> None:
    """The block is read twice more, and no other."""
    candidates = make(n=N, models=4)
    seen = []

    def read(block: int) -> list:
        seen.append(block)
        return list(candidates.outputs)

    stored = Candidates(
        labels_N=candidates.labels_N,
        num_classes=candidates.num_classes,
        stored=StoredOutputs(models=4, sizes=[N], read=read),
    )
    sure = found(algorithm, candidates)
    assert sure is not None
    assert sure[1] == "models"
    assert found(algorithm, stored) == sure
    assert seen == [0, 0]


def test_one_scorer_or_too_few_for_the_rule_give_none() -> None:
    assert found("el2n", make(models=1)) is None
    assert found("el2n", noisy(1, 0.3)) is None
    assert found("dual", noisy(2, 0.3)) is None  # dual needs two epochs
    assert found("dual", make(models=2)) is None
    assert found("herding", make(models=4)) is None  # has no scores


def test_the_overlap_is_the_share_of_a_subset_that_another_has_too_on_common_candidates() -> None:
    g = np.random.default_rng(0)
    subsets = []
    for _ in range(4):
        of = g.permutation(1000)[:900]
        subsets.append((of, np.sort(of[:200])))
    naive = []
    for (of_one, one), (of_other, other) in itertools.combinations(subsets, 2):
        common = set(of_one) & set(of_other)
        a, b = set(one) & common, set(other) & common
        naive.append(2 * len(a & b) / (len(a) + len(b)))
    shared, chance = overlap(subsets) or (0, 0)
    assert shared == pytest.approx(statistics.fmean(naive))
    assert chance == pytest.approx(shared, rel=0.1)  # they are random
    assert chance == pytest.approx(0.22, rel=0.05)
    same = [subsets[0]] * 3
    assert overlap(same) == (1, pytest.approx(200 / 900))
    assert overlap(subsets[:1]) is None


@pytest.mark.parametrize("epochs", [2, 3])
def test_the_reliability_of_auto_is_that_of_the_algorithm_it_chose(epochs: int) -> None:
    """Half of the epochs are too few for `dual`; `auto` would choose another one for them."""
    candidates = noisy(epochs, 0.3)
    settings = Select(algorithm="auto", fraction=0.05)
    selection = apply(settings, candidates, None, seed=0)
    assert selection.algorithm == "dual"
    assert _reliability(settings, selection, candidates, requirements("auto", 0.05, epochs=epochs)) is None
    more = noisy(8, 0.3)
    selection = apply(settings, more, None, seed=0)
    named = [
        _reliability(Select(algorithm=name, fraction=0.05), selection, more, requirements(name, 0.05, epochs=8))
        for name in ("auto", "dual")
    ]
    assert named[0] == named[1] is not None
