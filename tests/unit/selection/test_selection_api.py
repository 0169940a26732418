"""The contract of `select`: arguments, errors, provenance."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from selection_samples import make, same

from lipt import __version__
from lipt.errors import LiptError, UsageError
from lipt.selection import ALGORITHMS, Candidates, Outputs, Requirements, Selection, Trajectory, requirements, select
from lipt.selection.registry import shares

OF_FEATURES = ["herding", "k_center", "graph_cut", "facility_location", "moderate", "prototypes"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_default_device_changes_nothing(algorithm: str) -> None:
    """As after `torch.set_default_device("cuda")`; on "meta" tensors have no contents."""
    recorded = Trajectory(p_NT=torch.rand(40, 3), error_NT=torch.rand(40, 3), margin_NT=torch.randn(40, 3))
    first, again = (replace(make(40, 3, 5), trajectories=[recorded]) for _ in range(2))
    with torch.device("meta"):
        found = select(algorithm, first, k=7)
    same(found, select(algorithm, again, k=7))


def test_requirements_say_what_to_compute() -> None:
    needs = {name: requirements(name, 0.01) for name in ALGORITHMS}
    for name in ("random", "stratified", "forgetting", "aum", "scores"):
        assert not needs[name].outputs, name
    for name in ("k_center", "facility_location", "graph_cut", "herding", "craig"):
        assert needs[name].initial, name
    assert needs["forgetting"] == Requirements(trajectory=True)
    assert needs["scores"] == Requirements(scores=True)
    assert needs["glister"] == Requirements(models=1, logits=True, features=True, validation=True)
    assert needs["moderate"] == Requirements(models=1, features=True, passes=2)
    assert requirements("moderate", 0.01, {"variant": "authors"}) == Requirements(models=1, features=True)
    assert needs["prototypes"] == Requirements(models=1, features=True)
    assert needs["dual"].models == 2
    by_score = {score: requirements("ccs", 0.01, {"score": score}) for score in ("el2n", "grand", "margin")}
    assert {score: (each.models, each.features) for score, each in by_score.items()} == {
        "el2n": (1, False),
        "grand": (1, True),
        "margin": (1, False),
    }
    assert requirements("ccs", 0.01, {"score": "forgetting"}) == requirements("forgetting", 0.01)
    assert requirements("ccs", 0.01, {"score": "scores"}) == requirements("scores", 0.01)


def test_arrays_are_not_candidates() -> None:
    scores: Any = np.zeros(3)
    with pytest.raises(UsageError, match=r"candidates are a ndarray, not lipt.Candidates"):
        select("ccs", scores, k=1)


@pytest.mark.parametrize("name", ["graph_cut", "craig", "gradmatch", "k_center", "prototypes", "facility_location"])
def test_what_surrounds_a_selection_does_not_change_it(name: str) -> None:
    """Autocast of a training loop, and another default type of torch."""
    candidates, options = make(120, 3, dtype=torch.float32), {"fraction": 0.2, "balanced": False}
    expected = select(name, candidates, **options)
    with torch.autocast("cpu", torch.bfloat16):
        assert select(name, candidates, **options) == expected
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = select(name, candidates, **options)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found == expected
    assert found.weights_K.dtype == torch.float32


def test_selection_records_how_it_was_made() -> None:
    selection = select("uncertainty", make(20, 3), fraction=0.5, seed=9, balanced=False, measure="margin")
    assert (selection.algorithm, selection.options, selection.seed) == ("uncertainty", {"measure": "margin"}, 9)
    assert (selection.fraction, selection.balanced) == (0.5, False)
    assert select("uncertainty", make(20, 3), fraction=0.5).options == {"measure": "entropy"}


def test_provenance_holds_everything_to_do_it_again() -> None:
    candidates = make(20, 3)
    selection = select("auto", candidates, fraction=0.5, seed=4, notes={"checkpoint": "sha256:0a1b", "epoch": 3})
    how = selection.provenance
    assert how["checkpoint"] == "sha256:0a1b"
    assert how["epoch"] == 3
    assert how["version"] == __version__
    again = select(
        how["algorithm"],
        candidates,
        fraction=how["fraction"],
        seed=how["seed"],
        balanced=how["balanced"],
        **how["options"],
    )
    assert torch.equal(again.indices_K, selection.indices_K)
    assert torch.equal(selection.labels_N, candidates.labels_N)
    assert selection.positions_N.tolist() == list(range(20))


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ({"seed": 3}, "note 'seed' is an entry of every provenance"),
        ({"when": object()}, "notes cannot be stored"),
        ({("a", 1): 2}, "notes cannot be stored"),
    ],
)
def test_notes_that_cannot_be_stored(notes: dict[Any, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        select("random", make(20, 3), fraction=0.5, notes=notes)


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("gradmach", {}, "did you mean 'gradmatch'"),
        ("EL2N", {}, "did you mean 'el2n'"),
        ("ccs", {"bta": 0.3}, "did you mean 'beta'"),
        ("el2n", {"beta": 0.3}, "takes no options"),
        ("auto", {"beta": 0.3}, "takes no options"),
        ("ccs", {"beta": "0.3"}, "'0.3' is not a finite number or null"),
        ("ccs", {"strata": 2.5}, "2.5 is not an integer"),
        ("ccs", {"strata": True}, "True is not an integer"),
        ("ccs", {"beta": float("nan")}, "is not a finite number"),
        ("ccs", {"beta": 1.0}, "beta must be in"),
        ("ccs", {"strata": 0}, "strata must be at least 1"),
        ("ccs", {"score": "easy"}, "is not one of el2n, grand, aum"),
        ("ccs", {"score": "forgetting"}, "forgetting counts are missing"),
        ("uncertainty", {"measure": "entropi"}, "is not one of entropy"),
        ("glister", {"eta": 1e300}, "option eta of glister: 1e+300 is out of range"),
        ("graph_cut", {"lam": 10**30}, "option lam of graph_cut: 1e+30 is out of range"),
        ("ccs", {"strata": 10**400}, "option strata of ccs: a number beyond 1e308 is out of range"),
        ("gradmatch", {"lam": -1}, "lam must not be negative"),
        ("glister", {"eta": -0.1}, "eta must not be negative"),
        ("glister", {"rounds": 0}, "rounds must be at least 1"),
        ("gradmatch", {"batch_size": 0}, "batch_size must be at least 1"),
        ("gradmatch", {"per": "sample"}, "is not one of class, class_gradient, batch"),
        ("craig", {"epsilon": 0.0}, "epsilon must be in"),
        ("graph_cut", {"lam": -0.1}, "lam must not be negative"),
        ("prototypes", {"clusters": 0}, "prototypes: clusters must be at least 1, not 0"),
        ("prototypes", {"keep": "medium"}, "is not one of hard, easy"),
        ("dual", {"window": 3}, "window must be between 2 and the number of models, 2"),
        ("dual", {"c_d": 0.0}, "must be positive"),
    ],
)
def test_wrong_options_are_usage_errors(algorithm: str, options: dict[str, Any], message: str) -> None:
    whole = make(20, 3, models=2)
    candidates = Candidates(labels_N=whole.labels_N, num_classes=3, outputs=whole.outputs)
    with pytest.raises(UsageError, match=re.escape(message)):
        select(algorithm, candidates, fraction=0.2, **options)


def many_classes() -> Candidates:
    return Candidates(labels_N=torch.arange(50_000) % 100, num_classes=100)


@pytest.mark.parametrize("algorithm", ["stratified", "auto"])
def test_class_budgets_add_up_and_classes_that_get_none_are_named(algorithm: str) -> None:
    """Each class rounded by itself gave 100 where 50 were asked for."""
    candidates = replace(make(50_000, 100, 2, labels=many_classes().labels_N), forgetting_N=None, scores_N=None)
    selection = select(algorithm, candidates, fraction=0.001)
    assert len(selection.indices_K) == 50
    assert torch.bincount(candidates.labels_N[selection.indices_K], minlength=100).tolist() == [1] * 50 + [0] * 50
    (remark,) = selection.remarks
    assert remark.startswith("50 of 100 classes get none of the 50 samples: classes 50, 51, 52, 53, 54 and 45 more")
    assert not select(algorithm, candidates, fraction=0.002).remarks


@pytest.mark.parametrize("algorithm", ["el2n", "ccs", "uncertainty"])
def test_scores_that_are_all_equal_are_told(algorithm: str) -> None:
    one_output = Candidates.of([0] * 8, logits=torch.arange(8.0)[:, None])
    assert select(algorithm, one_output, k=3).remarks == ("all samples have the score 0, so the scores choose nothing",)
    assert not select(algorithm, one_output, k=8).remarks
    assert not select("random", one_output, k=3).remarks


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12), data=st.data())
def test_largest_remainder_is_exact_and_fair(sizes: list[int], data: st.DataObject) -> None:
    sizes[0] += 1
    total = data.draw(st.integers(0, sum(sizes)))
    parts = shares(total, sizes)
    quotas = [total * size / sum(sizes) for size in sizes]
    assert sum(parts) == total
    assert all(abs(part - quota) < 1 and part <= size for part, quota, size in zip(parts, quotas, sizes, strict=True))


def test_a_number_instead_of_a_fraction() -> None:
    candidates = make(70, 3)
    selection = select("herding", candidates, k=20)
    assert len(selection.indices_K) == 20
    assert selection.fraction == 20 / 70
    again = select("herding", candidates, fraction=selection.provenance["fraction"])
    assert torch.equal(again.indices_K, selection.indices_K)
    assert len(select("random", candidates, k=70).indices_K) == 70


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({}, "no budget"),
        ({"n": 30}, "no budget"),
        ({"fraction": 0.5, "k": 10}, "both fraction and k are given"),
        ({"k": 0}, "k must be an integer from 1 to the number of candidates, 20, not 0"),
        ({"k": 21}, "k must be an integer from 1 to"),
        ({"k": 2.0}, "k must be an integer"),
        ({"k": True}, "k must be an integer"),
        ({"fraction": True}, "fraction must be in (0, 1]"),
        ({"fraction": "0.1"}, "fraction must be in (0, 1], not '0.1'"),
        ({"k": 2, "seed": 1.5}, "seed must be an integer"),
        ({"k": 2, "seed": 2**64}, "seed must be an integer of 64 bits"),
        ({"k": 2, "seed": None}, "seed must be an integer"),
    ],
)
def test_budgets_and_seeds_that_cannot_be(budget: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        select("random", make(20, 3), **budget)


def test_numpy_scalars_are_numbers() -> None:
    """As they come out of arrays, for example from a grid over options."""
    candidates = make(40, 3)
    plain = select("ccs", candidates, fraction=0.25, seed=3, beta=0.5, strata=4, notes={"epoch": 2})
    scalars = select(
        "ccs",
        candidates,
        fraction=np.float32(0.25),
        seed=np.int64(3),
        balanced=np.bool_(True),
        beta=np.float32(0.5),
        strata=np.int32(4),
        notes={"epoch": np.int64(2)},
    )
    same(scalars, plain)
    assert Selection.from_parquet(scalars.to_parquet(), origin="here").provenance == plain.provenance
    assert len(select("random", candidates, k=np.int64(5), seed=torch.tensor(1)).indices_K) == 5
    with pytest.raises(UsageError, match=r"option strata of ccs: 2.5 is not an integer"):
        select("ccs", candidates, fraction=0.25, strata=np.float64(2.5))


@pytest.mark.parametrize("algorithm", OF_FEATURES)
@pytest.mark.parametrize("power", [36, -36])
def test_the_scale_of_the_features_does_not_matter(algorithm: str, power: int) -> None:
    candidates = make(60, 3, dtype=torch.float32)
    (o,) = candidates.outputs
    scaled = Candidates(
        labels_N=candidates.labels_N,
        num_classes=3,
        outputs=[Outputs(logits_NC=o.logits_NC, features_ND=o.features_ND * 2.0**power)],
    )
    plain, other = (select(algorithm, each, fraction=0.3).indices_K.tolist() for each in (candidates, scaled))
    assert plain == other


@pytest.mark.parametrize("fraction", [0, -0.1, 1.01, float("nan")])
@pytest.mark.parametrize("algorithm", ["random", "auto"])
def test_fraction_outside_its_range(algorithm: str, fraction: float) -> None:
    with pytest.raises(UsageError, match="fraction must be in"):
        select(algorithm, make(20, 3), fraction=fraction)
    with pytest.raises(UsageError, match="fraction must be in"):
        requirements(algorithm, fraction)


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("ccs", {"scoer": "grand"}, "algorithm ccs has no option 'scoer'"),
        ("ccs", {"score": "nope"}, "option score of ccs: 'nope' is not one of"),
        ("auto", {"beta": 0.3}, "algorithm auto takes no options"),
    ],
)
def test_requirements_are_of_options_that_exist(algorithm: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        requirements(algorithm, 0.1, options)


def test_every_usage_error_is_a_lipt_error() -> None:
    with pytest.raises(LiptError):
        requirements("nothing like it", 0.1)
