"""The module that tells type checkers, editors and `help` the algorithms and their options in a call of `select`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from lipt.selection import ALGORITHMS, AUTO, select
from lipt.selection.options import keywords
from lipt.selection.registry import lookup

PAGE = Path(__file__).parents[2] / "src/lipt/selection/signatures.py"
_HEAD = '''"""The names of the algorithms, and their options, for type checkers, editors and `help`.

`make reference` writes this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, overload

if TYPE_CHECKING:
    from lipt.selection.arrays import ArrayLike
    from lipt.selection.inputs.candidates import Candidates
    from lipt.selection.result import Selection

#: The algorithms.
AlgorithmName: TypeAlias = '''
_OPTIONS = """
#: The options of each algorithm with their defaults, for `help(lipt.select)`.
OPTIONS = """
_CLASS = '''
class Select(Protocol):
    """The type of `select`: a signature for the algorithms without options, then one for each of the others."""
'''


def text() -> str:
    """The module as `ruff format` lays it out."""
    options = {name: {} if name == AUTO else _options(name) for name in ALGORITHMS}
    plain = [name for name in ALGORITHMS if not options[name]]
    overloads = [_overload(plain, {}), *(_overload([name], options[name]) for name in ALGORITHMS if options[name])]
    code = "\n".join([_HEAD + _literal(ALGORITHMS), _listed(plain), _CLASS, *overloads])
    ruff = [sys.executable, "-m", "ruff", "format", "--line-length=120", "-"]
    return subprocess.run(ruff, input=code, check=True, stdout=subprocess.PIPE, text=True).stdout


def _listed(plain: list[str]) -> str:
    """The constant with the options of every algorithm, one line each."""
    described = {name: keywords(lookup(name).function)[0] for name in ALGORITHMS if name not in plain}
    lines = [
        f"{name}: {', '.join(f'{option}={default!r}' for option, default in options.items())}"
        for name, options in described.items()
    ]
    text = "\n".join([*lines, f"without options: {', '.join(plain)}"])
    return f'{_OPTIONS}"""\\\n{text}"""\n'


def _overload(names: list[str], options: Mapping[str, str]) -> str:
    """The signature of `select` for these algorithms, which all have these options."""
    parameters = signature(select).parameters.values()
    kept = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    common = [f"{each.name}: {each.annotation} = {each.default!r}" for each in kept]
    own = [f"{name}: {option}" for name, option in options.items()]
    listed = ", ".join(["self", f"algorithm: {_literal(names)}", "candidates: Candidates", "*", *common, *own])
    return f"    @overload\n    def __call__({listed},) -> Selection: ...\n"


def _options(algorithm: str) -> dict[str, str]:
    """Type and default of each option."""
    defaults, hints = keywords(lookup(algorithm).function)
    return {name: f"{_type(hints[name])} = {default!r}" for name, default in defaults.items()}


def _type(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return _literal(get_args(hint))
    if get_args(hint):  # X | None
        return " | ".join(map(_type, get_args(hint)))
    return "None" if hint is NoneType else str(hint.__name__)


def _literal(values: tuple[str, ...] | list[str]) -> str:
    return f"Literal[{', '.join(map(repr, values))}]"
