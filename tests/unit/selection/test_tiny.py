"""Outputs so small that their squares underflow select what the same outputs select at an ordinary scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from selection_samples import make

from lipt.selection import Candidates, Outputs, select
from lipt.selection.numerics.norms import lengths

OF_FEATURES = [
    ("herding", {}),
    ("k_center", {}),
    ("graph_cut", {}),
    ("facility_location", {}),
    ("facility_location", {"metric": "euclidean"}),
    ("moderate", {}),
    ("moderate", {"variant": "authors"}),
    ("prototypes", {}),
]


def scaled(candidates: Candidates, power: int) -> Candidates:
    outputs = [replace(o, features_ND=o.features_ND * 2.0**power) for o in candidates.outputs]
    return replace(candidates, outputs=outputs)


@pytest.mark.parametrize(("algorithm", "options"), OF_FEATURES)
@settings(max_examples=6)
@given(seed=st.integers(0, 999), power=st.integers(60, 100), balanced=st.booleans())
def test_tiny_features_select_what_they_select_at_an_ordinary_scale(
    algorithm: str, options: dict[str, str], seed: int, power: int, balanced: bool
) -> None:
    ordinary = make(60, 2, 8, seed=seed, dtype=torch.float32)
    arguments: dict[str, Any] = {"fraction": 0.3, "balanced": balanced, **options}
    expected = select(algorithm, ordinary, **arguments).indices_K.tolist()  # type: ignore[arg-type]
    assert select(algorithm, scaled(ordinary, -power), **arguments).indices_K.tolist() == expected  # type: ignore[arg-type]


def test_a_tiny_row_among_ordinary_ones_keeps_its_direction() -> None:
    ordinary = make(40, 2, 8, dtype=torch.float32)
    features_ND = ordinary.outputs[0].features_ND.clone()
    features_ND[::3] *= 2.0**-80
    mixed = replace(ordinary, outputs=[replace(ordinary.outputs[0], features_ND=features_ND)])
    for algorithm in ("graph_cut", "facility_location"):  # by the cosine
        chosen = [select(algorithm, each, fraction=0.4).indices_K.tolist() for each in (ordinary, mixed)]
        assert chosen[0] == chosen[1], algorithm


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("el2n", {}), ("grand", {})]
    + [("uncertainty", {"measure": measure}) for measure in ("entropy", "margin", "least_confidence")],
)
def test_samples_that_are_almost_certain_still_rank(algorithm: str, options: dict[str, str]) -> None:
    logits = torch.tensor([[margin, 0.0] for margin in (80.0, 60.0, 70.0, 50.0)])  # |delta|^2 from 1e-43 to 1e-70
    outputs = [Outputs(logits_NC=logits, features_ND=torch.ones(4, 2))]
    candidates = Candidates(labels_N=torch.zeros(4, dtype=torch.int64), num_classes=2, outputs=outputs)
    assert select(algorithm, candidates, k=4, **options).indices_K.tolist() == [3, 1, 2, 0]  # type: ignore[arg-type]


def test_lengths_of_rows_of_any_scale_differ_by_a_power_of_two_exactly() -> None:
    """Their digits decide between two samples that are each other's nearest: both gain the same."""
    rows_ND = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    for power in (-60, -80, -110, 20):
        assert torch.equal(lengths(rows_ND * 2.0**power), lengths(rows_ND) * 2.0**power), power
    ordinary = make(60, 2, 8, seed=171, dtype=torch.float32)
    chosen = [select("facility_location", each, fraction=0.3).indices_K for each in (ordinary, scaled(ordinary, -60))]
    assert torch.equal(*chosen)


@pytest.mark.parametrize("algorithm", ["herding", "k_center"])
def test_tiny_features_of_twice_the_precision(algorithm: str) -> None:
    ordinary = make(60, 2, 8, seed=3, dtype=torch.float64)
    chosen = [select(algorithm, each, k=12).indices_K for each in (ordinary, scaled(ordinary, -1000))]
    assert torch.equal(*chosen)
