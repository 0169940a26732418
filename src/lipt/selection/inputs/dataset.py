"""Candidates from a network and a data set, without a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from lipt.errors import UsageError
from lipt.selection.arrays import Samples, length_of
from lipt.selection.inputs.candidates import Candidates, check_labels
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

    Gradients that algorithms compute from these include those of a bias, even if the classifier has none.

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
        device: where to compute; None = where the model is.
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
    one = isinstance(given, nn.Module) and not isinstance(given, nn.ModuleList)
    models = list(given) if isinstance(given, Iterable) and not one else [given]
    if not models:
        raise UsageError("there is no model to score with", "hand over at least one model")
    for each in models:
        if not isinstance(each, nn.Module):
            raise UsageError(
                f"the model is of type {type(each).__name__}, not a torch.nn.Module",
                "score_dataset takes the model, or a list of models, first; then the data set",
            )
    _check_device(device)
    num_classes = None if num_classes is None else integer(num_classes, "num_classes", least=0)
    loader = loader_of(dataset, batch_size=batch_size, num_workers=num_workers, transform=transform)
    images = images_and_labels(next(iter(loader)))[0][:2]
    with rows_in(to) as rows, _without_compiled_code():
        labels_N = rows.new("labels", (length_of(loader.dataset),), torch.int64)
        passes = []
        for index, each in enumerate(models):
            suffix = f"-{index}" if len(models) > 1 else ""
            new = partial(rows.new, suffix=suffix)
            passes.append(_pass(each, loader, images, device, classifier, labels_N, num_classes, new, index))
        widths = [logits_NC.shape[1] for logits_NC, _ in passes]
        if len(set(widths)) > 1:
            raise UsageError(
                f"the models give different numbers of logits: {', '.join(map(str, widths))}",
                "score models of the same classes together, and models without logits by themselves",
            )
    return Candidates.of(
        labels_N,
        logits=[logits_NC for logits_NC, _ in passes] if widths[0] else None,
        features=[features_ND for _, features_ND in passes],
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


@torch.no_grad()
def _pass(
    model: nn.Module,
    loader: DataLoader[Any],
    images: Tensor,
    device: torch.device | str | None,
    classifier: str | None,
    labels_N: Tensor,
    num_classes: int | None,
    new: Callable[[str, tuple[int, ...]], Tensor],
    index: int,
) -> tuple[Tensor, Tensor]:
    """Logits (N, C) and features (N, D) of model `index`, in tensors of `new`; also fills in the labels.

    Errors of labels and logits are found at once, not at the end of a long pass.

    Args:
        images: the first two, or the only one, to try the model with.
    """
    with _evaluating(model, device) as where, averages_named(index):
        precision = next((each.dtype for each in model.parameters() if each.is_floating_point()), None)

        def prepared(x: Tensor) -> Tensor:
            return x.to(where, precision if x.is_floating_point() else None)

        probe = probe_of(model, prepared(images))
        read = _reader(model, probe, classifier, index)
        logits_BC, features_BD = read(probe)
        logits_NC = new("logits", (len(labels_N), logits_BC.shape[1]))
        features_ND = new("features", (len(labels_N), features_BD.shape[1]))
        start = 0
        for batch in loader:
            x, labels_B = images_and_labels(batch)
            rows = slice(start, start + len(x))
            start = rows.stop
            if start <= len(labels_N):
                logits_NC[rows], features_ND[rows] = read(prepared(x))
                labels_N[rows] = labels_B
                if classes := num_classes or logits_NC.shape[1]:
                    check_labels(labels_N[rows], classes, start=rows.start, all_known=False)
                if rows.start == 0:
                    refuse_probabilities(logits_NC[rows], f"model {index}")
        check_count(start, len(labels_N))
    return logits_NC, features_ND


def _reader(
    model: nn.Module, probe: Tensor, classifier: str | None, index: int
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Gives logits (B, C) and features (B, D) of a batch; without logits C is 0."""
    if classifier is None:
        found = model(probe)
        if isinstance(found, Mapping) and "logits" not in found:
            return lambda x: (torch.empty(len(x), 0), embedding_of(model(x)))
    return partial(logits_and_features, _Named(model, _classifier(model, probe, classifier, index)))


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


def _classifier(model: nn.Module, probe: Tensor, wanted: str | None, index: int) -> str:
    """The layer named `wanted`, or the linear layer whose output the logits are, found with a small batch."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    seen: dict[str, tuple[Tensor, Tensor]] = {}  # input and output, in the order in which the layers run

    def watch(name: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Tensor], None]:
        def note(_module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> None:
            seen.pop(name, None)
            seen[name] = input_of(given, named), output

        return note

    handles = [module.register_forward_hook(watch(name), with_kwargs=True) for name, module in layers.items()]
    try:
        logits = logits_of(model(probe))
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        raise UsageError(
            "the model runs no linear layer",
            "end it in an nn.Linear that gives the logits; of a torch.jit model, hand over the module it was made from",
        )
    named = wanted or getattr(model, "classifier_name", None)
    same = [name for name, (_, output) in seen.items() if _are_logits(output, logits)]
    name = str(named or [*seen, *same][-1])
    if name not in seen:
        raise UsageError(f"classifier {name!r} is no linear layer that the model runs", f"name one of {list(seen)}")
    layer = layers[name]
    shapes = [
        tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__ for each in (seen[name][0], logits)
    ]
    expected = [(len(probe), layer.in_features), (len(probe), layer.out_features)]
    remedy = "name the layer that gives the logits as classifier, or wrap the model so that it returns them"
    if shapes != expected:
        raise UsageError(
            f"for a batch of {len(probe)} the linear layer {name!r} should take {expected[0]} and the model give "
            f"{expected[1]}; they take {shapes[0]} and give {shapes[1]}",
            remedy,
        )
    if not named and not same:
        refuse_probabilities(logits, f"model {index}")
        raise UsageError(f"the output of no linear layer is the logits; those that run: {', '.join(seen)}", remedy)
    return name


def _are_logits(output: Tensor, logits: Any) -> bool:
    """Whether both give the same probabilities: log_softmax shifts a row of logits."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or output.shape != logits.shape:
        return False
    ours, theirs = (each.float() - each.float().mean(1, keepdim=True) for each in (output, logits))
    return torch.allclose(ours, theirs, rtol=1e-2, atol=1e-2, equal_nan=True)
