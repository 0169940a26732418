"""Candidates that cannot be, lack something, or have outputs of different precision."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from selection_samples import make

from lipt.errors import RunError, UsageError
from lipt.selection import Candidates, Outputs, Trajectory, requirements, select

LABELS = torch.tensor([0, 0, 1, 1, 1, 2])


def broken(what: str, value: float, sample: int = 7) -> Candidates:
    candidates = make(20, 3, 4, models=2)
    tensor = getattr(candidates.outputs[1], what).clone()
    tensor[sample, 1] = value
    outputs = {
        "logits_NC": candidates.outputs[1].logits_NC,
        "features_ND": candidates.outputs[1].features_ND,
        what: tensor,
    }
    return Candidates(labels_N=candidates.labels_N, num_classes=3, outputs=[candidates.outputs[0], Outputs(**outputs)])


@pytest.mark.parametrize(
    "algorithm", ["herding", "k_center", "graph_cut", "facility_location", "moderate", "prototypes", "craig"]
)
def test_features_whose_squares_overflow_are_refused(algorithm: str) -> None:
    """In float32 1e20 squared is infinite: herding returned the same sample twice, in silence."""
    candidates = make(20, 3, dtype=torch.float32)
    candidates.outputs[0].features_ND[7, 1] = -1e20
    with pytest.raises(RunError, match=r"features of candidate sample 7, model 0, reach 1e\+20.*\n.*or use float64"):
        select(algorithm, candidates, fraction=0.5)
    double = make(20, 3)
    double.outputs[0].features_ND[7, 1] = 1e20
    assert len(select(algorithm, double, fraction=0.5).indices_K.unique()) == 10


def test_models_and_validation_of_different_precision() -> None:
    whole = make(40, 3, models=2)
    first, second = whole.outputs
    single = Outputs(logits_NC=second.logits_NC.float(), features_ND=second.features_ND.float())
    half = Outputs(logits_NC=first.logits_NC, features_ND=first.features_ND.float())
    mixed = Candidates(labels_N=whole.labels_N, num_classes=3, outputs=[half, single])
    for algorithm in ("glister", "gradmatch", "craig", "grand", "herding", "dual"):
        assert len(select(algorithm, mixed, fraction=0.3).indices_K.unique()) == 12, algorithm
    one, held_out = (make(40, 3, dtype=dtype) for dtype in (torch.float32, torch.float64))
    for candidates, validation in ((one, held_out), (held_out, one)):
        assert len(select("glister", candidates, fraction=0.3, validation=validation).indices_K.unique()) == 12


def test_missing_inputs_say_what_to_do() -> None:
    bare = Candidates(labels_N=LABELS, num_classes=3)
    with pytest.raises(UsageError, match=r"at least 1 model.*\n.*score the candidates first"):
        select("el2n", bare, fraction=0.5)
    with pytest.raises(
        UsageError, match=r"dual needs a trajectory, or the outputs of .*; there is 1\n.*with more models"
    ):
        select("dual", Candidates.of(LABELS, logits=torch.randn(len(LABELS), 3)), fraction=0.5)
    features = Candidates.of(LABELS, features=torch.zeros(len(LABELS), 5))
    with pytest.raises(UsageError, match=r"ccs, which auto takes at this share, needs the logits.*\n.*none: .*herding"):
        select("auto", features, fraction=0.01)
    with pytest.raises(UsageError, match="record a trajectory"):
        select("forgetting", bare, fraction=0.5)
    with pytest.raises(UsageError, match="no candidates"):
        select("random", Candidates(labels_N=LABELS[:0], num_classes=3), fraction=0.5)


def test_validation_must_fit_the_candidates() -> None:
    with pytest.raises(UsageError, match="same models"):
        select("glister", make(20, 3, 4), fraction=0.5, validation=make(20, 3, 5))
    with pytest.raises(UsageError, match="same models"):
        select("glister", make(20, 3, 4, models=2), fraction=0.5, validation=make(20, 3, 4))
    with pytest.raises(UsageError, match="validation set is empty"):
        select("glister", make(20, 3, 4), fraction=0.5, validation=make(0, 3, 4))
    with pytest.raises(RunError, match="validation sample 7, model 1"):
        select("glister", make(20, 3, 4, models=2), fraction=0.5, validation=broken("logits_NC", torch.nan))


@pytest.mark.parametrize(("what", "name"), [("logits_NC", "logits"), ("features_ND", "features")])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("algorithm", ["grand", "gradmatch", "ccs", "herding"])
def test_values_that_are_not_finite_name_the_sample(algorithm: str, what: str, name: str, value: float) -> None:
    if not getattr(requirements(algorithm, 0.5), name):  # not looked at
        whole = select(algorithm, make(20, 3, 4, models=2), fraction=0.5)
        assert torch.equal(select(algorithm, broken(what, value), fraction=0.5).indices_K, whole.indices_K)
        return
    with pytest.raises(RunError, match=f"{name} of candidate sample 7, model 1"):
        select(algorithm, broken(what, value), fraction=0.5)


@pytest.mark.parametrize("value", [torch.nan, -1.0, -torch.inf])
def test_impossible_forgetting_counts_name_the_sample(value: float) -> None:
    counts = torch.tensor([0.0, 1, torch.inf, value, 0, 0])
    with pytest.raises(RunError, match="sample 3"):
        select("forgetting", Candidates(labels_N=LABELS, num_classes=3, forgetting_N=counts), fraction=0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels_N": None, "num_classes": 3}, "there are no labels"),
        ({"labels_N": LABELS.float(), "num_classes": 3}, "labels must be integers, not torch.float32"),
        ({"labels_N": LABELS[None], "num_classes": 3}, "labels must be one class number per sample, (N,), not (1, 6)"),
        ({"labels_N": LABELS.to_sparse(), "num_classes": 3}, "labels: a sparse tensor"),
        ({"labels_N": LABELS, "num_classes": 3, "outputs": None}, "outputs hold a NoneType, not lipt.Outputs"),
        ({"labels_N": LABELS, "num_classes": 3, "outputs": torch.zeros(6, 3)}, "outputs hold a Tensor"),
        ({"labels_N": LABELS, "num_classes": 3, "outputs": [torch.zeros(6, 3)]}, "outputs hold a Tensor"),
        ({"labels_N": LABELS, "num_classes": 3, "outputs": make(6, 3).outputs[0]}, "outputs are those of one model"),
        ({"labels_N": LABELS, "num_classes": 3, "stored": make(6, 3).outputs[0]}, "stored is of type Outputs, not"),
        ({"labels_N": LABELS, "num_classes": 3, "trajectories": [LABELS]}, "trajectories hold a list, not a"),
        ({"labels_N": LABELS, "num_classes": 3, "scores_N": ["a"] * 6}, "scores: values of type <U1, not numbers"),
        ({"labels_N": LABELS, "num_classes": 2}, "label 2 of sample 5 is outside 0..1"),
        ({"labels_N": LABELS - 1, "num_classes": 3}, "label -1 of sample 0"),
        (
            {"labels_N": LABELS, "num_classes": 3, "forgetting_N": torch.zeros(5)},
            "forgetting counts have shape (5,), expected (6,)",
        ),
        ({"labels_N": LABELS, "num_classes": 3, "outputs": make(7, 3).outputs}, "logits of model 0"),
        ({"labels_N": LABELS, "num_classes": 3, "outputs": make(6, 4).outputs}, "logits of model 0"),
    ],
)
def test_candidates_that_do_not_fit_together(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Candidates(**arguments)


def test_the_constructor_takes_what_the_other_ways_take() -> None:
    """Arrays, lists, one trajectory, and tensors that need gradients, which a selection ignores."""
    logits_NC, features_ND = torch.randn(6, 3), torch.randn(6, 4)
    p_NT, scores_N = torch.rand(6, 5), torch.rand(6)
    trajectory = Trajectory(p_NT=p_NT, error_NT=p_NT, margin_NT=p_NT)
    wanted = Candidates.of(
        LABELS, logits=logits_NC, features=features_ND, trajectories=trajectory, forgetting=scores_N, scores=scores_N
    )
    for form in (lambda tensor: tensor.numpy(), lambda tensor: tensor.clone().requires_grad_()):
        found = Candidates(
            labels_N=LABELS.int().numpy(),
            num_classes=3,
            outputs=[Outputs(logits_NC=form(logits_NC), features_ND=form(features_ND))],
            trajectories=trajectory,
            forgetting_N=form(scores_N),
            scores_N=form(scores_N),
        )
        assert found == wanted
        for algorithm in ("scores", "forgetting", "grand"):
            assert select(algorithm, found, fraction=0.5) == select(algorithm, wanted, fraction=0.5)
    listed = Candidates(labels_N=LABELS.tolist(), num_classes=3, scores_N=[1.0] * 6)
    assert listed == Candidates.of(LABELS, num_classes=3, scores=[1.0] * 6)


@pytest.mark.parametrize("given", [{"num_classes": 3}, {"logits": torch.zeros(6, 3)}])
def test_labels_that_count_from_1_are_told_so(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"outside 0..2\n  -> the classes seem to be numbered from 1.* labels - 1"):
        Candidates.of(LABELS + 1, **given)
    with pytest.raises(UsageError, match=r"outside 0..2\n  -> give the network one output per class"):
        Candidates.of([0, 1, 3], num_classes=3)


def test_one_output_for_two_classes_is_told_how_to_become_two() -> None:
    z = np.array([[0.5], [-2.0], [3.0]], dtype=np.float32)
    with pytest.raises(UsageError, match=r"outside 0..0\n  -> if the network has one output z .* np.hstack") as caught:
        Candidates.of([0, 1, 1], logits=z)
    assert "numbered" not in caught.value.remedy
    candidates = Candidates.of([0, 1, 1], logits=np.hstack([0 * z, z]))
    p = 1 / (1 + np.exp(-z[:, 0]))  # EL2N of a sigmoid: the error of both classes
    scores_N = select("el2n", candidates, k=1).scores_N
    assert scores_N is not None
    assert np.allclose(scores_N, np.sqrt(2) * np.abs(p - [0, 1, 1]), atol=1e-6)


@pytest.mark.parametrize("value", [np.array([3]), torch.tensor([3]), 3.0, np.float64(3)])
def test_a_number_in_another_form_is_told_how_to_pass_it(value: Any) -> None:
    options: Any = {"strata": value}
    with pytest.raises(UsageError, match=r"is not an integer\n  -> pass a plain number: strata=3$"):
        select("ccs", make(20, 3), fraction=0.5, **options)
    with pytest.raises(UsageError, match=r"num_classes must be .*\n  -> pass a plain number: num_classes=3$"):
        Candidates.of(LABELS, num_classes=value)
    options = {"strata": "three"}
    with pytest.raises(UsageError, match=r"is not an integer\n  -> lipt.describe"):
        select("ccs", make(20, 3), fraction=0.5, **options)
    assert select("ccs", make(20, 3), fraction=0.5, strata=np.int64(3)).options["strata"] == 3


def test_outputs_that_do_not_fit_together() -> None:
    with pytest.raises(UsageError, match="of the same N"):
        Outputs(logits_NC=torch.zeros(3, 2), features_ND=torch.zeros(4, 5))
    with pytest.raises(UsageError, match=r"features must be a matrix \(N, D\), not \(3,\)"):
        Candidates.of([0, 1, 0], features=torch.zeros(3))
    with pytest.raises(UsageError, match="floating point"):
        Outputs(logits_NC=torch.zeros(3, 2, dtype=torch.int64), features_ND=torch.zeros(3, 5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_outputs_are_computed_in_float32(dtype: torch.dtype) -> None:
    half = make(30, 3, dtype=dtype)
    single = Candidates(
        labels_N=half.labels_N,
        num_classes=3,
        outputs=[Outputs(logits_NC=o.logits_NC.float(), features_ND=o.features_ND.float()) for o in half.outputs],
    )
    for algorithm in ("grand", "gradmatch", "craig", "glister", "herding"):
        chosen = [select(algorithm, candidates, fraction=0.3).indices_K.tolist() for candidates in (half, single)]
        assert chosen[0] == chosen[1], algorithm


@pytest.mark.parametrize(
    "algorithm", ["el2n", "moderate", "herding", "k_center", "facility_location", "prototypes", "craig"]
)
def test_outputs_that_require_gradients_are_taken_as_numbers(algorithm: str) -> None:
    plain = make(60)
    (outputs,) = plain.outputs
    tracked = Candidates(
        labels_N=plain.labels_N,
        num_classes=plain.num_classes,
        outputs=[
            Outputs(
                logits_NC=outputs.logits_NC.clone().requires_grad_(),
                features_ND=outputs.features_ND.clone().requires_grad_(),
            )
        ],
    )
    assert select(algorithm, tracked, fraction=0.2) == select(algorithm, plain, fraction=0.2)


def test_candidates_are_equal_by_their_contents() -> None:
    candidates = make(20, 3, 4, models=2)
    assert candidates == make(20, 3, 4, models=2)
    assert candidates != make(20, 3, 4, models=1)
    assert candidates != broken("features_ND", 9.0)
    assert candidates not in (None, candidates.labels_N[0])
    assert candidates.outputs[0] == make(20, 3, 4, models=2).outputs[0] != candidates.outputs[1]
    trajectories = [Trajectory(p_NT=[[p]], error_NT=[[1.0]], margin_NT=[[1.0]]) for p in (0.25, 0.25, 0.5)]
    assert trajectories[0] == trajectories[1] != trajectories[2]
