"""GLISTER against the loop on dense gradients."""

from __future__ import annotations

import pytest
import torch
from selection_samples import dense_gradients, glister, make, one_class, run
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection import Candidates, Outputs, select
from lipt.selection.algorithms.glister import _Screen
from lipt.selection.inputs.gradients import LastLayer


@pytest.mark.parametrize("seed", range(3))
def test_glister_equals_brute_force_and_differs_from_static_ranking(seed: int) -> None:
    candidates, validation = one_class(25, seed=seed), make(15, 4, 5, seed=seed + 10)
    static = (dense_gradients(candidates) @ dense_gradients(validation).mean(0)).argsort(descending=True)[:10].tolist()
    picked = select(
        "glister", candidates, fraction=0.4, balanced=False, eta=0.05, validation=validation
    ).indices_K.tolist()
    assert picked == glister(candidates, validation, 10, 0.05)
    assert picked != static
    still = select(
        "glister", candidates, fraction=0.4, balanced=False, eta=0.0, validation=validation
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
    picked = select("glister", candidates, fraction=0.3, eta=0.03, validation=validation).indices_K
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


@pytest.fixture(scope="module")
def of_600() -> tuple[Candidates, list[int]]:
    """(600 candidates, those that the loop picks)."""
    candidates = one_class(600, 12, seed=5)
    return candidates, glister(candidates, candidates, 120, 1e-3)


@pytest.mark.parametrize("directions", [32, 3])
def test_the_screen_finds_the_best_and_looks_at_few(
    directions: int, of_600: tuple[Candidates, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative to the basis that it has learned: three directions have to start afresh time and again."""
    monkeypatch.setattr(_Screen, "DIRECTIONS", directions)
    looked: list[int] = []
    rows = LastLayer.rows
    monkeypatch.setattr(LastLayer, "rows", lambda self, rows_S: looked.append(len(rows_S)) or rows(self, rows_S))
    candidates, expected = of_600
    picked = run("glister", candidates, 120, eta=1e-3).indices_K.tolist()
    assert picked == expected
    assert len(looked) >= 60
    assert sum(looked) < 0.1 * 120 * 600


def test_the_screen_takes_the_lowest_of_equal_candidates() -> None:
    (once,) = one_class(40).outputs
    double = Outputs(logits_NC=once.logits_NC.repeat(8, 1), features_ND=once.features_ND.repeat(8, 1))
    candidates = Candidates(labels_N=torch.zeros(320, dtype=torch.int64), num_classes=4, outputs=[double])
    picked = run("glister", candidates, 50, eta=1e-6).indices_K
    first = run("glister", candidates, 1, eta=1e-6).indices_K
    assert picked[:8].tolist() == [int(first) + 40 * copy for copy in range(8)]


@pytest.mark.parametrize("threads", [2, 3])
def test_parts_for_several_threads_change_nothing(threads: int) -> None:
    candidates, validation = one_class(50), make(17, 4, 5, seed=1)
    expected = glister(candidates, validation, 12, 0.05)
    torch.set_num_threads(threads)
    try:
        picked = select("glister", candidates, fraction=0.24, balanced=False, eta=0.05, validation=validation)
    finally:
        torch.set_num_threads(1)
    assert picked.indices_K.tolist() == expected


def test_r_greedy_takes_the_best_of_each_round() -> None:
    candidates = one_class(20)
    gains = dense_gradients(candidates) @ dense_gradients(candidates).mean(0)
    picked = run("glister", candidates, 7, greedy="r_greedy", rounds=3).indices_K
    assert picked[:3].tolist() == gains.argsort(descending=True)[:3].tolist()  # 3 + 2 + 2
    assert len(picked.unique()) == 7
    exact = run("glister", candidates, 7).indices_K.tolist()
    assert run("glister", candidates, 7, greedy="r_greedy", rounds=7).indices_K.tolist() == exact
    assert run("glister", candidates, 7, greedy="r_greedy", rounds=99).indices_K.tolist() == exact


def test_stochastic_greedy_comes_close_to_the_exact_one() -> None:
    candidates = one_class(400, 12)
    gradients = dense_gradients(candidates)
    goal = gradients.mean(0)

    def value(picked: Tensor) -> float:
        return float((gradients[picked] @ goal).sum())

    exact, stochastic, random = (
        value(picked.indices_K)
        for picked in (
            run("glister", candidates, 40, eta=1e-4),
            run("glister", candidates, 40, eta=1e-4, greedy="stochastic"),
            select("random", candidates, fraction=0.1),
        )
    )
    assert 0.8 * exact <= stochastic <= exact * (1 + 1e-6)
    assert random < 0.5 * stochastic
    everything = run("glister", candidates, 40, eta=1e-4, greedy="stochastic", epsilon=1e-9).indices_K
    assert len(everything.unique()) == 40
    with pytest.raises(UsageError, match="epsilon"):
        run("glister", candidates, 40, greedy="stochastic", epsilon=1.0)


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


@pytest.mark.parametrize("eta", [0.05, None])
@pytest.mark.parametrize("seed", range(4))
def test_two_equal_models_pick_what_one_picks(seed: int, eta: float | None) -> None:
    one = one_class(40, seed=seed)
    two = Candidates(labels_N=one.labels_N, num_classes=4, outputs=[*one.outputs, *one.outputs])
    picked = [run("glister", each, 15, eta=eta).indices_K.tolist() for each in (one, two)]
    assert picked[0] == picked[1]
