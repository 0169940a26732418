"""Equality by contents, for data classes that hold tensors: `==` of two tensors is no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass

from torch import Tensor, equal


class ByContents:
    """Base of a data class with `eq=False`. Tensors may be on different devices."""

    def __eq__(self, other: object) -> bool:
        return _same(self, other)

    __hash__ = None  # type: ignore[assignment]  # as for a list: compared by its contents


def _same(one: object, other: object) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and equal(one.cpu(), other.cpu())
    if is_dataclass(one):
        return type(one) is type(other) and all(
            _same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)
        )
    if isinstance(one, Sequence) and not isinstance(one, str):
        return isinstance(other, Sequence) and len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
