"""Candidates from a network and a data set, without a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from lipt.errors import UsageError
from lipt.selection.arrays import as_labels, length_of
from lipt.selection.types import Candidates, Outputs


def score_dataset(
    model: nn.Module | Sequence[nn.Module],
    dataset: Dataset[Any],
    *,
    device: torch.device | str | None = None,
    batch_size: int = 128,
    classifier: str | None = None,
    num_classes: int | None = None,
    num_workers: int = 0,
) -> Candidates:
    """Logits and penultimate features of every sample, float32 on the CPU, from one pass in eval mode.

    Nothing is averaged over a batch, so `batch_size` changes the result only by rounding. Afterwards the model is on
    its old device, and each of its modules in its old mode (train or eval).

    Args:
        model: one, or several whose outputs the algorithms combine.
        dataset: map-style, of (image tensor, integer label), without random augmentation.
        device: where to compute; None = where the model is.
        classifier: dotted name of the linear layer that gives the logits; None = the model's `classifier_name`, or the
            last linear layer that runs.
        num_classes: as for `Candidates.of`.
        num_workers: as for a DataLoader.

    Raises:
        UsageError: samples are not (image tensor, label), or no linear layer gives the logits.
    """
    image = _first_image(dataset)
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=batch_size, num_workers=num_workers)
    models = [model] if isinstance(model, nn.Module) else list(model)
    passes = [_pass(each, loader, image, device, classifier) for each in models]
    if not passes:
        raise UsageError("there is no model to score with")
    return Candidates.of(
        passes[0][0],
        logits=[outputs.logits_NC for _, outputs in passes],
        features=[outputs.features_ND for _, outputs in passes],
        num_classes=num_classes,
    )


def logits_and_features(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, C) and penultimate features (B, D), the input of the classifier layer."""
    seen: list[Tensor] = []
    layer = model.get_submodule(str(model.classifier_name))
    handle = layer.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0].flatten(1)))
    try:
        logits: Tensor = model(x)
    finally:
        handle.remove()
    return logits, seen[0]


class _Named(nn.Module):
    """Any network, with the attribute `classifier_name` that `logits_and_features` reads."""

    def __init__(self, network: nn.Module, classifier: str) -> None:
        super().__init__()
        self.network = network
        self.classifier_name = f"network.{classifier}"

    def forward(self, x: Tensor) -> Any:
        return self.network(x)


@torch.no_grad()
def _pass(
    model: nn.Module, loader: DataLoader[Any], image: Tensor, device: torch.device | str | None, classifier: str | None
) -> tuple[Tensor, Outputs]:
    """Labels (N,) of the data set, and the outputs of one model."""
    n = length_of(loader.dataset)
    with _evaluating(model, device) as where:
        name, layer = _classifier(model, image[None].to(where), classifier)
        named = _Named(model, name)
        labels_N = torch.empty(n, dtype=torch.int64)
        logits_NC, features_ND = torch.empty(n, layer.out_features), torch.empty(n, layer.in_features)
        start = 0
        for x, labels_B in loader:
            rows = slice(start, start + len(x))
            logits_NC[rows], features_ND[rows] = logits_and_features(named, x.to(where))
            labels_N[rows] = as_labels(labels_B)
            start += len(x)
    return labels_N, Outputs(logits_NC=logits_NC, features_ND=features_ND)


@contextmanager
def _evaluating(model: nn.Module, device: torch.device | str | None) -> Iterator[torch.device]:
    """Put the model into eval mode and on `device`; restore modes and device at the end."""
    modes = {module: module.training for module in model.modules()}  # they differ where BatchNorm is frozen
    tensors = [*model.parameters(), *model.buffers()]
    home = tensors[0].device if tensors else torch.device("cpu")
    where = home if device is None else torch.device(device)
    try:
        model.eval()
        if where != home:
            model.to(where)
        yield where
    finally:
        if where != home:
            model.to(home)
        for module, mode in modes.items():
            module.training = mode


def _classifier(model: nn.Module, x_1: Tensor, wanted: str | None) -> tuple[str, nn.Linear]:
    """The layer named `wanted`, or the last linear layer that runs; its shapes are checked on a batch of one image."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    seen: dict[str, Tensor] = {}  # in the order in which the layers run

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def note(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen.pop(name, None)
            seen[name] = inputs[0]

        return note

    handles = [module.register_forward_pre_hook(watch(name)) for name, module in layers.items()]
    try:
        logits = model(x_1)
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        raise UsageError("the model runs no linear layer", "end it in an nn.Linear that gives the logits")
    name = wanted or str(getattr(model, "classifier_name", list(seen)[-1]))
    if name not in seen:
        raise UsageError(f"classifier {name!r} is no linear layer that the model runs", f"name one of {list(seen)}")
    layer = layers[name]
    shapes = [tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__ for each in (seen[name], logits)]
    expected = [(1, layer.in_features), (1, layer.out_features)]
    if shapes != expected:
        raise UsageError(
            f"for one image the linear layer {name!r} should take {expected[0]} and the model give {expected[1]}; "
            f"they take {shapes[0]} and give {shapes[1]}",
            "name the layer that gives the logits as classifier, or wrap the model so that it returns them",
        )
    return name, layer


def _first_image(dataset: Dataset[Any]) -> Tensor:
    if not length_of(dataset):
        raise UsageError("the data set is empty")
    sample = dataset[0]
    if not (isinstance(sample, (tuple, list)) and len(sample) == 2 and isinstance(sample[0], Tensor)):
        raise UsageError(
            f"the data set gives {_describe(sample)}, not (image tensor, label)",
            "wrap it, or add a transform such as torchvision.transforms.ToTensor()",
        )
    return sample[0]


def _describe(sample: Any) -> str:
    if isinstance(sample, (tuple, list)):
        return f"({', '.join(type(each).__name__ for each in sample)})"
    return type(sample).__name__
