"""Selection without the pipeline: candidates from networks and data sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from selection_samples import FROM_OUTPUTS
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from lipt.errors import LiptError, UsageError
from lipt.selection import Candidates, requirements, score_dataset, select
from lipt.training.networks import build_model

C = 4


class Net(nn.Module):
    """The layer of the logits is neither the last one registered nor the only one; `unused` never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, C)
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.middle = nn.Linear(8, 16)
        self.unused = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.middle(self.body(x)).relu())
        return logits


def images(n: int = 21) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.rand(n, 3, 8, 8, generator=generator), torch.arange(n) % C)


@torch.no_grad()
def by_hand(model: Net, dataset: TensorDataset) -> tuple[Tensor, Tensor]:
    model.eval()
    rows = [model.middle(model.body(x[None])).relu() for x, _ in dataset]
    return torch.cat([model.head(row) for row in rows]), torch.cat(rows)


@pytest.mark.parametrize("batch_size", [1, 8, 128])
def test_a_model_and_a_data_set_give_what_a_loop_gives(batch_size: int) -> None:
    torch.manual_seed(0)
    model, dataset = Net(), images()
    model.body(torch.rand(32, 3, 8, 8))  # running statistics that differ from those of a batch
    logits, features = by_hand(model, dataset)
    candidates = score_dataset(model.train(), dataset, batch_size=batch_size)
    outputs = candidates.outputs[0]
    torch.testing.assert_close(outputs.logits_NC, logits)
    torch.testing.assert_close(outputs.features_ND, features)
    assert outputs.features_ND.dtype == torch.float32
    assert not outputs.features_ND.requires_grad
    assert candidates.labels_N.tolist() == [i % C for i in range(21)]
    assert candidates.num_classes == C


def test_the_model_is_left_as_it_was() -> None:
    model = Net().train()
    model.body[1].eval()  # frozen statistics
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    score_dataset(model, images(), device="cpu")
    assert {name: module.training for name, module in model.named_modules() if not module.training} == {"body.1": False}
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    handle = model.head.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        score_dataset(model, images())
    handle.remove()
    assert model.training
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_half_precision_and_several_models() -> None:
    dataset = images()
    models = [nn.Sequential(nn.Flatten(), nn.Linear(192, C)).double() for _ in range(2)]
    double = TensorDataset(dataset.tensors[0].double(), dataset.tensors[1])
    candidates = score_dataset(models, double)
    assert [each.logits_NC.dtype for each in candidates.outputs] == [torch.float32] * 2
    for model, outputs in zip(models, candidates.outputs, strict=True):
        torch.testing.assert_close(outputs.logits_NC, model(double.tensors[0]).float())
    assert len(select("dual", candidates, fraction=0.2).indices_K) == 4


def test_the_classifier_that_the_model_carries_or_the_caller_names() -> None:
    model, dataset = build_model("resnet18", num_classes=C, seed=0, width=4), images()
    carried = score_dataset(model, dataset)
    assert carried.outputs[0].num_features == 32
    assert torch.equal(
        carried.outputs[0].features_ND, score_dataset(model, dataset, classifier="classifier").outputs[0].features_ND
    )
    with pytest.raises(UsageError, match=re.escape("'middle' should take (1, 8) and the model give (1, 16)")):
        score_dataset(Net(), dataset, classifier="middle")
    with pytest.raises(UsageError, match=r"'unused' is no linear layer that the model runs\n.*'middle', 'head'"):
        score_dataset(Net(), dataset, classifier="unused")


class Samples(Dataset[Any]):
    def __init__(self, *samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, position: int) -> Any:
        return self.samples[position]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(IMAGE, 0)])


IMAGE = torch.zeros(3, 8, 8)
LINEAR = nn.Sequential(nn.Flatten(), nn.Linear(192, C))


@pytest.mark.parametrize(
    ("model", "dataset", "message"),
    [
        (nn.Conv2d(3, C, 8), images(), "the model runs no linear layer"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, C), nn.Linear(C, C), nn.GLU()), images(), "the model give (1, 4)"),
        (nn.LSTM(8, C), Samples((torch.zeros(2, 8), 0)), "the model gives a tuple, not logits"),
        (nn.Linear(8, C), Samples((torch.zeros(3, 8), 0)), "they take (1, 3, 8) and give (1, 3, 4)"),
        ([], images(), "there is no model"),
        (LINEAR, Stream(), "the data set has no length"),
        (LINEAR, Samples(), "the data set is empty"),
        (LINEAR, Samples(IMAGE), "the data set gives Tensor, not an image and a label"),
        (LINEAR, Samples((np.zeros(3), 0)), "an image has the type ndarray, not tensor or PIL image"),
        (LINEAR, Samples((IMAGE, 0, 0, "name")), "the data set gives (Tensor, int, int, str)"),
        (LINEAR, Samples((IMAGE, "cat")), "labels: values of type <U3, not numbers"),
        (LINEAR, Samples((IMAGE, 0.5)), "labels must be integers"),
        (LINEAR, Samples((IMAGE, C)), "label 4 of sample 0 is outside 0..3"),
    ],
)
def test_models_and_data_sets_that_cannot_be_scored(model: Any, dataset: Dataset[Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        score_dataset(model, dataset)


def test_a_batch_does_not_tell_whether_classes_are_numbered_from_1() -> None:
    """In a data set that is sorted by class, a later batch has no label 0."""
    ordered = Samples(*[(IMAGE, label) for label in (0, 0, 1, 1, 2, 2)])
    remedy = "-> give the network one output per class, .* If your classes are numbered from 1, hand over labels - 1"
    with pytest.raises(UsageError, match=f"label 2 of sample 4 is outside 0..1\n  {remedy}"):
        score_dataset(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), ordered, batch_size=2)


def test_errors_have_a_remedy() -> None:
    for fails in (lambda: Candidates.of([0.5]), lambda: score_dataset(nn.Identity(), images())):
        with pytest.raises(LiptError) as error:
            fails()
        assert error.value.remedy


def test_every_algorithm_runs_on_a_scored_data_set() -> None:
    torch.manual_seed(0)
    dataset = images(40)
    candidates = score_dataset([Net(), Net()], dataset)
    held_out = score_dataset([Net(), Net()], images(12))
    for algorithm in FROM_OUTPUTS:
        needs = requirements(algorithm, 0.2)
        if (needs.trajectory and not needs.outputs) or needs.scores:
            continue
        validation = held_out if needs.validation else None
        selection = select(algorithm, candidates, fraction=0.2, validation=validation)
        assert len(selection.subset(dataset)) == 8, algorithm
