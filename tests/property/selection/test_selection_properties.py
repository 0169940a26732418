"""What holds for every algorithm: the defects of other libraries, each as a property."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from selection_samples import FROM_OUTPUTS, make, one_class, permuted

from lipt.selection import Candidates, Outputs, requirements, select


def _uses_the_seed(algorithm: str) -> bool:
    first, other = (select(algorithm, make(60, 3, models=2), fraction=0.2, seed=seed).indices_K for seed in (0, 1))
    return not torch.equal(first, other)


DRAWN = [name for name in FROM_OUTPUTS if _uses_the_seed(name)]
EXACT = [name for name in FROM_OUTPUTS if name not in DRAWN]
CHEAP = settings(max_examples=20)


@pytest.mark.parametrize("algorithm", FROM_OUTPUTS)
@CHEAP
@given(
    n=st.integers(1, 40),
    classes=st.integers(1, 5),
    fraction=st.floats(0.01, 1),
    seed=st.integers(0, 99),
    balanced=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_budgets_are_exact_and_indices_distinct(
    algorithm: str, n: int, classes: int, fraction: float, seed: int, balanced: bool, dtype: torch.dtype
) -> None:
    candidates = make(n, classes, 4, models=2, seed=seed, dtype=dtype)
    options = {"clusters": classes} if algorithm == "prototypes" else {}  # of one class they must be named
    selection = select(algorithm, candidates, fraction=fraction, balanced=balanced, seed=seed, **options)
    indices, labels = selection.indices_K, candidates.labels_N
    assert indices.dtype == torch.int64
    assert len(indices.unique()) == len(indices) == len(selection.weights_K)
    assert 0 <= int(indices.min()) <= int(indices.max()) < n
    assert selection.weights_K.dtype == torch.float32
    assert bool((selection.weights_K >= 0).all())
    assert float(selection.weights_K.sum()) > 0
    if algorithm == "stratified" or (balanced and algorithm != "random"):
        counts = torch.bincount(labels, minlength=classes).tolist()
        taken = torch.bincount(labels[indices], minlength=classes).tolist()
        assert all(abs(t - len(indices) * c / n) < 1 and t <= c for t, c in zip(taken, counts, strict=True))
        assert labels[indices].tolist() == sorted(labels[indices].tolist())  # class after class
    assert len(indices) == max(1, round(fraction * n))
    missing = sorted(set(labels.tolist()) - set(labels[indices].tolist()))
    assert bool(missing) == any(f"get none of the {len(indices)} samples" in remark for remark in selection.remarks)


@pytest.mark.parametrize("algorithm", FROM_OUTPUTS)
def test_the_whole_budget_returns_everything(algorithm: str) -> None:
    candidates = make(30, 4, models=2)
    for balanced in (True, False):
        indices = select(algorithm, candidates, fraction=1, balanced=balanced).indices_K
        assert sorted(indices.tolist()) == list(range(30))


@pytest.mark.parametrize("algorithm", FROM_OUTPUTS)
def test_same_seed_same_selection_whatever_the_global_generator(algorithm: str) -> None:
    candidates = make(60, 3, models=2)
    chosen = []
    for state in (1, 2):
        torch.manual_seed(state)
        selection = select(algorithm, candidates, fraction=0.2, seed=7)
        chosen.append((selection.indices_K.tolist(), selection.weights_K.tolist()))
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("algorithm", DRAWN)
def test_another_seed_draws_another_subset(algorithm: str) -> None:
    candidates = make(60, 3, models=2)
    assert len({tuple(select(algorithm, candidates, fraction=0.2, seed=s).indices_K.tolist()) for s in range(4)}) == 4


@pytest.mark.parametrize("algorithm", EXACT)
@settings(max_examples=8)
@given(seed=st.integers(0, 999), balanced=st.booleans())
def test_the_order_of_the_rows_does_not_matter(algorithm: str, seed: int, balanced: bool) -> None:
    # Catches per-class index mix-ups. Ties go by index, so forgetting counts are distinct, and class sizes odd: in an
    # even class two samples are equally close to the median (moderate).
    labels = torch.tensor([0] * 15 + [1] * 11 + [2] * 9)
    candidates = make(35, 3, 5, models=2, seed=seed, labels=labels)
    distinct = torch.arange(35.0)[torch.randperm(35, generator=torch.Generator().manual_seed(seed))]
    candidates = Candidates(
        labels_N=candidates.labels_N,
        num_classes=3,
        outputs=candidates.outputs,
        forgetting_N=distinct,
        scores_N=candidates.scores_N,
    )
    order = torch.randperm(35, generator=torch.Generator().manual_seed(seed + 1))
    # Medoids tie as soon as a cluster is a pair (each would serve both), so only the first of each group is compared.
    fraction = 0.01 if algorithm in {"craig", "facility_location"} else 0.3
    plain = select(algorithm, candidates, fraction=fraction, balanced=balanced)
    shuffled = select(algorithm, permuted(candidates, order), fraction=fraction, balanced=balanced)
    if algorithm == "moderate" and not balanced:  # one median per class ties at 0
        assert set(order[shuffled.indices_K].tolist()) == set(plain.indices_K.tolist())
    else:
        assert order[shuffled.indices_K].tolist() == plain.indices_K.tolist()
        torch.testing.assert_close(shuffled.weights_K, plain.weights_K, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", EXACT)
def test_balanced_classes_do_not_influence_each_other(algorithm: str) -> None:
    labels = torch.tensor([0] * 20 + [1] * 20)
    both = make(40, 3, models=2, labels=labels)
    alone = Candidates(
        labels_N=labels[:20],
        num_classes=3,
        forgetting_N=None if both.forgetting_N is None else both.forgetting_N[:20],
        outputs=[Outputs(logits_NC=o.logits_NC[:20], features_ND=o.features_ND[:20]) for o in both.outputs],
        scores_N=None if both.scores_N is None else both.scores_N[:20],
    )
    first = select(algorithm, both, fraction=0.25).indices_K[:5]
    assert first.tolist() == select(algorithm, alone, fraction=0.25).indices_K.tolist()


@pytest.mark.parametrize("algorithm", FROM_OUTPUTS)
@pytest.mark.parametrize("constant", ["features", "logits", "everything"])
def test_constant_and_duplicate_rows_give_distinct_picks(algorithm: str, constant: str) -> None:
    candidates = one_class(12, models=2)
    outputs = [
        Outputs(
            logits_NC=o.logits_NC if constant == "features" else o.logits_NC[:1].expand(12, -1),
            features_ND=o.features_ND if constant == "logits" else o.features_ND[:1].expand(12, -1),
        )
        for o in candidates.outputs
    ]
    same = Candidates(
        labels_N=candidates.labels_N,
        num_classes=4,
        outputs=outputs,
        forgetting_N=torch.zeros(12),
        scores_N=torch.zeros(12),
    )
    selection = select(algorithm, same, fraction=0.5)
    assert len(selection.indices_K.unique()) == 6
    assert bool(selection.weights_K.isfinite().all())
    assert float(selection.weights_K.sum()) > 0
    if constant == "everything" and algorithm in {
        "grand",
        "el2n",
        "uncertainty",
        "forgetting",
        "scores",
        "moderate",
        "prototypes",
        "craig",
        "facility_location",
    }:
        assert selection.indices_K.tolist() == list(range(6))  # ties by lowest index


@pytest.mark.parametrize("algorithm", ["craig", "facility_location", "k_center", "gradmatch"])
def test_a_duplicate_of_a_pick_is_not_the_next_pick(algorithm: str) -> None:
    base = one_class(10, 8)
    twice = torch.arange(10).repeat(2)
    picked = select(
        algorithm, permuted(base, twice), fraction=0.2, **({"lam": 0.0} if algorithm == "gradmatch" else {})
    ).indices_K
    assert len((picked % 10).unique()) == 4


@pytest.mark.parametrize("algorithm", [name for name in FROM_OUTPUTS if requirements(name, 0.3).models == 1])
def test_a_single_class_problem_has_no_gradient_and_still_a_result(algorithm: str) -> None:
    candidates = one_class(10, classes=1)  # C = 1: softmax is 1, every gradient is zero
    options = {"clusters": 1} if algorithm == "prototypes" else {}
    selection = select(algorithm, candidates, fraction=0.3, **options)
    assert len(selection.indices_K.unique()) == 3
    assert float(selection.weights_K.sum()) > 0


@CHEAP
@given(seed=st.integers(0, 999), n=st.integers(1, 40), fraction=st.floats(0.01, 1), balanced=st.booleans())
def test_craig_weights_sum_to_the_number_of_candidates(seed: int, n: int, fraction: float, balanced: bool) -> None:
    candidates = make(n, 3, seed=seed)
    selection = select("craig", candidates, fraction=fraction, balanced=balanced)
    chosen = candidates.labels_N[selection.indices_K].unique()  # a class without a pick has nobody to stand for it
    assert float(selection.weights_K.sum()) == (int(torch.isin(candidates.labels_N, chosen).sum()) if balanced else n)


@pytest.mark.parametrize("algorithm", ["el2n", "grand", "uncertainty"])
@CHEAP
@given(cut=st.integers(1, 29))
def test_scores_do_not_depend_on_how_the_pass_was_batched(algorithm: str, cut: int) -> None:
    candidates = make(30, 3, dtype=torch.float32)
    parts = [permuted(candidates, rows) for rows in (torch.arange(cut), torch.arange(cut, 30))]
    scores = [select(algorithm, part, fraction=1).scores_N for part in [candidates, *parts]]
    assert scores[0] is not None
    torch.testing.assert_close(scores[0], torch.cat([s for s in scores[1:] if s is not None]), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "algorithm",
    [
        "herding",
        "graph_cut",
        "gradmatch",
        "craig",
        "facility_location",
        "k_center",
        "glister",
        "moderate",
        "prototypes",
        "grand",
    ],
)
@settings(max_examples=6)
@given(seed=st.integers(0, 999), dtype=st.sampled_from([torch.float32, torch.float64]), balanced=st.booleans())
def test_of_equal_samples_the_lowest_is_picked_first(
    algorithm: str, seed: int, dtype: torch.dtype, balanced: bool
) -> None:
    """Rows of a product round differently, which used to decide."""
    base = make(13, 2, 37, seed=seed, dtype=dtype)
    origin = torch.arange(13).repeat(5)[torch.randperm(65, generator=torch.Generator().manual_seed(seed))]
    picked = select(algorithm, permuted(base, origin), fraction=0.4, balanced=balanced).indices_K.tolist()
    for row in range(13):
        twins = (origin == row).nonzero().flatten().tolist()
        taken = [pick for pick in picked if pick in twins]
        assert taken == twins[: len(taken)]


@pytest.mark.parametrize("algorithm", ["herding", "graph_cut", "gradmatch"])
def test_distinct_samples_are_picked_in_the_order_of_the_greedy(algorithm: str) -> None:
    """Samples that agree only in the few columns that are looked at first are no twins."""
    candidates = one_class(30, 64)
    candidates.outputs[0].features_ND[:, ::4] = 0.0
    plain = select(algorithm, candidates, fraction=0.4).indices_K.tolist()
    order = torch.arange(29, -1, -1)
    assert [
        29 - pick for pick in select(algorithm, permuted(candidates, order), fraction=0.4).indices_K.tolist()
    ] == plain
