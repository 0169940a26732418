"""The page of errors: every error that the code raises for a user, read from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import lipt
from lipt import errors

PAGE = Path(__file__).parents[1] / "reference/errors.md"
SOURCE = Path(lipt.__file__).parent
#: Title of each part of the page -> the modules whose errors it lists.
_PARTS = {
    "Settings and files of settings": ("config",),
    "Images, data sets and chunk stores": ("data",),
    "Selection": ("selection",),
    "Training and models": ("training",),
    "Stages, artifacts and workspaces": ("runtime", "stages", "flow"),
    "Stores: folders and S3": ("adapters.store", "adapters.minio_setup"),
    "Clusters: Kubernetes, Argo, Kubeflow": ("adapters.cluster", "pods"),
    "Commands, forecasts and reports": ("cli", "forecast", "report", "errors", "metrics"),
}
_HEAD = """# Errors

This page lists the exit codes, and every error message with what to do. (`make reference` writes it from the source.)

An error is one message: what is wrong and where, then after `->` what to do next. `lipt -v` adds the traceback. In a
pod the message is also the termination message, so `kubectl describe pod` and `lipt status` show it.

## Exit codes

| code | meaning | what to do |
|---|---|---|
| 0 | done | |
| 1 | the run failed: a damaged file, quorum, lack of memory; or a bug, with a traceback | see the message |
| 2 | the command line, a setting, credentials, or classes and splits of the data are wrong | correct what is named |
| 3 | a store or an API is unreachable at the moment | run the same command again; Argo and Jobs do so by themselves |
| 130 | you interrupted the run (Ctrl-C) | the same command continues |
| 143 | the process was stopped by SIGTERM, like a pod that is evicted | the same; Argo and Jobs do so by themselves |

`lipt doctor` ends with 1 if a check fails.

If the reader of the output goes away before its end, as `head -1` behind a pipe does, the code is 1. There is no
message, and the run may be finished.

## Kinds of errors

| class | code | meaning |
|---|---|---|
"""
_LIST = """
Python code can catch `lipt.errors.LiptError`, the base of all of them. A call with
too few or too many arguments raises Python's own `TypeError`. Any other exception is a bug.

## Every message

`…` stands for a name, a number or a reason. A message of `…` only is put together from several errors, or passed on
from a library or the cluster. Wrong names of options and arguments have code 2.
"""


@dataclass(frozen=True, order=True)
class Message:
    """One error in the source."""

    module: str
    cause: str
    remedy: str
    code: int


def text() -> str:
    """The page."""
    found = sorted(set(messages()))
    parts = [_HEAD + "".join(map(_class_row, _classes().values())) + _LIST]
    for title, rooms in _PARTS.items():
        prefixes = tuple(f"lipt.{room}" for room in rooms)
        rows = dict.fromkeys((each.cause, each.remedy, each.code) for each in found if each.module.startswith(prefixes))
        table = "".join(f"| {_cell(cause)} | {_cell(remedy)} | {code} |\n" for cause, remedy, code in rows)
        parts.append(f"### {title}\n\n| message | remedy | code |\n|---|---|---|\n{table}")
    return "\n".join(parts)


def messages() -> Iterator[Message]:
    """Every call in the source that makes an error for the user."""
    for module, tree in _trees().items():
        constants = _constants(module)
        for node, function in _calls(tree):
            asks = function is not None and function.name == "require"  # it passes on what its callers say
            if not asks and (code := _code(node, module)) is not None:
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                wanted = given[_FIRST.get(_name(node), 0) if module.startswith(_OWN) else 0 :]
                cause = _plain(wanted[0], constants)
                yield Message(module, cause, _remedy_of(node, wanted[1:], module, function), code)


Function = ast.FunctionDef | None
_COMPUTED, _OR = "…", "; or "
#: Rooms with ways of their own to raise an error, the position of the message there, and the remedy added later.
_OWN = ("lipt.selection", "lipt.config")
_FIRST = {"require": 1, "RefusedError": 2}
_REMEDIES = {
    ("config", "ValueError"): "see `lipt config show` for all settings, or change one of those that it names",
    ("config", "RefusedError"): "correct that line",
}
#: Remedies that functions put together.
_MADE = {
    "how_to_correct": "see `lipt config show` for all settings, or change one of those that it names",
    "did_you_mean": "did you mean …? or choose from: …",
    "remedy_of": "what helps against that reason, such as `kubectl -n … describe quota`, which shows what is used",
    "join": "the remedies of those errors",
    "partition": "the remedy of that check",
}
_PASSED_ON = "the remedy of that error"


def _remedy_of(node: ast.Call, wanted: list[ast.expr], module: str, function: Function) -> str:
    """The remedy of the error that a call makes, "" if it gives none."""
    if _name(node) == "UnexpectedError":
        return errors.UnexpectedError("").remedy
    if isinstance(node.args[0], ast.Starred):
        return _PASSED_ON
    fixed = _REMEDIES.get((module.split(".")[1], _name(node)))
    return fixed or (_resolved(wanted[0], module, function) if wanted else "")


def _resolved(node: ast.expr, module: str, function: Function) -> str:
    """As `_plain`, and what is computed is looked up in the source: names, dictionaries, arguments of the callers."""
    match node:
        case ast.Name(name):
            places = _values(name, node.lineno, module, function)
            found = [_resolved(value, where, scope) for value, where, scope in places]
        case ast.Subscript(ast.Name(name)):
            found = _entries(name, module)
        case ast.Call(ast.Attribute(ast.Name(name), "get"), [_, default]):
            found = [*_entries(name, module), _resolved(default, module, function)]
        case ast.Call(ast.Attribute(pattern, "format")):
            found = [re.sub(r"\{\w*\}", _COMPUTED, _resolved(pattern, module, function))]
        case ast.Call():
            found = [_MADE.get(_name(node), _COMPUTED)]
        case ast.Attribute(_, "remedy"):
            found = [_PASSED_ON]
        case ast.BoolOp():
            found = [_resolved(value, module, function) for value in node.values]
        case ast.IfExp():
            found = [_resolved(value, module, function) for value in (node.body, node.orelse)]
        case _:
            found = [_plain(node, _constants(module))]
    texts = [text for each in found for text in each.split(_OR)]
    return _OR.join(dict.fromkeys(text for text in texts if text.strip(_COMPUTED))) or _COMPUTED


def _values(name: str, line: int, module: str, function: Function) -> Iterator[tuple[ast.expr, str, Function]]:
    """What a name can stand for on a line, with the place of each: a local variable, a parameter, or a constant."""
    nodes = [node for node in ast.walk(function) if getattr(node, "lineno", line) < line] if function else []
    assigned = [
        node
        for node in nodes
        if isinstance(node, ast.Assign) and name in re.findall(r"\w+", ast.unparse(node.targets[0]))
    ]
    if assigned:
        yield max(assigned, key=lambda node: node.lineno).value, module, function
    for node in nodes:
        if isinstance(node, ast.For) and isinstance(node.target, ast.Tuple) and isinstance(node.iter, ast.Tuple):
            names = [ast.unparse(each) for each in node.target.elts]
            for row in node.iter.elts if name in names else ():
                yield getattr(row, "elts", [])[names.index(name)], module, function
    parameters = [each.arg for each in (*function.args.args, *function.args.kwonlyargs)] if function else []
    if function and name in parameters:
        positional = [each.arg for each in function.args.args]
        defaults = dict(zip(reversed(positional), reversed(function.args.defaults), strict=False))
        if name in defaults:
            yield defaults[name], module, None
        for where, tree in _trees().items():
            for call, scope in _calls(tree):
                given = dict(zip(parameters, call.args, strict=False))
                given |= {each.arg: each.value for each in call.keywords if each.arg}
                if _name(call) == function.name and name in given:
                    yield given[name], where, scope
    elif (constant := _constants(module).get(name)) is not None:
        yield constant, module, None


def _entries(name: str, module: str) -> list[str]:
    """The values of a dictionary of texts, a constant of the module."""
    found = _constants(module).get(name)
    return [_plain(value, {}) for value in found.values] if isinstance(found, ast.Dict) else []


@cache
def _trees() -> dict[str, ast.Module]:
    """Every module of the source."""
    return {
        ".".join(["lipt", *path.relative_to(SOURCE).with_suffix("").parts]): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


@cache
def _constants(module: str) -> dict[str, ast.expr]:
    """The constants of a module, and those that it imports."""
    found: dict[str, ast.expr] = {}
    for node in _trees()[module].body:
        if isinstance(node, ast.ImportFrom) and node.module in _trees():
            theirs = _constants(node.module)
            found |= {each.name: theirs[each.name] for each in node.names if each.name in theirs}
        elif isinstance(node, ast.Assign):
            found |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
    return found


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, Function]]:
    """Every call of a module, with the innermost function around it."""
    waiting: list[tuple[ast.AST, Function]] = [(tree, None)]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.Call):
            yield node, function
        inside = node if isinstance(node, ast.FunctionDef) else function
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]


def _classes() -> dict[str, type[errors.LiptError]]:
    """All error classes by name. Those outside of `errors` are imported, so that they are known."""
    cluster = "adapters.cluster.api", "adapters.cluster.preflight.site"
    for module in ("adapters.store.base", *cluster, "runtime.processes.failures"):
        import_module(f"lipt.{module}")
    found: dict[str, type[errors.LiptError]] = {}
    waiting: list[type[errors.LiptError]] = [errors.LiptError]
    while waiting:
        each = waiting.pop(0)
        found[each.__name__] = each
        waiting += sorted(each.__subclasses__(), key=lambda kind: kind.__name__)  # not in the order of imports
    return found


def _code(node: ast.Call, module: str) -> int | None:
    """The exit code of the error that a call makes; None if it makes none."""
    name = _name(node)
    own = ("require",) if module.startswith("lipt.selection") else ("ValueError", "RefusedError")
    if name in own and module.startswith(_OWN):
        return errors.UsageError.exit_code
    kind = _classes().get(name)
    return kind.exit_code if kind and node.args else None


def _name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _plain(node: ast.expr, constants: dict[str, ast.expr]) -> str:
    """A text of the source, with `…` for everything that is computed."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return _DOTS.sub("…", "".join(_plain(each, constants) for each in node.values))
    if isinstance(node, ast.BinOp):
        return _DOTS.sub("…", _plain(node.left, constants) + _plain(node.right, constants))
    if isinstance(node, ast.IfExp):
        return " or ".join(filter(None, (_plain(node.body, constants), _plain(node.orelse, constants))))
    if isinstance(node, ast.Name) and node.id in constants:
        return _plain(constants[node.id], {})
    return "…"


_DOTS = re.compile(r"…+")


def _cell(text: str) -> str:
    """The text for a table: code stays code, everything else is taken literally."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _class_row(kind: type[errors.LiptError]) -> str:
    if kind.__name__.startswith("_"):
        return ""
    return f"| `{kind.__name__}` | {kind.exit_code} | {(kind.__doc__ or '').strip().partition(chr(10))[0]} |\n"
