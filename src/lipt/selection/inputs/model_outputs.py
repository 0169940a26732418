"""What a user's model takes and gives: tensors, or the dicts of Hugging Face's models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lipt.errors import UsageError


def logits_of(output: Any) -> Any:
    """The logits in a dict; anything else as it is."""
    return output["logits"] if isinstance(output, Mapping) and "logits" in output else output


def embedding_of(output: Mapping[str, Any]) -> Tensor:
    """Features (B, D) of a model without a classifier, from the dict that it returns.

    Raises:
        UsageError: the dict has none.
    """
    pooled, hidden = output.get("pooler_output"), output.get("last_hidden_state")
    if isinstance(pooled, Tensor):
        return pooled.flatten(1)
    if not isinstance(hidden, Tensor):
        keys = ", ".join(output)
        raise UsageError(
            f"the model returns a dict of {keys}", "return logits, pooler_output or last_hidden_state in it"
        )
    if hidden.ndim == 2:
        return hidden
    return hidden.mean(1) if hidden.ndim == 3 else hidden.flatten(2).mean(2)  # (B, tokens, D) or (B, D, H, W)


def input_of(given: tuple[Any, ...], named: Mapping[str, Any]) -> Tensor:
    """The input of a linear layer, which a network may pass by position or as `input`."""
    found: Tensor = given[0] if given else named["input"]
    return found
