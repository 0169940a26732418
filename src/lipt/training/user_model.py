"""A user's network, built by a function that the setting `model.name` gives as `package.module:function`."""

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from lipt.errors import LiptError, UsageError, in_one_line


def build_user_model(path: str, num_classes: int) -> Any:
    """Call the function `package.module:function` with `num_classes` and return its result.

    Raises:
        UsageError: the function cannot be imported or called, or raises.
    """
    with _current_folder():
        function = _imported(path)
        try:
            inspect.signature(function).bind(num_classes=num_classes)
        except ValueError:
            pass  # written in C: its parameters are unknown
        except TypeError as error:
            raise UsageError(
                f"model.name: {path} cannot be called with num_classes={num_classes}: {error}",
                "give it a parameter num_classes, and every other parameter a default",
            ) from None
        try:
            return function(num_classes=num_classes)
        except LiptError:
            raise
        except Exception as error:
            raise UsageError(f"model.name: {path} raised {in_one_line(error)}", _CORRECT) from error


def code_digest(path: str) -> str | None:
    """SHA-256 of the file that defines `package.module:function`; None if it is not here.

    The module itself is not imported: a box that only waits for its pods needs no torch.
    """
    return _digest_of(path.partition(":")[0], os.getcwd())


@cache  # this process imports the module once, too
def _digest_of(module_name: str, _folder: str) -> str | None:
    with _current_folder():
        try:
            found = importlib.util.find_spec(module_name)
        except Exception:  # its package cannot be imported: `build_user_model` says why
            return None
    if found is None or not found.has_location or found.origin is None:
        return None
    return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()


def _imported(path: str) -> Callable[..., Any]:
    module_name, _, function = path.partition(":")
    if not function or not all(part.isidentifier() for part in module_name.split(".")):
        raise UsageError(f"model.name: {path!r} is not of the form package.module:function", "write it in this form")
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
        raise UsageError(
            f"model.name: {path} is not a function", "name one that takes num_classes and returns a network"
        )
    return found


_CORRECT = "correct it; -v shows the traceback"


@contextmanager
def _current_folder() -> Iterator[None]:
    """Search modules in the current folder first, as `python -m` does."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
