"""Every algorithm against its definition, on cases small enough for brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from selection_samples import dense_gradients, everyone, make, one_class, run
from torch import Tensor

from lipt.selection import Candidates, Outputs, select
from lipt.selection.algorithms.geometry import herd
from lipt.selection.auto import auto_rule, default_beta
from lipt.selection.inputs.trajectory import Trajectory

# --- rankings --------------------------------------------------------------------------------------------------------


def test_grand_is_the_mean_gradient_norm_over_models() -> None:
    candidates = make(20, 3, 5, models=3)
    expected = torch.stack([dense_gradients(candidates, r).norm(dim=1) for r in range(3)]).mean(0)
    selection = run("grand", candidates, 6)
    torch.testing.assert_close(selection.scores_N, expected.float())
    assert selection.indices_K.tolist() == expected.argsort(descending=True)[:6].tolist()


def test_el2n_is_the_mean_error_norm_over_models() -> None:
    candidates = make(20, 3, 5, models=3)
    onehot = torch.eye(3, dtype=torch.float64)[candidates.labels_N]
    expected = torch.stack([(o.logits_NC.softmax(1) - onehot).norm(dim=1) for o in candidates.outputs]).mean(0)
    selection = run("el2n", candidates, 6)
    torch.testing.assert_close(selection.scores_N, expected.float())
    assert selection.indices_K.tolist() == expected.argsort(descending=True)[:6].tolist()


def test_forgetting_takes_never_learned_samples_first_and_breaks_ties_by_index() -> None:
    counts = torch.tensor([0.0, 2, torch.inf, 2, 1, torch.inf])
    candidates = Candidates(labels_N=torch.zeros(6, dtype=torch.int64), num_classes=1, forgetting_N=counts)
    assert run("forgetting", candidates, 5).indices_K.tolist() == [2, 5, 1, 3, 4]
    many = Candidates(labels_N=torch.zeros(500, dtype=torch.int64), num_classes=1, forgetting_N=torch.ones(500))
    assert run("forgetting", many, 100).indices_K.tolist() == list(range(100))


@pytest.mark.parametrize(
    ("measure", "definition"),
    [
        ("entropy", lambda p: -(p * np.log(p)).sum(1)),
        ("margin", lambda p: 1 - (np.sort(p, 1)[:, -1] - np.sort(p, 1)[:, -2])),
        ("least_confidence", lambda p: 1 - p.max(1)),
    ],
)
def test_uncertainty_prefers_the_least_certain_probabilities(measure: str, definition: object) -> None:
    candidates = make(15, 4, 5, models=2)
    p = torch.stack([o.logits_NC.softmax(1) for o in candidates.outputs]).mean(0).numpy()
    expected = definition(p)  # type: ignore[operator]
    selection = run("uncertainty", candidates, 5, measure=measure)
    assert selection.indices_K.tolist() == np.argsort(-expected)[:5].tolist()
    np.testing.assert_allclose(selection.scores_N, expected, rtol=1e-5)


# --- sampling --------------------------------------------------------------------------------------------------------


def test_random_subsets_of_one_seed_are_nested() -> None:
    candidates = make(100)
    small, large = (select("random", candidates, fraction=f, seed=3).indices_K.tolist() for f in (0.1, 0.3))
    assert large[:10] == small
    assert select("random", candidates, fraction=0.3, seed=4).indices_K.tolist() != large


def test_stratified_keeps_the_share_of_every_class_and_random_does_not() -> None:
    labels = torch.arange(4).repeat_interleave(torch.tensor([10, 20, 30, 40]))
    candidates = Candidates(labels_N=labels, num_classes=4)
    for balanced in (True, False):
        even = select("stratified", candidates, fraction=0.2, balanced=balanced)
        assert torch.bincount(labels[even.indices_K]).tolist() == [2, 4, 6, 8]
    uneven = {
        tuple(torch.bincount(labels[select("random", candidates, fraction=0.2, seed=s).indices_K]).tolist())
        for s in range(5)
    }
    assert len(uneven) > 1


def test_ccs_drops_the_hardest_and_covers_the_rest_evenly() -> None:
    # Scores rise with the index; after dropping beta = .5, ten strata of 10 each get 2.
    z = torch.linspace(0, 4, 200, dtype=torch.float64)
    p = z / 4 * 0.6 + 0.2  # p_y falls linearly, so EL2N = sqrt(2) (1 - p_y) is spaced evenly
    logits = torch.stack([(1 - p).log(), p.log()], 1)
    candidates = Candidates(
        labels_N=torch.zeros(200, dtype=torch.int64),
        num_classes=2,
        outputs=[Outputs(logits_NC=logits, features_ND=logits)],
    )
    picked = run("ccs", candidates, 20, beta=0.5, strata=10).indices_K
    assert int(picked.max()) < 100
    assert torch.bincount(picked // 10, minlength=10).tolist() == [2] * 10


def test_ccs_gives_what_small_strata_lack_to_large_ones_and_never_runs_short() -> None:
    counts = torch.tensor([0.0] * 30 + [4] * 2 + [9] * 8)
    candidates = Candidates(
        labels_N=torch.zeros(40, dtype=torch.int64), num_classes=1, forgetting_N=counts, outputs=make(40, 1).outputs
    )
    picked = run("ccs", candidates, 18, score="forgetting", beta=0.0, strata=3).indices_K
    assert [int(((picked >= a) & (picked < b)).sum()) for a, b in ((0, 30), (30, 32), (32, 40))] == [8, 2, 8]
    # beta asks to drop 36 of 40, the budget of 18 allows 22
    assert len(run("ccs", candidates, 18, score="forgetting", beta=0.9).indices_K.unique()) == 18


def test_ccs_rounds_the_number_of_samples_that_it_drops() -> None:
    scores_N = torch.linspace(0, 1, 10)
    candidates = Candidates(labels_N=torch.zeros(10, dtype=torch.int64), num_classes=1, scores_N=scores_N)
    picked = run("ccs", candidates, 7, score="scores", beta=0.26).indices_K  # 2.6 of 10
    assert sorted(picked.tolist()) == list(range(7))


def test_ccs_takes_never_learned_samples_as_the_hardest() -> None:
    candidates = make(40, 2)
    picked = run("ccs", candidates, 10, score="forgetting", beta=0.5).indices_K
    assert not candidates.forgetting_N[picked].isinf().any()  # type: ignore[index]


def test_ccs_puts_never_learned_samples_into_the_hardest_stratum() -> None:
    counts = torch.tensor([0.0] * 30 + [5] * 2 + [torch.inf] * 8)
    candidates = Candidates(
        labels_N=torch.zeros(40, dtype=torch.int64), num_classes=1, outputs=make(40, 1).outputs, forgetting_N=counts
    )
    picked = run("ccs", candidates, 20, score="forgetting", beta=0.0, strata=2).indices_K
    assert int((picked >= 30).sum()) == 10


def test_default_beta_shrinks_with_the_fraction() -> None:
    for wrong, most in ((1.0, 0.5), (0.15, 0.15), (0.02, 0.1)):
        betas = [default_beta(f, wrong) for f in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1)]
        assert betas == sorted(betas, reverse=True)
        assert betas == pytest.approx([min(most, part) for part in (0.5, 0.5, 0.3, 0.21, 0.119, 0, 0)], abs=0.001)


@pytest.mark.parametrize("score", ["el2n", "grand", "entropy", "aum", "el2n along trajectories", "scores"])
@pytest.mark.parametrize(("wrong", "dropped"), [(0.15, 0.15), (0.02, 0.1), (0.8, 0.3)])
def test_ccs_drops_what_the_scorer_gets_wrong(score: str, wrong: float, dropped: float) -> None:
    """At 5 %, from the tenth that it drops at least to .3."""
    candidates = make(200, 4, 5, models=2)
    labels_N, few = candidates.labels_N, round(200 * wrong)
    for first, each in zip((0, 100), candidates.outputs, strict=True):  # the two models fail on different samples
        right_N = torch.ones(200, dtype=torch.bool)
        right_N[torch.arange(first, first + few) % 200] = False
        own_N1 = torch.where(right_N, each.logits_NC.max() + 1, each.logits_NC.min() - 1)[:, None]
        each.logits_NC.scatter_(1, labels_N[:, None], own_N1)
    if score in ("aum", "el2n along trajectories"):
        margin_NT = torch.tensor([1.0, -1.0, -1.0]).repeat(200, 1)  # only the first epoch counts
        margin_NT[:few, 0] = -1
        even_NT = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
        candidates = replace(candidates, trajectories=[Trajectory(p_NT=even_NT, error_NT=even_NT, margin_NT=margin_NT)])
    elif score == "scores":
        candidates, dropped = replace(candidates, scores_N=torch.arange(200.0)), 0.3
    picked = select("ccs", candidates, fraction=0.05, score=score.partition(" ")[0])
    assert picked.options["beta"] == pytest.approx(dropped, abs=1e-6)
    assert select("ccs", candidates, fraction=0.05, **picked.options).indices_K.tolist() == picked.indices_K.tolist()


def test_a_model_that_knows_nothing_gets_all_wrong() -> None:
    candidates = make(200, 4, 5)
    candidates.outputs[0].logits_NC.zero_()
    assert select("ccs", candidates, fraction=0.01).options["beta"] == 0.5


@pytest.mark.parametrize("fraction", [0.05, 0.1])
@pytest.mark.parametrize("balanced", [True, False])
def test_auto_is_the_algorithm_of_its_rule(fraction: float, balanced: bool) -> None:
    candidates = make(60, 3)
    name, options = auto_rule(fraction, balanced=balanced, epochs=0)
    ours, theirs = (
        select("auto", candidates, fraction=fraction, seed=5, balanced=balanced),
        select(name, candidates, fraction=fraction, seed=5, balanced=balanced, **options),
    )
    assert ours.indices_K.tolist() == theirs.indices_K.tolist()
    assert (ours.algorithm, ours.options) == (name, theirs.options)


def test_dual_score_is_difficulty_times_spread() -> None:
    candidates = make(12, 3, models=4)
    p = torch.stack(
        [o.logits_NC.softmax(1)[everyone(candidates), candidates.labels_N] for o in candidates.outputs]
    ).numpy()
    whole = (1 - p.mean(0)) * p.std(0, ddof=1)
    windows = np.mean([(1 - p[a : a + 3].mean(0)) * p[a : a + 3].std(0, ddof=1) for a in range(2)], 0)
    np.testing.assert_allclose(run("dual", candidates, 4, sampling="top").scores_N, whole, rtol=1e-5)
    selection = run("dual", candidates, 4, sampling="top", window=3)
    np.testing.assert_allclose(selection.scores_N, windows, rtol=1e-5)
    assert selection.indices_K.tolist() == np.argsort(-windows)[:4].tolist()


def test_dual_samples_easier_as_the_fraction_shrinks() -> None:
    candidates = make(4000, 3, models=4)
    p = torch.stack(
        [o.logits_NC.softmax(1)[everyone(candidates), candidates.labels_N] for o in candidates.outputs]
    ).mean(0)
    chosen = [float(p[select("dual", candidates, fraction=f, balanced=False).indices_K].mean()) for f in (0.02, 0.5)]
    assert chosen[0] > chosen[1] + 0.1


def test_dual_draws_in_proportion_to_score_times_beta_density() -> None:
    candidates = make(5, 3, models=3)
    first = torch.bincount(
        torch.stack(
            [select("dual", candidates, fraction=0.2, balanced=False, seed=s).indices_K[0] for s in range(3000)]
        ),
        minlength=5,
    )
    p = torch.stack([o.logits_NC.softmax(1)[everyone(candidates), candidates.labels_N] for o in candidates.outputs])
    score = (1 - p.mean(0)) * p.std(0)
    b = 15 * (1 - p.mean(0).mean()) * (1 - 0.8**4)  # fewer than ten samples: all of them are the anchor
    density = score * p.mean(0) ** (15 - b) * (1 - p.mean(0)) ** (b - 1)
    torch.testing.assert_close(first / 3000, (density / density.sum()).float(), atol=0.03, rtol=0)


# --- geometry --------------------------------------------------------------------------------------------------------


def test_herding_equals_naive_argmin_of_the_mean_error() -> None:
    h = one_class(40).outputs[0].features_ND
    picked: list[int] = []
    for _ in range(12):
        errors = [math.inf if j in picked else float((h.mean(0) - h[[*picked, j]].mean(0)).norm()) for j in range(40)]
        picked.append(int(np.argmin(errors)))
    assert herd(h, 12).tolist() == picked


def test_features_of_several_models_are_stacked() -> None:
    candidates = one_class(40, models=3)
    stacked = torch.cat([o.features_ND for o in candidates.outputs], 1)
    assert run("herding", candidates, 12).indices_K.tolist() == herd(stacked, 12).tolist()


def test_herding_error_is_below_random() -> None:
    candidates = make(400, 2, 16)
    h = candidates.outputs[0].features_ND

    def error(picked: Tensor) -> float:
        return float((h.mean(0) - h[picked].mean(0)).norm())

    random = [error(select("random", candidates, fraction=0.1, seed=s).indices_K) for s in range(10)]
    assert error(run("herding", candidates, 40).indices_K) < 0.5 * min(random)


def test_k_center_is_farthest_first() -> None:
    candidates = one_class(40)
    h = candidates.outputs[0].features_ND
    picked = [int((h - h.mean(0)).norm(dim=1).argmin())]
    while len(picked) < 12:
        picked.append(int(torch.cdist(h, h[picked]).min(1).values.argmax()))
    assert run("k_center", candidates, 12).indices_K.tolist() == picked


def test_moderate_is_closest_to_the_median_distance_of_each_class() -> None:
    candidates = make(40, 2, labels=torch.tensor([0] * 21 + [1] * 19))  # odd: no two equally close to the median
    h, y = candidates.outputs[0].features_ND, candidates.labels_N
    scores = torch.empty(40, dtype=torch.float64)
    for c in range(2):
        d = (h[y == c] - h[y == c].mean(0)).norm(dim=1)
        scores[y == c] = -(d - float(np.median(d))).abs()
    selection = run("moderate", candidates, 9)
    torch.testing.assert_close(selection.scores_N, scores.float())
    assert selection.indices_K.tolist() == scores.argsort(descending=True, stable=True)[:9].tolist()


def test_moderate_of_its_authors_is_their_code() -> None:
    """Line by line from their `selection.py`: coordinate medians, and the middle ranks over all classes."""
    candidates = make(41, 3, 5)
    features, labels = candidates.outputs[0].features_ND.numpy(), candidates.labels_N.numpy()
    prototypes = np.stack([np.median(features[labels == c], axis=0) for c in range(3)])
    distance = np.linalg.norm(features - prototypes[labels], axis=1)
    rate = 9 / 41
    low, high = 0.5 - rate / 2, 0.5 + rate / 2
    kept = distance.argsort()[round(len(distance) * low) : round(len(distance) * high)]
    assert run("moderate", candidates, 9, variant="authors").indices_K.tolist() == kept.tolist()
    assert set(run("moderate", candidates, 9).indices_K.tolist()) != set(kept.tolist())
    balanced = select("moderate", candidates, k=9, variant="authors").indices_K
    for c, share in enumerate(torch.bincount(candidates.labels_N[balanced], minlength=3).tolist()):
        own = np.flatnonzero(labels == c)
        ranks = own[distance[own].argsort()]
        start = round((len(own) - share) / 2)
        assert balanced[candidates.labels_N[balanced] == c].tolist() == ranks[start : start + share].tolist()


@pytest.mark.parametrize("seed", range(5))
def test_moderate_takes_the_lower_of_the_two_in_the_middle(seed: int) -> None:
    candidates = one_class(40, seed=seed)
    h = candidates.outputs[0].features_ND
    middle = (h - h.mean(0)).norm(dim=1).sort(stable=True).indices[19:21]
    assert run("moderate", candidates, 2).indices_K.tolist() == middle.sort().values.tolist()
