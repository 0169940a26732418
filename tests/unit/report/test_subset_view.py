"""What the stored scores of a subset are called."""

import pytest
import torch

from lipt.flow.subset_view import score_name
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
