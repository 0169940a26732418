"""The page of the report's data, from its models."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter

from docs.generate.types import target, values
from lipt.flow.listing import Run
from lipt.report import accounting, certainty, classes, document, ledger, merging, subset
from lipt.report.verdict import Level

PAGE = Path(__file__).parents[1] / "reference/report-json.md"
_HEAD = """# Results for programs

This page lists what a program can read of a finished run: what a command prints with `-o json`, and the file
`report.json`. Accuracies, shares and fractions are numbers from 0 to 1. `null` means: not measured. (`make reference`
writes this page.)

## What `-o json` prints

`lipt run`, `lipt compare` and `lipt report` print one object:

| field | meaning |
|---|---|
| `run_id` | name of the run: its report lies in `reports/` under it |
| `report` | path or address of the report; `null` if it has no page |
| `rows` | the rows of the table, each a [Row](#row) |
| `spent` | the costs of `this_run`, and of `earlier_runs` whose results it reused: seconds (`wall_s`), `flops`, \
`peak_bytes`, `requests`, bytes `read` and `written` by kind |
| `verdict` | `headline`, `sentences`, and `level`: LEVELS; `runs`: with several runs, the sentences of each; \
`next_step`: the comparison that would tell more, with its `seeds`, `variants`, changed `settings` and, side by side, \
the variants of each of its `runs`; or `null` |

`lipt ls` prints a list of objects, the latest last:

LISTED
`lipt plan --advise` prints `options`, each with its costs and settings; `advice`, the one to take, or `null`; `why`;
and `assumptions`, lines of text. The gain of an option is the one that we measured on CIFAR-10 with small networks:

| field | type | meaning |
|---|---|---|
| `gain_points` | number or null | Above a class-balanced random subset of the same size, in points of test accuracy: \
1 is 0.01. |
| `gain_half_width_points` | number or null | Half width of its 95 % interval. |
| `gain_steps` | integer or null | The steps of the training in which it was measured. |

`lipt plan`, `lipt sweep`, `lipt doctor`, `lipt status` and others have the option, too: their help says so.

## report.json

It lies beside `report.html`. Fields that have their default are written, too.

"""
_TABLE = "| field | type | meaning |\n|---|---|---|\n"
_MODULES = (document, merging, certainty, classes, subset, ledger, accounting)


def text() -> str:
    """The page: a table for the document, then one for each of its parts."""
    schema = document.Document.model_json_schema()
    models = {
        name: found
        for module in _MODULES
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, BaseModel) and found.__module__ == module.__name__
    }
    levels = ", ".join(f"`{level}`" for level in get_args(Level))
    listed = f"{_TABLE}{_rows(TypeAdapter(Run).json_schema()['properties'], _meanings(Run))}"
    parts, waiting, seen = [_HEAD.replace("LEVELS", levels).replace("LISTED", listed)], ["Document"], set[str]()
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        fields = schema["properties"] if name == "Document" else schema["$defs"][name]["properties"]
        parts.append(f"### {name}\n\n{_about(models[name])}\n\n{_TABLE}{_rows(fields, _meanings(models[name]))}\n")
        waiting += [target(each) for field in fields.values() for each in _parts_of(field) if "$ref" in each]
    return "".join(parts).rstrip() + "\n"


def _about(model: type[BaseModel]) -> str:
    return _as_json(inspect.cleandoc(model.__doc__ or "").split("\n\n")[0])


def _parts_of(field: dict[str, Any]) -> list[dict[str, Any]]:
    """A field, its alternatives, and what its lists hold."""
    own = field.get("anyOf", [field])
    return own + [each["items"] for each in own if "items" in each]


def _rows(fields: dict[str, Any], meanings: dict[str, str]) -> str:
    cells = (
        (f"`{name}`", values(field, lambda part: f"[{part}](#{part.lower()})"), meanings[name])
        for name, field in fields.items()
    )
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def _meanings(model: type) -> dict[str, str]:
    """Field -> the text below it in the source."""
    (body,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            found[field.target.id] = _as_json(" ".join(str(after.value.value).split()))
    return found


def _as_json(words: str) -> str:
    return re.sub(r"\bNone\b", "null", words).replace("|", r"\|").replace("theta_*", r"theta_\*")
