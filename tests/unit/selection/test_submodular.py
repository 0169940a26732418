"""CRAIG, facility location and graph cut against the naive greedy."""

from __future__ import annotations

import pytest
import torch
from selection_samples import dense_gradients, medoids, one_class, run
from torch import Tensor

from lipt.selection import Candidates, select


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


def test_nearly_parallel_features_are_told_apart() -> None:
    """The first medoid was any whose cosines add up to the largest sum but for a millionth."""
    h = 1 + 0.001 * torch.randn(50, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = h / h.norm(dim=1, keepdim=True)
    picked = select("facility_location", Candidates.of([0] * 50, features=h), k=10).indices_K.tolist()
    assert picked == medoids((unit[:, None] - unit).square().sum(2) / 2, 10)


@pytest.mark.parametrize("spread", [0.1, 1e-3, 1e-4])
def test_cosines_near_1_keep_their_digits(spread: float) -> None:
    """Collapsed features, in float32: with a spread of 1e-4 the medoids were hardly better than random."""
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(6, 16, generator=g)[torch.randint(6, (150,), generator=g)]
    features = centres + spread * torch.randn(150, 16, generator=g)
    features[7] = 0  # its distance to all others is 1
    unit = torch.nn.functional.normalize(features.double())
    distances = (unit[:, None] - unit).square().sum(2) / 2
    distances[7] = distances[:, 7] = 1

    def cost(picked: list[int]) -> float:
        return float(distances[picked].min(0).values.sum())

    picked = select("facility_location", Candidates.of([0] * 150, features=features), k=30).indices_K.tolist()
    expected = medoids(distances, 7)  # the rest are ties of the reference, which compares with the largest gain
    assert picked[:7] == expected
    exact = select("facility_location", Candidates.of([0] * 150, features=features.double()), k=30).indices_K.tolist()
    assert cost(picked) <= cost(exact) * 1.0001


@pytest.mark.parametrize("most", [16384, 10])
def test_when_all_directions_are_covered_the_lowest_indices_follow(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the matrix in memory and with rows on demand; before, rounding decided."""
    monkeypatch.setattr("lipt.selection.algorithms.submodular.DENSE_LIMIT", most)
    g = torch.Generator().manual_seed(1)
    which = torch.randint(20, (300,), generator=g)
    features = torch.randn(20, 16, generator=g)[which] * (0.5 + torch.rand(300, 1, generator=g))
    picked = select("facility_location", Candidates.of([0] * 300, features=features), k=40).indices_K.tolist()
    assert which[picked[:20]].unique().tolist() == list(range(20))
    assert picked[20:] == [index for index in range(300) if index not in picked[:20]][:20]


def test_rows_on_demand_give_the_same_medoids(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = one_class(60)
    kept = run("craig", candidates, 20)
    monkeypatch.setattr("lipt.selection.algorithms.submodular.DENSE_LIMIT", 10)
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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("algorithm", ["craig", "facility_location"])
def test_sparse_greedy_with_all_neighbours_is_the_exact_one(algorithm: str, seed: int) -> None:
    candidates = one_class(60, seed=seed)
    exact = run(algorithm, candidates, 25, greedy="lazy")
    sparse = run(algorithm, candidates, 25, greedy="sparse", neighbours=60)
    assert sparse.indices_K.tolist() == exact.indices_K.tolist()
    assert sparse.weights_K.tolist() == exact.weights_K.tolist()


def test_sparse_greedy_equals_the_naive_greedy_of_its_objective() -> None:
    candidates = one_class(50, seed=3)
    dense = dense_gradients(candidates)
    distances = torch.cdist(dense, dense).fill_diagonal_(0)
    near = distances.topk(6, largest=False)
    largest = float(near.values.max())
    known = torch.full_like(distances, largest).scatter(1, near.indices, near.values)  # row i: what can stand for i
    picked: list[int] = []
    for _ in range(20):
        costs = [
            float("inf") if j in picked else float(known[:, [*picked, j]].min(1).values.clamp_max(largest).sum())
            for j in range(50)
        ]
        before = float(known[:, picked].min(1).values.sum()) if picked else 50 * largest
        gains = [before - cost for cost in costs]
        picked.append(next(j for j, gain in enumerate(gains) if gain >= max(gains) * (1 - 1e-6)))
    assert run("craig", candidates, 20, greedy="sparse", neighbours=6).indices_K.tolist() == picked


def test_sparse_greedy_is_what_auto_does_with_many_and_comes_close(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = one_class(400, seed=1)
    dense = dense_gradients(candidates)
    distances = torch.cdist(dense, dense)
    exact = run("craig", candidates, 40)
    monkeypatch.setattr("lipt.selection.algorithms.submodular.SPARSE_LIMIT", 399)
    sparse = run("craig", candidates, 40)
    assert sparse.options["greedy"] == "auto"
    assert sparse.indices_K.tolist() != exact.indices_K.tolist()
    cost = {name: float(distances[each.indices_K].min(0).values.sum()) for name, each in (("s", sparse), ("e", exact))}
    assert cost["s"] <= 1.05 * cost["e"]
    assert sparse.weights_K.sum() == 400


def test_cluster_sizes_do_not_depend_on_their_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = one_class(90)
    whole = run("craig", candidates, 40).weights_K.tolist()
    monkeypatch.setattr("lipt.selection.numerics.medoids.BLOCK", 7)
    assert run("craig", candidates, 40).weights_K.tolist() == whole
