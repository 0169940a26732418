"""A model that is nearly certain of every sample: in float32 the squares of its gradients would be 0."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lipt.selection import Candidates, Outputs, select


def certain(margin: float, dtype: torch.dtype) -> Candidates:
    """The other classes have probabilities around exp(-margin)."""
    g = torch.Generator().manual_seed(0)
    labels_N = torch.arange(48) % 4
    logits_NC = torch.randn(48, 4, generator=g, dtype=torch.float64) - margin
    logits_NC[torch.arange(48), labels_N] = 0
    outputs = Outputs(logits_NC=logits_NC.to(dtype), features_ND=torch.randn(48, 5, generator=g).to(dtype))
    return Candidates(labels_N=labels_N, num_classes=4, outputs=[outputs])


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("algorithm", ["craig", "glister"])
def test_the_picks_are_those_of_float64(algorithm: str, balanced: bool) -> None:
    def picks(dtype: torch.dtype) -> Tensor:
        return select(algorithm, certain(60, dtype), k=12, balanced=balanced).indices_K

    assert torch.equal(picks(torch.float32), picks(torch.float64))
