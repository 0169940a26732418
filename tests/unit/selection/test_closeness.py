"""Float32 samples that are equal or close, far from the others: inner products do not tell them apart."""

from __future__ import annotations

import pytest
import torch
from selection_samples import dense_gradients, medoids
from torch import Tensor

from lipt.selection import Candidates, select
from lipt.selection.inputs.gradients import last_layers


def far_clusters(n: int = 600, d: int = 64) -> Tensor:
    """Two clusters (n, d), float32, that are 3,500 times as far from each other as their samples."""
    g = torch.Generator().manual_seed(0)
    away_D = 100 * torch.nn.functional.normalize(torch.randn(d, generator=g), dim=0)
    features_ND = 0.0025 * torch.randn(n, d, generator=g)
    features_ND[n // 2 :] += away_D
    return features_ND


def copies(seed: int) -> Candidates:
    """200 copies of a sample, and 100 others, closer together than to it; float32, all of one class."""
    g = torch.Generator().manual_seed(seed)
    few_FD = 0.1 * torch.randn(100, 16, generator=g)
    features_ND = torch.cat([100 * torch.randn(1, 16, generator=g).expand(200, 16), few_FD])
    few_FC = torch.tensor([4.0, 0, 0]) + torch.randn(100, 3, generator=g)
    logits_NC = torch.cat([torch.randn(1, 3, generator=g).expand(200, 3) - torch.tensor([20.0, 0, 0]), few_FC])
    order_N = torch.randperm(300, generator=g)
    return Candidates.of([0] * 300, features=features_ND[order_N], logits=logits_NC[order_N])


def in_float64(candidates: Candidates) -> Candidates:
    only = candidates.outputs[0]
    return Candidates.of(candidates.labels_N, features=only.features_ND.double(), logits=only.logits_NC.double())


@pytest.mark.parametrize("initial", [[], [5, 400]])
def test_k_center_sees_distances_within_far_clusters(initial: list[int]) -> None:
    features_ND = far_clusters()
    distances_NN = torch.cdist(features_ND.double(), features_ND.double())
    # The sample closest to the mean has the smallest sum of squares.
    picked = [*initial] or [int(distances_NN.square().sum(1).argmin())]
    while len(picked) < 30:
        picked.append(int(distances_NN[picked].amin(0).argmax()))
    k = 30 - len(initial)
    found_K = select("k_center", Candidates.of([0] * 600, features=features_ND), k=k, initial=initial).indices_K
    assert found_K.tolist() == picked[-k:]


@pytest.mark.parametrize("greedy", ["lazy", "sparse"])
def test_facility_location_sees_distances_within_far_clusters(greedy: str) -> None:
    features_ND = far_clusters(200)
    picked_K = select(
        "facility_location",
        Candidates.of([0] * 200, features=features_ND),
        k=20,
        metric="euclidean",
        greedy=greedy,
        neighbours=200,
    ).indices_K
    features_ND = features_ND.double()
    assert picked_K.tolist() == medoids(torch.cdist(features_ND, features_ND).fill_diagonal_(0), 20)


@pytest.mark.parametrize("algorithm", ["craig", "facility_location"])
@pytest.mark.parametrize("limit", [16384, 10])
@pytest.mark.parametrize("seed", range(3))
def test_copies_of_a_sample_are_not_picked_again(
    seed: int, limit: int, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lipt.selection.algorithms.submodular.DENSE_LIMIT", limit)
    candidates, options = copies(seed), {"metric": "euclidean"} if algorithm == "facility_location" else {}
    precise = in_float64(candidates)
    vectors = precise.outputs[0].features_ND if algorithm == "facility_location" else dense_gradients(precise)
    picked_K = select(algorithm, candidates, k=30, **options).indices_K
    assert picked_K.tolist() == medoids((vectors[:, None] - vectors).norm(dim=2), 30)


def test_squared_distances_of_close_gradients_keep_their_digits() -> None:
    g = torch.Generator().manual_seed(0)
    one_X, logits_C = 30 * torch.randn(1, 12, generator=g), torch.randn(1, 5, generator=g)
    spread_N1 = torch.tensor([0, 0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2])[:, None]
    candidates = Candidates.of(
        [0] * 7,
        features=one_X * (1 + spread_N1 * torch.randn(7, 12, generator=g)),
        logits=logits_C + spread_N1 * torch.randn(7, 5, generator=g),
    )
    everyone_N = torch.arange(7)
    (layer,) = last_layers(candidates, everyone_N)
    squares_NN = layer.squares_RC(everyone_N, everyone_N)
    vectors = (layer.delta_NC.double()[:, :, None] * layer.features_NE.double()[:, None]).flatten(1)
    torch.testing.assert_close(squares_NN.double(), (vectors[:, None] - vectors).square().sum(2), rtol=1e-2, atol=0)
    assert torch.equal(squares_NN, squares_NN.T)
