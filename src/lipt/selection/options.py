"""The options of an algorithm: the keywords of its function, checked against their types."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter, signature
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from torch import Tensor

from lipt.errors import UsageError, did_you_mean

#: Larger options have no use, and in float32 they would overflow.
LARGEST = 10**9


def bind_options(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the algorithm: its defaults, overridden by `options`.

    Raises:
        UsageError: an unknown option, a value of the wrong type, or a number above `LARGEST`.
    """
    options = {key: plain(value) for key, value in options.items()}
    defaults, hints = keywords(function)
    for key, value in options.items():
        if key not in defaults:
            remedy = did_you_mean(key, defaults) if defaults else f"{name} takes no options"
            raise UsageError(f"algorithm {name} has no option {key!r}", remedy)
        whole = isinstance(value, int)
        is_number = whole or (isinstance(value, float) and abs(value) <= sys.float_info.max)
        if is_number and abs(value) > LARGEST:
            shown = f"{value:g}" if abs(value) <= sys.float_info.max else "a number beyond 1e308"
            raise UsageError(f"option {key} of {name}: {shown} is out of range", f"pass at most {LARGEST:,}")
        if not _fits(value, hints[key]):
            raise UsageError(
                f"option {key} of {name}: {value!r} is not {_describe(hints[key])}",
                _pass(key, value, hints[key]) or f"lipt.describe({name!r}) explains the options",
            )
    return defaults | options


@cache
def keywords(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Default and type of each option."""
    parameters = signature(function).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.kind is Parameter.KEYWORD_ONLY}
    return defaults, get_type_hints(function)


def plain(value: Any) -> Any:
    """A numpy scalar or a one-element tensor as a Python number or bool; anything else unchanged."""
    if isinstance(value, np.generic) or (isinstance(value, (np.ndarray, Tensor)) and value.ndim == 0):
        return value.item()
    return value


def integer(value: Any, what: str, *, least: int) -> int:
    """The value of an argument that counts something.

    Raises:
        UsageError: no integer, or below `least`; names `what`.
    """
    found = plain(value)
    if not isinstance(found, int) or isinstance(found, bool) or found < least:
        too_small = isinstance(found, (int, float)) and found < least
        remedy = "" if too_small else _pass(what, found, int)
        remedy = remedy or "pass such a number"
        raise UsageError(f"{what} must be an integer of {least} or more, not {found!r}", remedy)
    return found


def _pass(name: str, value: Any, hint: Any) -> str:
    """The remedy for an array of one number, or a whole number in floating point; "" if the value is another one."""
    if isinstance(value, (np.ndarray, Tensor)) and len(value.flatten()) == 1:
        value = value.flatten()[0].item()
    if isinstance(value, float) and value.is_integer() and not _fits(value, hint):
        value = int(value)
    return f"pass a plain number: {name}={value!r}" if isinstance(value, (int, float)) and _fits(value, hint) else ""


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(hint))  # no array is compared
    if get_args(hint):  # X | None
        return any(_fits(value, part) for part in get_args(hint))
    if hint in (bool, NoneType):
        return isinstance(value, hint)
    if not isinstance(value, (int, float) if hint is float else hint) or isinstance(value, bool):
        return False
    return hint not in (int, float) or abs(value) <= sys.float_info.max  # neither NaN nor infinite


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_args(hint):
        return " or ".join(_describe(part) for part in get_args(hint))
    return {int: "an integer", float: "a finite number", bool: "true or false", NoneType: "null"}.get(hint, str(hint))
