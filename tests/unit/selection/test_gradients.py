"""Gradients of the last layer and norms of errors, against autograd and plain formulas."""

from __future__ import annotations

import math

import pytest
import torch
from selection_samples import dense_gradients, everyone, make

from lipt.selection import Candidates, Outputs, select
from lipt.selection.inputs.gradients import error_norms, error_vectors, last_layers
from lipt.selection.numerics.norms import lengths


def test_factored_gradients_equal_autograd() -> None:
    candidates = make(12, 3, 5)
    (layer,), dense = last_layers(candidates, everyone(candidates)), dense_gradients(candidates)
    torch.testing.assert_close(layer.gram_BN(everyone(candidates)), dense @ dense.T)
    torch.testing.assert_close(layer.square_norms_N(), dense.square().sum(1))
    total_CE = layer.delta_NC.T @ layer.features_NE
    torch.testing.assert_close(total_CE.flatten(), dense.sum(0))
    torch.testing.assert_close(layer.dot_N(total_CE), dense @ dense.sum(0))


def test_gradients_of_several_models_are_stacked() -> None:
    candidates = make(9, 3, 4, models=2)
    dense = torch.cat([dense_gradients(candidates, 0), dense_gradients(candidates, 1)], 1) / 2**0.5
    layers = last_layers(candidates, everyone(candidates))
    torch.testing.assert_close(sum(layer.gram_BN(everyone(candidates)) for layer in layers), dense @ dense.T)


def test_gradients_can_be_computed_on_another_device() -> None:
    """The second device that every machine has is "meta"."""
    candidates, there = make(9, 3, 4, models=2), torch.device("meta")
    for layer in last_layers(candidates, everyone(candidates), device=there):
        assert layer.delta_NC.device == layer.features_NE.device == there


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


@pytest.mark.parametrize("classes", [2, 10, 15, 16, 40])
def test_error_norms_are_those_of_the_error_vectors_at_every_confidence(classes: int) -> None:
    g = torch.Generator().manual_seed(classes)
    logits = torch.randn(60, classes, generator=g)
    labels = torch.randint(classes, (60,), generator=g)
    logits[torch.arange(60), labels] += torch.arange(60) - 10.0  # errors down to e^-49, whose squares are 0 in float32
    delta = logits.double().softmax(1)
    delta[torch.arange(60), labels] = 0
    expected = (delta.square().sum(1) + delta.sum(1).square()).sqrt()
    norms = error_norms(logits, labels)
    assert float(norms.min()) < 1e-18
    torch.testing.assert_close(norms.double(), expected, rtol=3e-5, atol=0)
    torch.testing.assert_close(norms, lengths(error_vectors(logits, labels)), rtol=1e-5, atol=0)
    alone = torch.cat([error_norms(logits[i : i + 1], labels[i : i + 1]) for i in range(60)])
    assert norms.equal(alone)
