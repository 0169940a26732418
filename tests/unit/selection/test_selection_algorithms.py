"""Every algorithm against its definition, on cases small enough for brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from selection_samples import dense_gradients, glister, make, matching_error, medoids, omp, one_class
from torch import Tensor

from lipt.core.selection import Candidates, Outputs, Selection, select
from lipt.core.selection.auto import auto_rule, default_beta
from lipt.core.selection.geometry import herd
from lipt.core.selection.gradients import last_layers
from lipt.core.selection.nnls import GrowingNonNegativeLeastSquares


def everyone(candidates: Candidates) -> Tensor:
    return torch.arange(len(candidates))


def run(algorithm: str, candidates: Candidates, k: int, **options: object) -> Selection:
    return select(algorithm, candidates, fraction=k / len(candidates), balanced=False, options=options)


# --- gradients -------------------------------------------------------------------------------------------------------


def test_factored_gradients_equal_autograd() -> None:
    candidates = make(12, 3, 5)
    (layer,), dense = last_layers(candidates, everyone(candidates)), dense_gradients(candidates)
    torch.testing.assert_close(layer.gram_BN(everyone(candidates)), dense @ dense.T)
    torch.testing.assert_close(layer.square_norms_N(), dense.square().sum(1))
    torch.testing.assert_close(layer.sum_CE().flatten(), dense.sum(0))
    torch.testing.assert_close(layer.dot_N(layer.sum_CE()), dense @ dense.sum(0))
    rows, weights = torch.tensor([3, 1]), torch.tensor([2.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(layer.weighted_sum_CE(rows, weights).flatten(), weights @ dense[rows])


def test_gradients_of_several_models_are_stacked() -> None:
    candidates = make(9, 3, 4, models=2)
    dense = torch.cat([dense_gradients(candidates, 0), dense_gradients(candidates, 1)], 1) / 2**0.5
    layers = last_layers(candidates, everyone(candidates))
    torch.testing.assert_close(sum(layer.gram_BN(everyone(candidates)) for layer in layers), dense @ dense.T)


def test_error_of_confident_samples_keeps_its_digits() -> None:
    logits = torch.tensor([[20.0, 0.0], [25.0, 0.0]])  # 1 - p_y is 2e-9 and 1.4e-11, below the float32 spacing at 1
    candidates = Candidates(
        labels_N=torch.zeros(2, dtype=torch.int64),
        num_classes=2,
        outputs=[Outputs(logits_NC=logits, features_ND=logits)],
    )
    scores = select("el2n", candidates, fraction=1).scores_N
    assert scores is not None
    assert scores.tolist() == pytest.approx([math.sqrt(2) * math.exp(-20), math.sqrt(2) * math.exp(-25)], rel=1e-5)


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
        ("margin", lambda p: np.sort(p, 1)[:, -2] - np.sort(p, 1)[:, -1]),
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
        labels_N=torch.zeros(40, dtype=torch.int64), num_classes=1, forgetting_N=counts,
        outputs=make(40, 1).outputs,
    )  # fmt: skip
    picked = run("ccs", candidates, 18, score="forgetting", beta=0.0, strata=3).indices_K
    assert [int(((picked >= a) & (picked < b)).sum()) for a, b in ((0, 30), (30, 32), (32, 40))] == [8, 2, 8]
    # beta asks to drop 36 of 40, the budget of 18 allows 22
    assert len(run("ccs", candidates, 18, score="forgetting", beta=0.9).indices_K.unique()) == 18


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
    betas = [default_beta(f) for f in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1)]
    assert betas == sorted(betas, reverse=True)
    assert betas == pytest.approx([0.5, 0.5, 0.3, 0.21, 0.12, 0, 0], abs=0.01)


def test_auto_is_the_algorithm_of_its_rule() -> None:
    candidates = make(60, 3)
    name, options = auto_rule(0.1)
    ours, theirs = (
        select("auto", candidates, fraction=0.1, seed=5),
        select(name, candidates, fraction=0.1, seed=5, options=options),
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


# --- greedy on gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_gradmatch_equals_dense_matching_pursuit(lam: float, seed: int) -> None:
    candidates = one_class(60, 8, 5, seed=seed)
    dense = dense_gradients(candidates)
    order, weights = omp(dense, 20, lam, dense.sum(0))
    selection = run("gradmatch", candidates, 20, lam=lam)
    assert selection.indices_K.tolist() == order
    np.testing.assert_allclose(selection.weights_K, weights, rtol=1e-4, atol=1e-5)


def test_gradmatch_refreshes_without_changing_the_result_and_float32_keeps_the_order() -> None:
    candidates = one_class(200, 20, 4)
    dense = dense_gradients(candidates)
    order, weights = omp(dense, 60, 1e-3, dense.sum(0))
    assert (weights == 0).any()  # the case that has to drop variables
    assert run("gradmatch", candidates, 60, lam=1e-3).indices_K.tolist() == order
    (o,) = candidates.outputs
    single = Candidates(
        labels_N=candidates.labels_N, num_classes=4,
        outputs=[Outputs(logits_NC=o.logits_NC.float(), features_ND=o.features_ND.float())],
    )  # fmt: skip
    picked = run("gradmatch", single, 60, lam=1e-3)
    assert picked.indices_K.tolist() == order
    np.testing.assert_allclose(picked.weights_K, weights, rtol=1e-2, atol=2e-3)


def test_gradmatch_in_float32_keeps_the_order_of_float64_thanks_to_the_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    clusters = torch.randn(6, 64, generator=g)[torch.randint(6, (600,), generator=g)] * 0.6
    features = (clusters + torch.randn(600, 64, generator=g) * 0.5).relu()
    logits = features @ torch.randn(64, 10, generator=g) / 4
    logits[:, 0] += 1.5

    def order(dtype: torch.dtype) -> list[int]:
        outputs = [Outputs(logits_NC=logits.to(dtype), features_ND=features.to(dtype))]
        candidates = Candidates(labels_N=torch.zeros(600, dtype=torch.int64), num_classes=10, outputs=outputs)
        return run("gradmatch", candidates, 250).indices_K.tolist()

    expected = order(torch.float64)
    assert order(torch.float32) == expected
    monkeypatch.setattr("lipt.core.selection.gradmatch.REFRESH", 10**9)
    assert order(torch.float32) != expected


def test_gradmatch_of_several_models_matches_their_joint_gradient() -> None:
    candidates = one_class(25, models=2)
    dense = torch.cat([dense_gradients(candidates, 0), dense_gradients(candidates, 1)], 1) / 2**0.5
    assert run("gradmatch", candidates, 10).indices_K.tolist() == omp(dense, 10, 0.5, dense.sum(0))[0]


def test_gradmatch_mean_target_scales_the_weights() -> None:
    candidates = one_class(30)
    total, mean = (run("gradmatch", candidates, 8, lam=0.0, target=t) for t in ("sum", "mean"))
    assert total.indices_K.tolist() == mean.indices_K.tolist()
    torch.testing.assert_close(total.weights_K, mean.weights_K * 30)


def test_gradmatch_beats_random_at_matching_the_mean_gradient() -> None:
    candidates = one_class(200, 10)
    dense = dense_gradients(candidates)
    ours = run("gradmatch", candidates, 20)
    random = [
        matching_error(dense, select("random", candidates, fraction=0.1, seed=s).indices_K, torch.ones(20))
        for s in range(20)
    ]
    assert matching_error(dense, ours.indices_K, ours.weights_K) < min(random)


def test_gradmatch_without_any_gradient_gives_equal_weights() -> None:
    z = torch.tensor([[200.0, 0.0]] * 6)  # p_y = 1: every gradient is zero
    candidates = Candidates(
        labels_N=torch.zeros(6, dtype=torch.int64), num_classes=2, outputs=[Outputs(logits_NC=z, features_ND=z)]
    )
    selection = run("gradmatch", candidates, 3, lam=0.0)
    assert selection.indices_K.tolist() == [0, 1, 2]
    assert selection.weights_K.tolist() == [1, 1, 1]


def test_nnls_lets_dropped_and_dependent_variables_back_in() -> None:
    from scipy.optimize import nnls

    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.normal(size=(6, 12)), rng.normal(size=6)
        a[:, 5] = a[:, 1] + a[:, 2]
        solver = GrowingNonNegativeLeastSquares(12, 0.0)
        for t in range(12):
            w = solver.add(torch.from_numpy(a[:, : t + 1].T @ a[:, t]), float(a[:, t] @ b))
        fit = np.linalg.norm(a @ w.numpy() - b)
        assert fit == pytest.approx(nnls(a, b)[1], abs=1e-6)
        assert float(w.min()) >= 0


@pytest.mark.parametrize("seed", range(3))
def test_glister_equals_brute_force_and_differs_from_static_ranking(seed: int) -> None:
    candidates, validation = one_class(25, seed=seed), make(15, 4, 5, seed=seed + 10)
    static = (dense_gradients(candidates) @ dense_gradients(validation).mean(0)).argsort(descending=True)[:10].tolist()
    picked = select(
        "glister", candidates, fraction=0.4, balanced=False, options={"eta": 0.05}, validation=validation
    ).indices_K.tolist()
    assert picked == glister(candidates, validation, 10, 0.05)
    assert picked != static
    still = select(
        "glister", candidates, fraction=0.4, balanced=False, options={"eta": 0.0}, validation=validation
    ).indices_K.tolist()
    assert still == static


def test_glister_without_validation_judges_by_the_candidates() -> None:
    candidates = one_class(20)
    assert run("glister", candidates, 8, eta=0.02).indices_K.tolist() == glister(candidates, candidates, 8, 0.02)


def test_glister_judges_a_class_by_its_own_validation_samples_and_by_all_if_it_has_none() -> None:
    labels = torch.tensor([0] * 10 + [1] * 10)
    candidates, validation = (
        make(20, 3, 5, labels=labels),
        make(12, 3, 5, seed=1, labels=torch.tensor([0] * 6 + [2] * 6)),
    )
    picked = select("glister", candidates, fraction=0.3, options={"eta": 0.03}, validation=validation).indices_K
    parts = [slice(0, 10), slice(10, 20)]
    first, second = (
        Candidates(
            labels_N=labels[s], num_classes=3, outputs=[Outputs(logits_NC=o.logits_NC[s], features_ND=o.features_ND[s])]
        )
        for s in parts
        for o in candidates.outputs
    )
    (v,) = validation.outputs
    zeros = Candidates(
        labels_N=labels[:6], num_classes=3, outputs=[Outputs(logits_NC=v.logits_NC[:6], features_ND=v.features_ND[:6])]
    )
    assert picked[:3].tolist() == glister(first, zeros, 3, 0.03)
    assert (picked[3:] - 10).tolist() == glister(second, validation, 3, 0.03)


def test_glister_in_batches_takes_the_best_of_each_step() -> None:
    candidates = one_class(20)
    gains = dense_gradients(candidates) @ dense_gradients(candidates).mean(0)
    picked = run("glister", candidates, 7, batch=3)
    assert picked.indices_K[:3].tolist() == gains.argsort(descending=True)[:3].tolist()
    assert len(picked.indices_K.unique()) == 7


def test_glister_does_not_depend_on_the_scale_of_the_features() -> None:
    candidates = one_class(40, 30)
    (o,) = candidates.outputs
    scaled = Candidates(
        labels_N=candidates.labels_N,
        num_classes=4,
        outputs=[Outputs(logits_NC=o.logits_NC, features_ND=o.features_ND * 1e4)],
    )
    huge = Candidates(
        labels_N=candidates.labels_N,
        num_classes=4,
        outputs=[Outputs(logits_NC=o.logits_NC, features_ND=o.features_ND * 1e6)],
    )
    assert run("glister", scaled, 15).indices_K.tolist() == run("glister", huge, 15).indices_K.tolist()


# --- submodular ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_craig_equals_naive_greedy_and_its_weights_are_cluster_sizes(seed: int) -> None:
    candidates = one_class(50, seed=seed)
    distances = torch.cdist(dense_gradients(candidates), dense_gradients(candidates))
    selection = run("craig", candidates, 12)
    assert selection.indices_K.tolist() == medoids(distances, 12)
    assert (
        selection.weights_K.tolist() == torch.bincount(distances[selection.indices_K].argmin(0), minlength=12).tolist()
    )
    assert selection.weights_K.sum() == 50


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_facility_location_equals_naive_greedy(metric: str) -> None:
    candidates = one_class(50)
    h = candidates.outputs[0].features_ND
    unit = h / h.norm(dim=1, keepdim=True)
    distances = torch.cdist(h, h) if metric == "euclidean" else 1 - unit @ unit.T
    assert run("facility_location", candidates, 15, metric=metric).indices_K.tolist() == medoids(distances, 15)


def test_rows_on_demand_give_the_same_medoids(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = one_class(60)
    kept = run("craig", candidates, 20)
    monkeypatch.setattr("lipt.core.selection.submodular.DENSE_LIMIT", 10)
    fresh = run("craig", candidates, 20)
    assert fresh.indices_K.tolist() == kept.indices_K.tolist()
    assert fresh.weights_K.tolist() == kept.weights_K.tolist()


def test_stochastic_greedy_comes_within_a_few_percent_of_lazy() -> None:
    candidates = one_class(300)
    dense = dense_gradients(candidates)
    distances = torch.cdist(dense, dense)

    def value(picked: Tensor) -> float:  # facility location with similarities max d - d
        return float((distances.max() - distances[picked].min(0).values).sum())

    lazy, stochastic = (value(run("craig", candidates, 30, greedy=g).indices_K) for g in ("lazy", "stochastic"))
    random = value(select("random", candidates, fraction=0.1).indices_K)
    assert 0.99 * lazy <= stochastic <= lazy * 1.001
    assert random < stochastic


def test_graph_cut_equals_naive_greedy() -> None:
    candidates = one_class(40)
    h = candidates.outputs[0].features_ND
    unit = h / h.norm(dim=1, keepdim=True)
    s = (1 + unit @ unit.T) / 2

    def value(chosen: list[int], lam: float) -> float:
        return float(s[:, chosen].sum() - lam * s[chosen][:, chosen].sum())

    for lam in (0.2, 0.5):
        picked: list[int] = []
        for _ in range(10):
            picked.append(max((j for j in range(40) if j not in picked), key=lambda j: value([*picked, j], lam)))
        assert run("graph_cut", candidates, 10, lam=lam).indices_K.tolist() == picked


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
