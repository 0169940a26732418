"""Plain wrong arguments of the library: each is a UsageError that says what to do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from selection_samples import make
from torch import nn
from torch.utils.data import TensorDataset

import lipt
from lipt.errors import RunError, UsageError
from lipt.selection import Candidates, describe, requirements, score_dataset, select


@pytest.mark.parametrize(
    ("algorithm", "option"), [("glister", "eta"), ("gradmatch", "lam"), ("graph_cut", "lam"), ("dual", "c_d")]
)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 10**400], ids=["inf", "-inf", "huge"])
def test_an_option_is_a_finite_number(algorithm: str, option: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"option {option} of {algorithm}: .{{1,40}} is (not a finite number|out of)"):
        select(algorithm, make(40, 3), k=4, **{option: value})


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ({1: 2}, "notes cannot be stored: the name 1 is no text"),
        ({"a": {"b": 1, 2: 3}}, "notes cannot be stored: "),
        ([1], "notes are a list, not a mapping"),
        ("abc", "notes are a str, not a mapping"),
    ],
)
def test_notes_are_a_mapping_from_text(notes: Any, message: str) -> None:
    selection = select("random", make(20, 3), k=4)
    for fails in (lambda: select("random", make(20, 3), k=4, notes=notes), lambda: replace(selection, notes=notes)):
        with pytest.raises(UsageError, match=re.escape(message)):
            fails()
    assert replace(selection, notes={"epochs": np.int64(3)}).provenance["epochs"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": 1.0}, "logits must be a matrix (N, C), not (0,)"),
        ({"logits": 1.0}, "logits must be a matrix (N, C), not ()"),
        ({"features": torch.eye(2).to_sparse()}, "features: a sparse tensor"),
        ({"logits": torch.zeros(2, 2, device="meta")}, "logits are on the device meta: they have no values"),
        ({"logits": torch.eye(2).to(torch.float8_e5m2)}, "logits must be floating point of 16, 32 or 64 bits"),
        ({"logits": [[1, 2], [3, 4]]}, "logits must be floating point of 16, 32 or 64 bits, not int64"),
        ({"features": [[1, 2], [3, 4]]}, "features must be floating point of 16, 32 or 64 bits, not int64"),
        ({"forgetting": 3}, "forgetting counts have shape (), expected (2,)"),
        ({"num_classes": 4.0}, "num_classes must be an integer of 0 or more, not 4.0"),
        ({"num_classes": "4"}, "num_classes must be an integer of 0 or more, not '4'"),
    ],
)
def test_arguments_of_candidates(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Candidates.of([0, 1], **arguments)
    assert Candidates.of([0, 1], num_classes=np.int64(4)).num_classes == 4  # type: ignore[arg-type]


def test_arguments_in_the_wrong_order() -> None:
    with pytest.raises(UsageError, match="the algorithm first, then the candidates"):
        select(make(20, 3), "random", k=4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "message", "remedy"),
    [
        (None, "there are no labels", "without classes, zeros"),
        (np.eye(3)[[0, 2]], "labels must be integers, not torch.float64", "labels.argmax(1)"),
        (
            np.eye(3, dtype=int)[[0, 2]],
            "labels must be one class number per sample, (N,), not (2, 3)",
            "labels.argmax(1)",
        ),
        ([[0], [2]], "labels must be one class number per sample, (N,), not (2, 1)", "labels.flatten()"),
    ],
)
def test_labels_of_another_form_are_told_how_to_convert(labels: Any, message: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        Candidates.of(labels, features=np.eye(2))
    assert remedy in error.value.remedy


@pytest.mark.parametrize("labels", [[], (), np.array([])], ids=["list", "tuple", "array"])
def test_no_candidates_are_told_as_such(labels: Any) -> None:
    """numpy takes an empty list for floats, and the message would be about the type of the labels."""
    for candidates in (Candidates.of(labels), Candidates.of(labels, logits=np.zeros((0, 3)))):
        with pytest.raises(UsageError, match="there are no candidates to select from"):
            select("random", candidates, k=1)


def test_values_that_are_not_finite_may_be_the_users() -> None:
    with pytest.raises(RunError, match="features of candidate sample 1, model 0, are not finite") as error:
        select("herding", Candidates.of([0, 0], features=[[0.0, 1.0], [0.0, np.nan]]), k=1)
    assert error.value.remedy.startswith("repair or leave out these samples")


def test_the_outputs_of_candidates_are_a_list() -> None:
    only = make(20, 3)
    with pytest.raises(UsageError, match="outputs are those of one model, not a list"):
        replace(only, outputs=only.outputs[0])


def test_an_array_is_no_option() -> None:
    with pytest.raises(UsageError, match=r"option score of ccs: array.* is not one of el2n"):
        select("ccs", make(20, 3), k=4, score=np.array([0.1, 0.2]))  # type: ignore[call-overload]


@pytest.mark.parametrize("balanced", ["no", None, 0])
def test_balanced_is_true_or_false(balanced: Any) -> None:
    with pytest.raises(UsageError, match="balanced must be True or False"):
        select("random", make(20, 3), k=4, balanced=balanced)
    assert select("random", make(20, 3), k=4, balanced=np.bool_(False)).balanced is False  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [None, 3, [], ("ccs",)])
def test_names_of_algorithms(name: Any) -> None:
    for asks in (lambda: select(name, make(20, 3), k=4), lambda: describe(name), lambda: requirements(name, 0.1)):
        with pytest.raises(UsageError, match="unknown selection algorithm"):
            asks()


@pytest.mark.parametrize("algorithm", ["glister", "random"])
def test_validation_samples_are_candidates(algorithm: str) -> None:
    with pytest.raises(UsageError, match=r"validation samples are a ndarray, not lipt.Candidates"):
        select(algorithm, make(20, 3), k=4, validation=np.zeros(3))  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ["random", "auto", "gradmatch"])
def test_validation_samples_are_for_algorithms_that_use_them(algorithm: str) -> None:
    with pytest.raises(UsageError, match="takes no validation samples"):
        select(algorithm, make(20, 3), k=4, validation=make(10, 3, seed=1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": None}, "the model is of type NoneType, not a torch.nn.Module"),
        ({"model": [None]}, "the model is of type NoneType, not a torch.nn.Module"),
        ({"model": "net"}, "the model is of type str, not a torch.nn.Module"),
        ({"batch_size": 0}, "batch_size must be an integer of 1 or more, not 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer of 1 or more, not 2.5"),
        ({"num_workers": -1}, "num_workers must be an integer of 0 or more, not -1"),
        ({"device": "nope"}, "cannot compute on device 'nope'"),
        ({"device": "meta"}, "cannot compute on device 'meta'"),
    ],
)
def test_arguments_of_score_dataset(arguments: dict[str, Any], message: str) -> None:
    dataset, model = TensorDataset(torch.zeros(6, 4), torch.zeros(6, dtype=torch.int64)), nn.Linear(4, 3)
    with pytest.raises(UsageError, match=re.escape(message)):
        score_dataset(**({"model": model, "dataset": dataset} | arguments))
    assert model.weight.device.type == "cpu"


@pytest.mark.parametrize("count", [2.5, 0, "3", True])
def test_the_size_of_an_epoch_of_a_sampler(count: Any) -> None:
    with pytest.raises(UsageError, match="num_samples must be an integer of 1 or more"):
        select("random", make(20, 3), k=4).sampler(count)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (None, None, "config is a NoneType"),
        (3, None, "config is a int"),
        ({}, 3, "changes are a int"),
        ("width", None, "config is 'width': neither settings nor a file"),
    ],
)
def test_arguments_of_a_run(config: Any, changes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lipt.run(config, changes)


@pytest.mark.parametrize("lacks", ["logits", "features"])
def test_blocks_without_an_output_that_is_needed(lacks: str) -> None:
    """`StoredOutputs` says by default that its blocks hold both."""
    whole = make(40, 3)

    def read(index: int) -> list[lipt.Outputs]:
        rows = slice(20 * index, 20 * index + 20)
        (outputs,) = whole.outputs
        part = replace(outputs, logits_NC=outputs.logits_NC[rows], features_ND=outputs.features_ND[rows])
        return [part.without(logits=lacks == "logits", features=lacks == "features")]

    stored = lipt.StoredOutputs(models=1, sizes=[20, 20], read=read)
    candidates = Candidates(labels_N=whole.labels_N, num_classes=3, stored=stored)
    needs = {"logits": ["el2n", "grand", "craig"], "features": ["herding", "k_center", "moderate", "gradmatch"]}
    for algorithm in needs.pop(lacks):
        with pytest.raises(UsageError, match=f"block 0 of the stored outputs holds no {lacks}"):
            select(algorithm, candidates, k=4)
    (others,) = needs.values()
    assert len(select(others[0], candidates, k=4)) == 4  # it does not read what is missing
