"""Candidates from arrays: of numpy, of torch, in files."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from selection_samples import FROM_OUTPUTS, make, same

from lipt.errors import UsageError
from lipt.selection import Candidates, requirements, select
from lipt.selection.inputs.compressed import TopLogits

N, C, D = 60, 4, 6


def arrays(models: int = 2, dtype: type = np.float32) -> dict[str, Any]:
    whole = make(N, C, D, models=models)
    assert whole.forgetting_N is not None
    assert whole.scores_N is not None
    return {
        "labels": whole.labels_N.numpy(),
        "logits": [each.logits(slice(None)).numpy().astype(dtype) for each in whole.outputs],
        "features": [each.features_ND.numpy().astype(dtype) for each in whole.outputs],
        "forgetting": whole.forgetting_N.numpy(),
        "scores": whole.scores_N.numpy(),
    }


def mapped(folder: Path, values: dict[str, Any], mode: Literal["r", "r+"]) -> dict[str, Any]:
    def one(name: str, array: Any) -> Any:
        np.save(folder / f"{name}.npy", array)
        return np.load(folder / f"{name}.npy", mmap_mode=mode)

    return {
        name: [one(f"{name}{index}", each) for index, each in enumerate(value)]
        if isinstance(value, list)
        else one(name, value)
        for name, value in values.items()
    }


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("algorithm", FROM_OUTPUTS)
def test_read_only_memory_maps_select_what_arrays_select(tmp_path: Path, algorithm: str, dtype: type) -> None:
    """An algorithm that changed its input in place would kill the process."""
    values = arrays(dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        candidates = Candidates.of(**mapped(tmp_path, values, "r"))
        expected = Candidates.of(**values)
    assert candidates.outputs[0].features_ND.dtype == torch.from_numpy(values["features"][0]).dtype
    same(select(algorithm, candidates, fraction=0.3, seed=3), select(algorithm, expected, fraction=0.3, seed=3))


def test_arrays_are_viewed_not_copied(tmp_path: Path) -> None:
    values = mapped(tmp_path, arrays(), "r+")
    candidates = Candidates.of(**values)
    tensors = [
        (values["labels"], candidates.labels_N),
        (values["forgetting"], candidates.forgetting_N),
        (values["scores"], candidates.scores_N),
        *zip(values["logits"], (each.logits_NC for each in candidates.outputs), strict=True),
        *zip(values["features"], (each.features_ND for each in candidates.outputs), strict=True),
    ]
    for array, tensor in tensors:
        assert isinstance(array, np.memmap)
        assert tensor.data_ptr() == array.ctypes.data
        array[0] = 3
        assert (tensor[0] == 3).all()


def test_the_same_candidates_from_whatever_holds_them() -> None:
    values = arrays(models=1)
    logits, features = values["logits"][0], values["features"][0]
    expected = Candidates.of(values["labels"], logits=logits, features=features)
    assert expected.num_classes == C
    backwards = logits[::-1].copy()[::-1]
    assert backwards.strides[0] < 0
    gradient = torch.from_numpy(logits).requires_grad_()
    for labels, z, h in [
        (values["labels"].tolist(), torch.from_numpy(logits), torch.from_numpy(features)),
        (values["labels"].astype(np.int32), [logits], (features,)),
        (values["labels"].astype(np.uint8), logits.astype(">f4"), features),
        (torch.from_numpy(values["labels"]).int(), backwards, np.asfortranarray(features)),
        ([torch.tensor(label) for label in values["labels"]], gradient, features),
    ]:
        found = Candidates.of(labels, logits=z, features=h)
        assert torch.equal(found.labels_N, expected.labels_N)
        assert torch.equal(found.outputs[0].logits(slice(None)), expected.outputs[0].logits(slice(None)))
        assert torch.equal(found.outputs[0].features_ND, expected.outputs[0].features_ND)
        assert not found.outputs[0].logits(slice(None)).requires_grad


def test_a_list_of_tensors_with_gradients_is_one_array() -> None:
    scores_N = torch.rand(N)
    parts = [score.requires_grad_() for score in scores_N.clone().unbind()]
    labels = list(torch.arange(N) % C)
    assert torch.equal(Candidates.of(labels, scores=parts).scores_N, scores_N)
    with pytest.raises(UsageError, match="scores: stack expects each tensor to be equal size"):
        Candidates.of(labels, scores=[torch.zeros(1), torch.zeros(2)])


def test_nested_lists_are_arrays_of_one_model_or_of_several() -> None:
    values = arrays(models=2, dtype=np.float64)
    one, other = values["logits"]
    features = values["features"][0].tolist()
    alone = Candidates.of(values["labels"], logits=one.tolist(), features=tuple(map(tuple, features)))
    assert [each.num_features for each in alone.outputs] == [D]
    assert torch.equal(alone.outputs[0].logits(slice(None)), torch.from_numpy(one))
    assert torch.equal(alone.outputs[0].features_ND, torch.from_numpy(values["features"][0]))
    assert len(Candidates.of(values["labels"], logits=list(one)).outputs) == 1  # rows
    both = Candidates.of(values["labels"], logits=[one.tolist(), other.tolist()])
    assert torch.equal(both.outputs[1].logits(slice(None)), torch.from_numpy(other))
    top = TopLogits.compress(torch.from_numpy(one), torch.from_numpy(values["labels"]), 2)
    assert Candidates.of(values["labels"], logits=[top, top]).num_models == 2
    assert Candidates.of(values["labels"], logits=[], features=()).num_models == 0
    with pytest.raises(UsageError, match="logits: "):
        Candidates.of(values["labels"], logits=[None])


def test_compressed_logits_and_labels_alone() -> None:
    values = arrays(models=1)
    top = TopLogits.compress(torch.from_numpy(values["logits"][0]), torch.from_numpy(values["labels"]), 2)
    assert Candidates.of(values["labels"], logits=top, features=values["features"]).outputs[0].logits_NC is top
    assert Candidates.of([0, 2, 1]).num_classes == 3
    assert Candidates.of([0, 2, 1], num_classes=7).num_classes == 7
    assert Candidates.of([0, 2**20], num_classes=2**20 + 1).num_classes == 2**20 + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [0.0, 1.0]}, "labels must be integers, not torch.float64"),
        ({"labels": [True, False]}, "labels must be integers, not torch.bool"),
        ({"labels": ["cat", "dog"]}, "labels: values of type <U3, not numbers\n  -> number the classes from 0"),
        ({"labels": np.array(["cat", "dog"], object)}, "labels: values of type object, not numbers"),
        ({"labels": [0, 1], "features": np.array([[1], [None]])}, "features: values of type object"),
        ({"labels": [0, 1], "scores": np.ma.masked_invalid([1.0, np.nan])}, "scores: some values are masked"),
        ({"labels": [[0, 1], [1, 0]]}, "labels must be one class number per sample, (N,), not (2, 2)"),
        ({"labels": [0, -1]}, "label -1 of sample 1"),
        ({"labels": np.array([0, 1, 2**63 + 5], dtype=np.uint64)}, "labels of 2^63 and more are no numbers of classes"),
        ({"labels": [0, 2**20]}, "the largest label is 1,048,576: the labels look like identifiers"),
        ({"labels": [0, 1], "logits": [np.zeros((2, 2))] * 2, "features": np.zeros((2, 3))}, "logits of 2 models"),
        ({"labels": [0, 1], "logits": np.zeros((3, 2)), "features": np.zeros((3, 3))}, "expected (2, 2)"),
        ({"labels": [0, 1], "logits": np.zeros((2, 2), int), "features": np.zeros((2, 3))}, "floating point"),
        ({"labels": [0, 1], "logits": np.zeros((2, 2), np.longdouble), "features": np.zeros((2, 3))}, "logits: "),
        ({"labels": [0, 1], "logits": np.zeros((2, 2)), "features": [[[1.0], [1.0, 2.0]]]}, "features: "),
        ({"labels": [0, 1], "features": [[1.0]]}, "features of model 0 have 1 rows; there are 2 labels"),
        ({"labels": [0, 1], "forgetting": [1]}, "forgetting counts have shape (1,), expected (2,)"),
        ({"labels": [0, 1], "scores": [[1], [2]]}, "scores have shape (2, 1), expected (2,)"),
    ],
)
def test_arrays_that_cannot_be_candidates(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        Candidates.of(**arguments)
    assert "\n" not in error.value.message


@pytest.mark.parametrize("algorithm", [name for name in FROM_OUTPUTS if requirements(name, 0.2).outputs])
def test_logits_alone_or_features_alone_are_enough_where_the_algorithm_looks_at_one(algorithm: str) -> None:
    values = arrays()
    needs = requirements(algorithm, 0.1)
    both = Candidates.of(**values)
    for what, other in (("logits", "features"), ("features", "logits")):
        alone = Candidates.of(values["labels"], **{what: values[what]})
        assert alone.num_classes == C
        if getattr(needs, other):
            with pytest.raises(UsageError, match=f"algorithm {algorithm} needs the {other} of model 0") as error:
                select(algorithm, alone, fraction=0.2)
            assert error.value.remedy
        else:
            same(select(algorithm, alone, fraction=0.2), select(algorithm, both, fraction=0.2))
    if algorithm == "ccs":
        alone = Candidates.of(values["labels"], logits=values["logits"])
        with pytest.raises(UsageError, match="algorithm ccs needs the features"):
            select("ccs", alone, fraction=0.2, score="grand")
