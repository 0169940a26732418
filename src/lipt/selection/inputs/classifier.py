"""The linear layer of a user's model that gives the logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lipt.errors import UsageError
from lipt.selection.inputs.model_outputs import input_of, logits_of
from lipt.selection.inputs.not_logits import refuse_probabilities


def classifier_of(model: nn.Module, probe: Tensor, wanted: str | None, index: int) -> str:
    """The name of the layer `wanted`, or of the linear layer whose output the logits are, found with a small batch.

    Raises:
        UsageError: there is no such layer, or the model gives no logits.
    """
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
    if not isinstance(logits, Tensor):
        raise UsageError(
            f"the model gives a {type(logits).__name__}, not logits",
            "wrap it in a module that returns the logits, or a dict that holds them as logits",
        )
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
    shapes = [tuple(seen[name][0].shape), tuple(logits.shape)]
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


def _are_logits(output: Tensor, logits: Tensor) -> bool:
    """Whether both give the same probabilities: log_softmax shifts a row of logits."""
    if logits.ndim != 2 or output.shape != logits.shape:
        return False
    ours, theirs = (each.float() - each.float().mean(1, keepdim=True) for each in (output, logits))
    return torch.allclose(ours, theirs, rtol=1e-2, atol=1e-2, equal_nan=True)
