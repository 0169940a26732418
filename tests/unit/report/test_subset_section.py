"""What the stored scores of a subset are called."""

import numpy as np
import pytest
import torch

from lipt.flow.reporting.subset import _histogram, score_name
from lipt.selection import Candidates, Outputs, select


@pytest.mark.parametrize(
    ("algorithm", "options", "name"),
    [
        ("ccs", {}, "EL2N"),
        ("ccs", {"score": "grand"}, "GraNd"),
        ("auto", {}, "EL2N"),
        ("el2n", {}, "EL2N"),
        ("grand", {}, "GraNd"),
        ("uncertainty", {"measure": "margin"}, "1 − first + second probability"),
    ],
)
def test_scores_carry_the_name_of_what_was_measured(algorithm, options, name):
    """And not that of the algorithm which spreads its budget over them."""
    outputs = Outputs(logits_NC=torch.randn(40, 2), features_ND=torch.randn(40, 3))
    candidates = Candidates(labels_N=torch.arange(40) % 2, num_classes=2, outputs=[outputs])
    provenance = select(algorithm, candidates, fraction=0.05, **options).provenance
    assert score_name(provenance["algorithm"], provenance["options"]) == name


def test_the_score_that_needs_a_trajectory_has_a_name_too():
    assert score_name("ccs", {"score": "aum"}) == "negative AUM (area under the margin)"


@pytest.mark.parametrize("steps", [1, 4, 40])
def test_scores_that_are_nearly_equal_have_a_histogram_too(steps):
    """The next float32 of a model that is sure of nothing."""
    scores_N = np.float32(2.25) + np.arange(steps + 1, dtype=np.float32) * np.spacing(np.float32(2.25))
    found = _histogram(np.append(scores_N, np.float32("nan")), np.arange(steps + 2) % 2 == 0)
    assert found is not None
    assert (sum(found.kept), sum(found.dropped)) == (steps // 2 + 1, (steps + 1) // 2)
    assert found.edges == sorted(set(found.edges))


@pytest.mark.parametrize("scores", [[2.0, 2.0], [2.0, np.nextafter(2.0, 3)], [np.nan, np.nan]])
def test_equal_scores_have_none(scores):
    assert _histogram(np.array(scores), np.array([True, False])) is None
