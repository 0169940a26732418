"""Scores of your own: kept from the highest, or covered evenly, without any model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from selection_samples import make

from lipt.errors import RunError, UsageError
from lipt.selection import Candidates, select
from lipt.selection.numerics.maxima import highest

LABELS = np.arange(60) % 3


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.float32, np.float64])
def test_the_highest_are_kept_without_logits_and_features(dtype: type) -> None:
    own = np.random.default_rng(0).integers(0, 15, 60).astype(dtype)  # with ties
    selection = select("scores", Candidates.of(LABELS, scores=own), k=20, balanced=False)
    assert selection.indices_K.tolist() == sorted(range(60), key=lambda i: (-own[i], i))[:20]
    balanced = select("scores", Candidates.of(LABELS, scores=own), k=6).indices_K
    naive = [sorted(np.flatnonzero(c == LABELS), key=lambda i: (-own[i], i))[:2] for c in range(3)]
    assert balanced.tolist() == np.concatenate(naive).tolist()
    assert selection.scores_N is not None
    assert selection.scores_N.tolist() == own.tolist()


def test_large_integers_keep_their_digits() -> None:
    own = 2**40 + np.random.default_rng(0).permutation(60)
    picked = select("scores", Candidates.of(LABELS, scores=own), k=20, balanced=False).indices_K
    assert picked.tolist() == np.argsort(-own)[:20].tolist()


@pytest.mark.parametrize(
    ("value", "dtype"), [(2**53 + 1, np.int64), (-(2**53) - 1, np.int64), (1e300, float), (-1e39, float)]
)
def test_scores_that_cannot_be_kept_are_refused(value: float, dtype: type) -> None:
    own = np.arange(60).astype(dtype)
    own[7] = value
    for algorithm, options in (("scores", {}), ("ccs", {"score": "scores"})):
        with pytest.raises(RunError, match=r"the score of sample 7, .* is too large"):
            select(algorithm, Candidates.of(LABELS, scores=own), k=3, **options)
    own[7] = 2**53 - 1
    assert select("scores", Candidates.of(LABELS, scores=own), k=1, balanced=False).indices_K.tolist() == [7]
    infinite = np.where(np.arange(60) == 5, np.inf, 0)
    assert select("scores", Candidates.of(LABELS, scores=infinite), k=1, balanced=False).indices_K.tolist() == [5]


def test_ccs_covers_own_scores_evenly() -> None:
    order = np.random.default_rng(0).permutation(200)  # the score of each; the half that is highest is dropped
    candidates = Candidates.of(np.zeros(200, dtype=int), scores=order)
    picked = select("ccs", candidates, k=20, score="scores", beta=0.5, strata=10).indices_K
    assert np.bincount(order[picked] // 10, minlength=20).tolist() == [2] * 10 + [0] * 10


def test_ccs_over_the_scores_of_a_ranking_is_ccs_by_that_ranking() -> None:
    candidates = make(60, 3)
    found = select("el2n", candidates, fraction=0.2).scores_N
    own = Candidates.of(candidates.labels_N, scores=found)
    expected = select("ccs", candidates, fraction=0.2, seed=4).indices_K
    assert select("ccs", own, fraction=0.2, seed=4, score="scores").indices_K.tolist() == expected.tolist()


def test_ccs_over_forgetting_counts_needs_no_model() -> None:
    candidates = make(60, 3)
    bare = Candidates(labels_N=candidates.labels_N, num_classes=3, forgetting_N=candidates.forgetting_N)
    chosen = [select("ccs", each, fraction=0.2, score="forgetting") for each in (candidates, bare)]
    assert chosen[0].indices_K.tolist() == chosen[1].indices_K.tolist()


def test_what_is_wrong_with_scores() -> None:
    bare = Candidates.of(LABELS)
    for algorithm, options in (("scores", {}), ("ccs", {"score": "scores"})):
        with pytest.raises(UsageError, match="own scores are missing") as error:
            select(algorithm, bare, k=3, **options)
        assert "--scores" in error.value.remedy
    own = torch.rand(60)
    for algorithm in ("ccs", "auto", "el2n"):
        with pytest.raises(UsageError, match=r"the outputs of at least 1 model; there is none") as error:
            select(algorithm, Candidates.of(LABELS, scores=own), k=1)
        assert "--option score=scores" in error.value.remedy
    own[7] = torch.nan
    with pytest.raises(RunError, match="the score of sample 7 is NaN"):
        select("scores", Candidates.of(LABELS, scores=own), k=3)
    with pytest.raises(UsageError, match=r"scores must be real numbers, not torch.complex64"):
        select("scores", Candidates.of(LABELS, scores=torch.rand(60).to(torch.complex64)), k=3)
    with pytest.raises(UsageError, match=r"scores have shape \(59,\), expected \(60,\)"):
        Candidates.of(LABELS, scores=own[:59])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("n", [1, 2, 50])
@pytest.mark.parametrize("values", [7, 30, 10**6])
def test_highest_is_a_stable_sort(dtype: torch.dtype, n: int, values: int) -> None:
    scores = (torch.randint(values, (n,), generator=torch.Generator().manual_seed(n)) - values // 2).to(dtype)
    expected = sorted(range(n), key=lambda row: (-scores[row], row))
    for k in {0, 1, *range(n // 2, n // 2 + 9), n, n + 9}:
        assert highest(scores, k).tolist() == expected[:k]


def test_a_selection_does_not_change_with_the_arrays_it_was_made_of() -> None:
    labels, scores = np.arange(20) % 2, np.linspace(0, 1, 20, dtype=np.float32)
    for algorithm in ("scores", "ccs"):
        options = {"score": "scores"} if algorithm == "ccs" else {}
        own = scores.copy()
        candidates = Candidates.of(labels.copy(), scores=own)
        selection = select(algorithm, candidates, k=6, **options)
        before = selection.table()
        candidates.labels_N.fill_(1)
        own[:] = 0
        assert selection.table().equals(before)
        assert selection.labels_N.tolist() == labels.tolist()
