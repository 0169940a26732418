"""Probabilities that are handed over as logits are noticed; real logits are not taken for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection import Candidates, Outputs, StoredOutputs, select

N, C = 400, 4
LABELS = [i % C for i in range(N)]


def logits(classes: int = C, scale: float = 3) -> Tensor:
    return scale * torch.randn(N, classes, generator=torch.Generator().manual_seed(0))


def held(values: Tensor) -> Candidates:
    """Candidates that `Candidates.of` has not seen."""
    outputs = Outputs(logits_NC=values, features_ND=values.new_empty(len(values), 0))
    labels_N = torch.arange(len(values)) % values.shape[1]
    return Candidates(labels_N=labels_N, num_classes=values.shape[1], outputs=[outputs])


P = logits().softmax(1)
MANY = logits(100).softmax(1)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (P, "are probabilities"),
        (P.half(), "are probabilities"),
        (P.bfloat16(), "are probabilities"),
        (P.double()[:1], "are probabilities"),
        ((100 * P).round() / 100, "are probabilities"),
        (((100 * P).round() / 100)[:3].half(), "are probabilities"),
        ((100 * MANY).round() / 100, "are probabilities"),
        (100 * P, "are percentages"),
        (100 * P[:1], "are percentages"),
        ((100 * P).round(), "are percentages"),
        ((1000 * P).round() / 10, "are percentages"),
    ],
)
def test_probabilities_are_noticed_as_soon_as_they_are_handed_over(values: Tensor, found: str) -> None:
    labels = torch.arange(len(values)) % values.shape[1]
    with pytest.raises(UsageError, match=rf"the logits of model 0 {found}.*\n.*hand over the outputs before the s"):
        Candidates.of(labels, logits=values)
    with pytest.raises(UsageError, match=f"the logits of the candidate samples, model 0, {found}"):
        select("el2n", held(values), k=1)


def small(classes: int, centre: float, spread: float) -> Tensor:
    return centre + spread * logits(classes, 1).tanh()


@pytest.mark.parametrize(
    "values",
    [
        logits().abs() + 0.01,
        small(2, 0.5, 0.3),  # a network of two classes with strong weight decay
        small(2, 0.9, 0.5),  # some are above 1
        small(2, 0.3, 0.5),  # some are below 0
        small(10, 0.25, 0.15),  # cosines of CLIP
        torch.zeros(N, C),  # a last layer of zeros
        torch.zeros(N, 1000),
        torch.full((N, C), 0.3),
        torch.rand(N, C, generator=torch.Generator().manual_seed(0)),  # a first try of the library
        logits().round().abs(),
        logits().log_softmax(1),
        P[:, :1],  # one class
        torch.cat([P[:-4], -P[-4:]]),
    ],
)
def test_real_logits_are_not_taken_for_probabilities(values: Tensor) -> None:
    labels = torch.arange(len(values)) % values.shape[1]
    for candidates in (Candidates.of(labels, logits=values), held(values)):
        assert len(select("el2n", candidates, k=4)) == 4


def test_the_rows_that_are_looked_at_are_spread_over_all() -> None:
    """The first rows alone add up to 1 by chance: the classes of a network without a bias, for black images."""
    values = logits(scale=0.1)
    values[:300] = 1 / C
    assert len(select("el2n", Candidates.of(LABELS, logits=values), k=4)) == 4


def test_each_remedy_gives_logits() -> None:
    expected = select("uncertainty", Candidates.of(LABELS, logits=logits()), k=40).indices_K
    percentages = 100 * P.double()
    for repaired in ((P.double() + 1e-12).log(), (percentages / 100 + 1e-12).log()):
        assert select("uncertainty", Candidates.of(LABELS, logits=repaired), k=40).indices_K.equal(expected)


def test_several_models_files_and_blocks(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model 1 are percentages"):
        Candidates.of(LABELS, logits=[logits(), 100 * P])
    np.save(tmp_path / "z.npy", P.numpy())
    with pytest.raises(UsageError, match="are probabilities"):
        Candidates.of(LABELS, logits=np.load(tmp_path / "z.npy", mmap_mode="r"))
    reads = []

    def read(index: int) -> list[Outputs]:
        reads.append(index)
        return list(held(100 * P).outputs)

    stored = StoredOutputs(models=1, sizes=[N], read=read, features=False)
    candidates = Candidates(labels_N=torch.tensor(LABELS), num_classes=C, stored=stored)
    assert not reads
    with pytest.raises(UsageError, match="are percentages"):
        select("el2n", candidates, k=4)
    assert reads == [0]


def test_an_algorithm_that_reads_no_logits_does_not_check_them() -> None:
    outputs = [Outputs(logits_NC=P, features_ND=logits())]
    assert len(select("herding", replace(held(P), outputs=outputs), k=4)) == 4
