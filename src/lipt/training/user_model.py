"""A network of the user's own, built by a function that is named as `package.module:function`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lipt.errors import LiptError, UsageError, in_one_line


def build_user_model(path: str, num_classes: int) -> Any:
    """What the function at `package.module:function` returns.

    Raises:
        UsageError: it cannot be imported or called so, or raises.
    """
    with _current_folder():
        function = _imported(path)
        try:
            inspect.signature(function).bind(num_classes=num_classes)
        except ValueError:
            pass  # written in C: what it takes is not known
        except TypeError as error:
            raise UsageError(
                f"model.name: {path} cannot be called with num_classes={num_classes}: {error}",
                "let it take num_classes, and give every other parameter a default",
            ) from None
        try:
            return function(num_classes=num_classes)
        except LiptError:
            raise
        except Exception as error:
            raise UsageError(f"model.name: {path} raised {in_one_line(error)}", _CORRECT) from error


def _imported(path: str) -> Callable[..., Any]:
    module_name, _, function = path.partition(":")
    if not function or not all(part.isidentifier() for part in module_name.split(".")):
        raise UsageError(f"model.name: {path!r} is not of the form package.module:function", "write it so")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module_name), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"model.name: cannot import {path}: {error}",
            "run in the folder of the module, install it, or set PYTHONPATH to its folder",
        ) from error
    except Exception as error:
        raise UsageError(f"model.name: importing {module_name} raised {in_one_line(error)}", _CORRECT) from error
    if not callable(found):
        raise UsageError(f"model.name: {path} is no function", "name one that takes num_classes and returns a network")
    return found


_CORRECT = "correct it; -v shows where"


@contextmanager
def _current_folder() -> Iterator[None]:
    """Modules of the current folder are found, first of all, as with `python -m`."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
