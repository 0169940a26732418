"""The engine picks what the loops that it is timed against pick, and in the same order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from selection_samples import one_class, run

from benchmarks.factored import RIVALS
from benchmarks.loops import sample
from lipt.selection import Candidates, select
from lipt.selection.algorithms.geometry import farthest_first
from lipt.selection.algorithms.submodular import cut
from lipt.selection.numerics import shrinking


@pytest.mark.parametrize("algorithm", ["grand", "el2n", "moderate", "herding", "k_center", "graph_cut", "prototypes"])
def test_the_engine_picks_what_factored_numpy_picks(algorithm: str) -> None:
    candidates = one_class(200, d=12)
    (outputs,) = candidates.outputs
    arrays = (outputs.logits_NC.numpy(), candidates.labels_N.numpy(), outputs.features_ND.numpy())
    assert run(algorithm, candidates, 60).indices_K.tolist() == RIVALS[algorithm](*arrays, 60).tolist()


def test_facility_location_differs_from_factored_numpy_in_a_tie_alone() -> None:
    """Two samples that stand for nobody but each other gain the same, d being symmetric: the engine takes the lowest
    index, numpy goes by rounding. Neither has the larger objective."""
    (outputs,) = sample(1500, 10, 512).outputs
    features, labels = outputs.features_ND.double(), torch.zeros(1500, dtype=torch.int64)
    given = Candidates.of(labels, features=features, num_classes=1)
    ours = select("facility_location", given, k=150).indices_K.numpy()
    theirs = RIVALS["facility_location"](outputs.logits_NC.numpy(), labels.numpy(), features.numpy(), 150)
    assert [(int(a), int(b)) for a, b in zip(ours, theirs, strict=True) if a != b] == [(829, 1101)]
    unit = (features / features.norm(dim=1, keepdim=True)).numpy()
    distances = 1 - unit @ unit.T
    first, second = (distances[:, picks].min(1).sum() for picks in (ours, theirs))
    assert first == pytest.approx(second, rel=1e-12)
    before = distances[:, ours[: int(np.flatnonzero(ours != theirs)[0])]].min(1)
    gains = [np.maximum(before - distances[:, pick], 0) for pick in (829, 1101)]
    assert all(np.flatnonzero(gain > 1e-12).tolist() == [829, 1101] for gain in gains)


@pytest.mark.parametrize("greedy", [lambda x, k: cut(x.abs() / x.norm(dim=1, keepdim=True), k, 0.5), farthest_first])
@pytest.mark.parametrize("seed", range(3))
def test_few_competitors_change_no_pick(greedy: object, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(400, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[100:150] = x[:50]  # equal samples: the lowest index
    assert callable(greedy)
    everyone = greedy(x, 150)
    monkeypatch.setattr(shrinking, "SHARE", 0.0)
    for fewest in (1, 8, 50):
        monkeypatch.setattr(shrinking, "FEWEST", fewest)
        assert greedy(x, 150).tolist() == everyone.tolist()
    monkeypatch.setattr(shrinking, "FEWEST", 400)
    assert greedy(x, 150).tolist() == everyone.tolist()
    assert len(np.unique(everyone)) == 150


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fewest", [4, 256])
def test_farthest_first_takes_repeated_samples_last_and_in_their_order(
    dtype: torch.dtype, fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrinking, "FEWEST", fewest)
    for seed in range(8):
        g = torch.Generator().manual_seed(seed)
        distinct = torch.randn(40, 33, generator=g, dtype=dtype) * 10.0 ** (seed - 4)
        x = distinct[torch.randint(40, (120,), generator=g)]
        which = x.unique(dim=0, return_inverse=True)[1]
        count = int(which.max()) + 1
        picked = farthest_first(x, 100)
        assert len(which[picked[:count]].unique()) == count
        left = sorted(set(range(120)) - set(picked[:count].tolist()))
        assert picked[count:].tolist() == left[: 100 - count]
