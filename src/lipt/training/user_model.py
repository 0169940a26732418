"""A user's network, built by a function that the setting `model.name` gives as `package.module:function`.

The digest of the module's file is part of the address of all that its network makes. So the code that runs must be that
of the digest: the file is read once, and the same bytes are hashed and executed.
"""

import hashlib
import importlib
import importlib.util
import inspect
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from lipt.errors import LiptError, RunError, UsageError, in_one_line


def build_user_model(path: str, num_classes: int, *, code: str | None = None) -> Any:
    """Call the function `package.module:function` with `num_classes` and return its result.

    Args:
        code: the digest that the module's file must have; None: any.

    Raises:
        UsageError: the function cannot be imported or called, or raises.
        RunError: the file has another digest.
    """
    with _current_folder():
        function, found = _imported(path)
        if code is not None and found != code:
            raise RunError(
                f"model.name: the file of {path} has changed since this run began",
                "start the run again, or bring back the file as it was",
            )
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
        except (Exception, SystemExit) as error:
            raise UsageError(f"model.name: {path} raised {in_one_line(error)}", _CORRECT) from error


def code_digest(path: str) -> str | None:
    """SHA-256 of the file that defines `package.module:function`, as it is now; None if it is not here.

    The module itself is not imported: a box that only waits for its pods needs no torch.
    """
    with _current_folder():
        try:
            found = importlib.util.find_spec(path.partition(":")[0])
        except Exception:  # its package cannot be imported: `build_user_model` says why
            return None
    if found is None or not found.has_location or found.origin is None or not Path(found.origin).is_file():
        return None  # no file of its own: it is built in, or lies in a zip
    return _digest(Path(found.origin).read_bytes())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _imported(path: str) -> tuple[Callable[..., Any], str | None]:
    """The function, and the digest of the file that it comes from."""
    module_name, _, function = path.partition(":")
    if not function or not all(part.isidentifier() for part in module_name.split(".")):
        raise UsageError(f"model.name: {path!r} is not of the form package.module:function", "write it in this form")
    if module_name.endswith(".py"):
        right = f"{module_name.removesuffix('.py')}:{function}"
        raise UsageError(f"model.name: {module_name} is a file, not a module", f"write {right}")
    if module_name == "__main__":
        raise UsageError(
            f"model.name: {path} is a function of the running program, which other processes cannot import",
            "write the function into another file, and name that one",
        )
    try:
        module, code = _module(module_name)
    except ImportError as error:
        raise UsageError(
            f"model.name: cannot import {path}: {error}",
            "run in the folder of the module, install it, or set PYTHONPATH to its folder",
        ) from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"model.name: importing {module_name} raised {in_one_line(error)}", _CORRECT) from error
    try:
        found: Callable[..., Any] = getattr(module, function)
    except AttributeError:
        raise UsageError(
            f"model.name: {getattr(module, '__file__', None) or module_name} has no function {function}",
            "correct its name; if you mean another file, rename it: Python found this one first",
        ) from None
    if not callable(found):
        raise UsageError(
            f"model.name: {path} is not a function", "name one that takes num_classes and returns a network"
        )
    return found, code


@dataclass(frozen=True)
class _Executed:
    """A module, and the digest of the bytes that were executed."""

    module: ModuleType
    code: str


_EXECUTED: dict[str, _Executed] = {}


def _module(name: str) -> tuple[ModuleType, str | None]:
    """The module as its file is now, and the digest of that file; None if it has no file of Python."""
    importlib.invalidate_caches()  # the file may be new
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader) or _installed(spec.origin):
        return importlib.import_module(name), code_digest(name)
    data = Path(spec.origin).read_bytes()
    known = _EXECUTED.get(name)
    if known is None or known.code != _digest(data):
        known = _EXECUTED[name] = _Executed(_execute(spec, spec.loader, data), _digest(data))
    return known.module, known.code


def _execute(spec: ModuleSpec, loader: SourceFileLoader, data: bytes) -> ModuleType:
    """A module from these bytes of its file.

    Somebody may have imported the module before, a cell of a notebook for example. That one stays what it is: nobody
    knows which version of the file it holds.
    """
    module, name = importlib.util.module_from_spec(spec), spec.name
    before, ours = sys.modules.get(name), _EXECUTED.get(name)
    sys.modules[name] = module  # data classes look for their module there
    keep = before is None or (ours is not None and before is ours.module)
    try:
        exec(loader.source_to_code(data, str(spec.origin)), module.__dict__)
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            sys.modules.pop(name, None)
            if before is not None:
                sys.modules[name] = before
    return module


def _installed(file: str) -> bool:
    """Whether the file belongs to an installed package or to Python: nobody edits it while a process runs."""
    paths = sysconfig.get_paths()
    folders = {paths["purelib"], paths["platlib"], paths["stdlib"], site.getusersitepackages()}
    return any(Path(file).is_relative_to(folder) for folder in folders)


_CORRECT = "correct it; -v shows the traceback"


@contextmanager
def _current_folder() -> Iterator[None]:
    """Search modules in the current folder first, as `python -m` does. What they print is not our result."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.path.remove(folder)
