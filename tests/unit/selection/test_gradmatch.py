"""GradMatch against dense matching pursuit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from selection_samples import dense_gradients, make, matching_error, omp, one_class, run
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from lipt.errors import UsageError
from lipt.selection import Candidates, Outputs, select
from lipt.selection.algorithms.gradmatch import LAM
from lipt.selection.algorithms.pursuit import matching_pursuit
from lipt.selection.inputs.gradients import last_layers


@pytest.mark.parametrize(("lam", "k"), [(0.0, 20), (0.5, 20), (20.0, 20), (20.0, 60)])
@pytest.mark.parametrize("seed", range(3))
def test_gradmatch_equals_dense_matching_pursuit(lam: float, k: int, seed: int) -> None:
    candidates = one_class(60, 8, 5, seed=seed)
    dense = dense_gradients(candidates)
    order, weights = omp(dense, k, lam, dense.sum(0))
    selection = run("gradmatch", candidates, k, lam=lam)
    assert selection.indices_K.tolist() == order
    np.testing.assert_allclose(selection.weights_K, weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_more_picks_than_independent_gradients_get_no_huge_weights(seed: int) -> None:
    """Features far from 0, in float32: products of the picks with an error of 1e-7 gave weights of a million."""
    n, classes, d = 600, 10, 8
    g = torch.Generator().manual_seed(seed)
    features, logits = torch.randn(n, d, generator=g) + 5, torch.randn(n, classes, generator=g)
    candidates = Candidates.of(torch.randint(classes, (n,), generator=g), logits=logits, features=features)
    (layer,) = last_layers(candidates, torch.arange(n), torch.float64)
    order, weights = matching_pursuit([layer], 200, lam=0.0, dtype=torch.float32)
    dense = (layer.delta_NC[:, :, None] * layer.features_NE[:, None]).flatten(1)
    assert (weights @ dense[order] - dense.sum(0)).norm() < 1e-5 * dense.sum(0).norm()
    assert float(weights.sum()) < 1000


def confident(candidates: Candidates, error: float) -> Candidates:
    """Two classes, all samples of class 0: the same gradients, times `error`."""
    (o,) = candidates.outputs
    logits = torch.stack([torch.zeros(len(candidates)).double(), torch.logit(o.logits_NC.softmax(1)[:, 1] * error)], 1)
    outputs = [Outputs(logits_NC=logits, features_ND=o.features_ND)]
    return Candidates(labels_N=candidates.labels_N, num_classes=2, outputs=outputs)


@pytest.mark.parametrize("error", [1e-3, 1e-9, 1e-30, 1e-180])
@pytest.mark.parametrize("per", ["class", "class_gradient", "batch"])
def test_picks_and_weights_do_not_depend_on_how_large_the_gradients_are(error: float, per: str) -> None:
    """A model in training: its errors shrink, and an absolute ridge would win over them."""
    candidates = one_class(60, 8, 2, seed=4)
    options = {"per": per, "batch_size": 6}
    large, small = (run("gradmatch", confident(candidates, each), 12, **options) for each in (1e-2, error))
    assert small.indices_K.tolist() == large.indices_K.tolist()
    torch.testing.assert_close(small.weights_K, large.weights_K, rtol=1e-4, atol=1e-5)
    assert len(list(small.sampler())) == 12


def test_the_ridge_of_several_models_is_of_their_joint_gradient() -> None:
    """Models of very different gradients keep their shares."""
    candidates = one_class(40, 6, 3, models=2)
    first, second = candidates.outputs
    uneven = Candidates(
        labels_N=candidates.labels_N,
        num_classes=3,
        outputs=[first, Outputs(logits_NC=second.logits_NC, features_ND=second.features_ND * 50)],
    )
    dense = torch.cat([dense_gradients(uneven, 0), dense_gradients(uneven, 1)], 1) / 2**0.5
    order, weights = omp(dense, 12, 0.5, dense.sum(0))
    selection = run("gradmatch", uneven, 12, lam=0.5)
    assert selection.indices_K.tolist() == order
    np.testing.assert_allclose(selection.weights_K, weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("c", [1.0, 1e4])
def test_a_trained_classifier_is_matched_as_well_as_an_untrained_one(c: float) -> None:
    """Logistic regression on the digits: with an absolute ridge of .5 the residual at C = 1e4 was .92, that of a
    static ranking, and the sampler never drew one of the classes."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not converge
        logits = LogisticRegression(C=c, max_iter=300).fit(x, y).decision_function(x)
    candidates = Candidates.of(y, logits=logits.astype(np.float32), features=x)
    selection = select("gradmatch", candidates, fraction=0.1)
    chosen, weights = selection.indices_K, selection.weights_K.double()
    (layer,) = last_layers(candidates, torch.arange(len(y)), torch.float64)
    for label in range(10):
        own, mine = candidates.labels_N == label, candidates.labels_N[chosen] == label
        goal = layer.delta_NC[own].T @ layer.features_NE[own]
        found = (layer.delta_NC[chosen[mine]] * weights[mine, None]).T @ layer.features_NE[chosen[mine]]
        assert float((found - goal).norm() / goal.norm()) < 0.1
    drawn = list(selection.sampler(20 * len(chosen), torch.Generator().manual_seed(0)))
    labels = y[selection.ascending()[0].numpy()]
    assert set(labels[drawn]) == set(range(10))


def test_gradmatch_refreshes_without_changing_the_result_and_float32_keeps_the_order() -> None:
    candidates = one_class(200, 20, 4)
    dense = dense_gradients(candidates)
    order, weights = omp(dense, 60, 1e-3, dense.sum(0))
    assert (weights == 0).any()  # the case that has to drop variables
    assert run("gradmatch", candidates, 60, lam=1e-3).indices_K.tolist() == order
    (o,) = candidates.outputs
    single = Candidates(
        labels_N=candidates.labels_N,
        num_classes=4,
        outputs=[Outputs(logits_NC=o.logits_NC.float(), features_ND=o.features_ND.float())],
    )
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
        return run("gradmatch", candidates, 250, lam=1e-3).indices_K.tolist()

    expected = order(torch.float64)
    assert order(torch.float32) == expected
    monkeypatch.setattr("lipt.selection.algorithms.pursuit.REFRESH", 10**9)
    assert order(torch.float32) != expected


def test_gradmatch_of_several_models_matches_their_joint_gradient() -> None:
    candidates = one_class(25, models=2)
    dense = torch.cat([dense_gradients(candidates, 0), dense_gradients(candidates, 1)], 1) / 2**0.5
    assert run("gradmatch", candidates, 10).indices_K.tolist() == omp(dense, 10, LAM, dense.sum(0))[0]


@pytest.mark.parametrize("per", ["class", "batch"])
def test_gradmatch_mean_target_scales_the_weights_of_all_classes_alike(per: str) -> None:
    """Divided by the size of its own class, a small class had the same total weight as a large one."""
    candidates = make(60, 3, labels=torch.tensor([0] * 45 + [1] * 10 + [2] * 5))
    logits_NC = candidates.outputs[0].logits_NC.clone()
    logits_NC[55:, 2] = 2000  # no gradient: equal weights
    candidates = Candidates.of(candidates.labels_N, logits=logits_NC, features=candidates.outputs[0].features_ND)
    options = {"per": per, "batch_size": 2}
    total, mean = (select("gradmatch", candidates, k=12, target=t, **options) for t in ("sum", "mean"))
    assert total.indices_K.tolist() == mean.indices_K.tolist()
    torch.testing.assert_close(total.weights_K, mean.weights_K * 60)


def test_gradmatch_beats_random_at_matching_the_mean_gradient() -> None:
    candidates = one_class(200, 10)
    dense = dense_gradients(candidates)
    ours = run("gradmatch", candidates, 20)
    random = [
        matching_error(dense, select("random", candidates, fraction=0.1, seed=s).indices_K, torch.ones(20))
        for s in range(20)
    ]
    assert matching_error(dense, ours.indices_K, ours.weights_K) < min(random)


def test_gradmatch_without_any_gradient_gives_equal_weights_that_add_up_to_n() -> None:
    z = torch.tensor([[2000.0, 0.0]] * 6)  # p_y = 1, even in float64: every gradient is zero
    candidates = Candidates(
        labels_N=torch.zeros(6, dtype=torch.int64), num_classes=2, outputs=[Outputs(logits_NC=z, features_ND=z)]
    )
    selection = run("gradmatch", candidates, 3, lam=0.0)
    assert selection.indices_K.tolist() == [0, 1, 2]
    assert selection.weights_K.tolist() == [2, 2, 2]  # as large as the weights of other classes


def test_class_by_class_is_the_dense_pursuit_of_each_class() -> None:
    labels = torch.tensor([0] * 30 + [1] * 50)
    candidates = make(80, 4, 6, labels=labels)
    dense = dense_gradients(candidates)
    picked = select("gradmatch", candidates, fraction=0.2)
    first, second = (omp(part, len(part) // 5, LAM, part.sum(0)) for part in (dense[:30], dense[30:]))
    assert picked.indices_K.tolist() == first[0] + [30 + i for i in second[0]]
    np.testing.assert_allclose(picked.weights_K, np.concatenate([first[1], second[1]]), rtol=1e-4, atol=1e-5)


def test_own_row_of_the_classifier_alone() -> None:
    candidates = one_class(60, 8, 5)
    own = dense_gradients(candidates).reshape(60, 5, 9)[:, 0]
    order, weights = omp(own, 8, LAM, own.sum(0))
    picked = run("gradmatch", candidates, 8, per="class_gradient")
    assert picked.indices_K.tolist() == order
    np.testing.assert_allclose(picked.weights_K, weights, rtol=1e-4, atol=1e-5)
    assert order != run("gradmatch", candidates, 8).indices_K.tolist()


@pytest.mark.parametrize("models", [1, 2])
def test_own_rows_of_different_classes_have_nothing_in_common(models: int) -> None:
    """As one problem: the classes' rows were added as if they were one."""
    n, classes, d = 30, 3, 4
    candidates = make(n, classes, d, models=models)
    rows = [dense_gradients(candidates, model).reshape(n, classes, d + 1) for model in range(models)]
    own = torch.nn.functional.one_hot(candidates.labels_N, classes)[:, :, None]
    dense = torch.cat([(each * own).flatten(1) for each in rows], 1) / models**0.5
    order, weights = omp(dense, 10, LAM, dense.sum(0))
    picked = run("gradmatch", candidates, 10, per="class_gradient")
    assert picked.indices_K.tolist() == order
    np.testing.assert_allclose(picked.weights_K, weights, rtol=1e-4, atol=1e-5)


def test_mini_batches_are_matched_by_their_sums_and_share_a_weight() -> None:
    candidates = one_class(60, 8, 4)
    picked = run("gradmatch", candidates, 24, per="batch", batch_size=6)
    parts = torch.randperm(60, generator=torch.Generator().manual_seed(0)).split(6)
    sums = torch.stack([dense_gradients(candidates)[part].sum(0) for part in parts])
    order, weights = omp(sums, 4, LAM, sums.sum(0))
    assert picked.indices_K.tolist() == [int(i) for b in order for i in parts[b]]
    np.testing.assert_allclose(picked.weights_K, np.repeat(weights, 6), rtol=1e-4, atol=1e-5)


@settings(max_examples=30)
@given(n=st.integers(1, 50), k=st.integers(1, 50), batch_size=st.integers(1, 60), seed=st.integers(0, 99))
@example(n=5, k=3, batch_size=2, seed=1)  # the batch of two samples comes first, so the one of three is needed too
def test_mini_batches_give_exactly_the_budget(n: int, k: int, batch_size: int, seed: int) -> None:
    k = min(n, k)
    picked = select(
        "gradmatch",
        one_class(n, 3, 3, seed=seed),
        fraction=k / n,
        balanced=False,
        per="batch",
        batch_size=batch_size,
    )
    assert len(picked.indices_K.unique()) == len(picked.indices_K) == len(picked.weights_K) == max(1, round(k / n * n))


def test_mini_batch_gradients_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipt.selection.algorithms.gradmatch.DENSE_BYTES", 1000)
    with pytest.raises(UsageError, match=r"15 mini-batch gradients of 36 numbers .*\n  -> choose a larger batch"):
        run("gradmatch", one_class(60, 8, 4), 12, per="batch", batch_size=4)


def test_a_problem_that_cannot_fit_is_refused_before_it_is_begun() -> None:
    """A million candidates as one problem: the Gram rows of 400,000 picks alone are 1,490 GiB."""
    n = 1_000_000
    outputs = Outputs(logits_NC=torch.zeros(1, 10).expand(n, 10), features_ND=torch.ones(1, 4).expand(n, 4))
    candidates = Candidates(labels_N=torch.zeros(n, dtype=torch.int64), num_classes=10, outputs=[outputs])
    with pytest.raises(UsageError, match=r"400,000 picks out of 1,000,000 .* about 5,067 GiB.*\n.*class by"):
        select("gradmatch", candidates, fraction=0.4, balanced=False)
