"""Candidates from a network and a data set, without a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from lipt.errors import UsageError
from lipt.selection.arrays import Samples, length_of
from lipt.selection.inputs.candidates import Candidates, check_labels
from lipt.selection.inputs.classifier import classifier_of
from lipt.selection.inputs.disk import rows_in
from lipt.selection.inputs.model_outputs import embedding_of, input_of, logits_of
from lipt.selection.inputs.not_logits import refuse_probabilities
from lipt.selection.inputs.probe import averages_named, probe_of
from lipt.selection.inputs.samples import Transform, check_count, images_and_labels, loader_of
from lipt.selection.options import integer


def score_dataset(
    model: nn.Module | Sequence[nn.Module],
    dataset: Dataset[Any] | DataLoader[Any] | Samples[Any],
    *,
    transform: Transform | None = None,
    to: str | PathLike[str] | None = None,
    device: torch.device | str | None = None,
    batch_size: int = 128,
    classifier: str | None = None,
    num_classes: int | None = None,
    num_workers: int = 0,
) -> Candidates:
    """Logits and penultimate features of every sample, float32 on the CPU, from one pass in eval mode.

    Each sample is read once, also for several models. Gradients that algorithms compute from these include those of a
    bias, even if the classifier has none.

    `batch_size` changes the result only by rounding, unless the model averages over a batch in eval mode, too
    (BatchNorm without running statistics). Afterwards the model is on its old device, and each of its modules in its
    old mode (train or eval). So one model must not be in two threads at a time.

    Args:
        model: one, or several whose outputs the algorithms combine. It returns the logits, or a dict that holds them
            as `logits`. A dict without logits gives features only: its `pooler_output`, or the mean of its
            `last_hidden_state` over the tokens or pixels.
        dataset: without random augmentation; map-style, of (image, label), (image, label, index) or dicts, as Hugging
            Face's data sets. Or a DataLoader that does not shuffle. The index is not used: the selection is of
            positions in this data set.
        transform: applied to each image. Without it, a PIL image or a uint8 tensor becomes float32
            (channels, height, width) from 0 to 1. Images then take the precision of the model.
        to: folder for `labels.npy`, `logits.npy` and `features.npy` (`logits-0.npy` and so on for several models),
            which then stay on disk, memory-mapped. Files with these names are replaced; those that the pass does not
            write, because the models are others, are deleted at its end. None = in memory.
        device: where to compute; None = where the model is. Several models are there at the same time.
        classifier: dotted name of the linear layer that gives the logits; None = the model's `classifier_name`, or the
            linear layer whose output they are. A named layer is trusted.
        num_classes: as for `Candidates.of`.
        num_workers: as for a DataLoader. A DataLoader in place of a data set keeps its own, and its own batch size.

    Raises:
        UsageError: no models or no such device, samples of an unknown form, images of different sizes or of more than 8
            bits per channel, labels outside of the classes, probabilities in place of logits, no linear layer gives the
            logits, only some models give logits, a loader does not give every sample once and in order, or a model that
            averages over a batch gets a single image.
        RunError: `to` cannot be written.
    """
    given: Any = model
    # A network can be iterable, and a state dict names its weights.
    one = (isinstance(given, nn.Module) and not isinstance(given, nn.ModuleList)) or isinstance(given, Mapping)
    models = list(given) if isinstance(given, Iterable) and not one else [given]
    if not models:
        raise UsageError("there is no model to score with", "hand over at least one model")
    for each in models:
        if not isinstance(each, nn.Module):
            raise UsageError(
                f"the model is of type {type(each).__name__}, not a torch.nn.Module",
                "hand over the model, or a list of models, first; then the data set. Load a state dict into its model: "
                "model.load_state_dict(weights)",
            )
    _check_device(device)
    num_classes = None if num_classes is None else integer(num_classes, "num_classes", least=0)
    loader = loader_of(dataset, batch_size=batch_size, num_workers=num_workers, transform=transform)
    with rows_in(to) as rows, _without_compiled_code(), torch.no_grad():
        labels_N = rows.new("labels", (length_of(loader.dataset),), torch.int64)
        scored = _pass(models, loader, device, classifier, labels_N, num_classes, rows.new)
    return Candidates.of(
        labels_N,
        logits=[each.logits_NC for each in scored] if scored[0].logits_NC.shape[1] else None,
        features=[each.features_ND for each in scored],
        num_classes=num_classes,
    )


def _without_compiled_code() -> AbstractContextManager[Any]:
    """Hooks find the features, and compiled code does not call them. Importing the compiler takes seconds, so it is not
    imported if nothing is compiled.
    """
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _check_device(device: torch.device | str | None) -> None:
    try:
        torch.zeros(1, device=device).cpu()  # fails on "meta", to which a model would lose its weights
    except (RuntimeError, AssertionError, TypeError) as error:  # AssertionError: torch was built without CUDA
        why = str(error).partition("\n")[0]
        raise UsageError(f"cannot compute on device {device!r}: {why}", "name one that torch finds here") from None


def logits_and_features(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, C) and penultimate features (B, D), the input of the classifier layer.

    Raises:
        UsageError: the network does not run that layer; or it runs it several times, and the logits are not the output
            of the last one.
    """
    seen: list[Tensor] = []
    layer = model.get_submodule(str(model.classifier_name))
    handle = layer.register_forward_pre_hook(
        lambda _module, given, named: seen.append(input_of(given, named).flatten(1)), with_kwargs=True
    )
    try:
        logits: Tensor = model(x)
    finally:
        handle.remove()
    name = model.classifier_name
    if not seen:
        raise UsageError(
            f"model.classifier: the network does not run {name!r}", "name the linear layer that gives the logits"
        )
    if len(seen) > 1 and not torch.allclose(layer(seen[-1]).float(), logits.float(), rtol=1e-2, atol=1e-2):
        raise UsageError(
            f"model.classifier: the network runs {name!r} {len(seen)} times, and its last output is not the logits",
            "wrap the network so that it runs the layer once in eval mode, or last for the logits",
        )
    return logits, seen[-1]


class _Named(nn.Module):
    """Any network, with the attribute `classifier_name` that `logits_and_features` reads."""

    def __init__(self, network: nn.Module, classifier: str) -> None:
        super().__init__()
        self.network = network
        self.classifier_name = f"network.{classifier}".rstrip(".")  # the network may be the layer itself

    def forward(self, x: Tensor) -> Any:
        return logits_of(self.network(x))


def _pass(
    models: Sequence[nn.Module],
    loader: DataLoader[Any],
    device: torch.device | str | None,
    classifier: str | None,
    labels_N: Tensor,
    num_classes: int | None,
    new: Callable[..., Tensor],
) -> list[_Scored]:
    """The models with logits and features of all samples, in tensors of `new`. It also fills in the labels.

    Each batch is read once, for all models. Errors of labels and logits are found at once, not at the end of a long
    pass.
    """
    scored: list[_Scored] = []
    with ExitStack() as borrowed:
        places = [borrowed.enter_context(_evaluating(each, device)) for each in models]
        start = 0
        for batch in loader:
            x, labels_B = images_and_labels(batch)
            if not scored:
                for index, (each, where) in enumerate(zip(models, places, strict=True)):
                    named = partial(new, suffix=f"-{index}" if len(models) > 1 else "")
                    scored.append(_Scored(each, index, where, x, classifier, named, len(labels_N)))
                num_classes = _classes(scored, num_classes)
            rows = slice(start, start + len(x))
            start = rows.stop
            if start <= len(labels_N):
                labels_N[rows] = labels_B
                if num_classes:
                    check_labels(labels_N[rows], num_classes, start=rows.start, all_known=False)
                for one in scored:
                    one.fill(rows, x)
        check_count(start, len(labels_N))
    return scored


class _Scored:
    """A model in a pass, with the rows that it fills.

    Raises:
        UsageError: its answer to the first image shows no logits and no features.
    """

    def __init__(
        self,
        model: nn.Module,
        index: int,
        where: torch.device,
        images: Tensor,
        classifier: str | None,
        new: Callable[..., Tensor],
        n: int,
    ) -> None:
        self.index, self.where = index, where
        self.precision = next((each.dtype for each in model.parameters() if each.is_floating_point()), None)
        with averages_named(index):
            probe = probe_of(model, self._prepared(images[:2]))
            self.read = _reader(model, probe, classifier, index)
            logits_BC, features_BD = self.read(probe)
        self.logits_NC = new("logits", (n, logits_BC.shape[1]))
        self.features_ND = new("features", (n, features_BD.shape[1]))

    def _prepared(self, x: Tensor) -> Tensor:
        return x.to(self.where, self.precision if x.is_floating_point() else None)

    def fill(self, rows: slice, x: Tensor) -> None:
        """Compute these rows from their images."""
        with averages_named(self.index):
            self.logits_NC[rows], self.features_ND[rows] = self.read(self._prepared(x))
        if rows.start == 0:
            refuse_probabilities(self.logits_NC[rows], f"model {self.index}")


def _classes(scored: Sequence[_Scored], wanted: int | None) -> int | None:
    """The number of classes: that of the logits, if there are any.

    Raises:
        UsageError: the models have different numbers of logits, or another one than `wanted`.
    """
    widths = [each.logits_NC.shape[1] for each in scored]
    if len(set(widths)) > 1:
        raise UsageError(
            f"the models give different numbers of logits: {', '.join(map(str, widths))}",
            "score models of the same classes together, and models without logits by themselves",
        )
    if wanted is not None and widths[0] not in (0, wanted):
        raise UsageError(
            f"the model gives {widths[0]} logits, and num_classes is {wanted}",
            "leave out num_classes, or give the network one output per class",
        )
    return widths[0] or wanted


def _reader(
    model: nn.Module, probe: Tensor, classifier: str | None, index: int
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Gives logits (B, C) and features (B, D) of a batch; without logits C is 0."""
    if classifier is None:
        found = model(probe)
        if isinstance(found, Mapping) and "logits" not in found:
            return lambda x: (torch.empty(len(x), 0), embedding_of(model(x)))
    return partial(logits_and_features, _Named(model, classifier_of(model, probe, classifier, index)))


@contextmanager
def _evaluating(model: nn.Module, device: torch.device | str | None) -> Iterator[torch.device]:
    """Put the model into eval mode and on `device`; restore modes and device at the end."""
    modes = {module: module.training for module in model.modules()}  # they differ where BatchNorm is frozen
    tensors = [*model.parameters(), *model.buffers()]
    if any(each.is_meta for each in tensors):
        raise UsageError("the model has weights on the device meta, without values", "load its weights first")
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
