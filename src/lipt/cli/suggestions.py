"""What the shell offers at the tab key: settings, their values, algorithms, networks, stages, runs, pod parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from glob import escape, glob
from pathlib import Path
from typing import Any, get_args

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def completes(names: Callable[[], Iterable[str]]) -> Complete:
    """What the shell offers for an argument that is one of these names."""
    return lambda _context, _option, begun: [name for name in names() if name.startswith(begun)]


def algorithms() -> list[str]:
    from lipt.selection import ALGORITHMS

    return sorted({"auto", *ALGORITHMS})


def networks() -> list[str]:
    """LiPT's own."""
    from lipt.config import Network

    return list(get_args(Network))


def pod_parameters() -> list[str]:
    from lipt.adapters.cluster.job_manifest import Pods

    return [f"{name}=" for name in Pods.model_fields]


def runs(_context: click.Context, _option: click.Parameter, begun: str) -> list[CompletionItem]:
    """The finished runs in the default workspace and the configurations here; if none begins like this, any file.

    The names of the files tell them, because `lipt.config` takes too long to import for a key.
    """
    reports = Path("runs").glob(f"reports/{escape(begun)}*/report.json")
    configs = glob(f"{escape(begun)}*.y*ml")  # Path.glob refuses an absolute path
    names = sorted([*(path.parent.name for path in reports), *configs])
    return [*map(CompletionItem, names)] or [CompletionItem(begun, type="file")]


def settings(_context: click.Context, _option: click.Parameter, begun: str) -> list[str]:
    """`a.b=` of each setting that begins like this; `a.b=value` if it is the only one and its values can be listed."""
    values = setting_values()
    name, equals, value = begun.partition("=")
    names = [each for each in values if each == name] if equals else [each for each in values if each.startswith(name)]
    if len(names) != 1:
        return [f"{each}=" for each in names]
    named = {"select.algorithm": algorithms, "model.name": networks}.get(names[0])
    known = named() if named else values[names[0]]
    return [f"{names[0]}={each}" for each in known if each.startswith(value)] or [f"{names[0]}="] * (not equals)


def setting_values() -> dict[str, list[str]]:
    """The name of each setting, and its values if they can be listed."""
    from lipt.config import Config

    schema = Config.model_json_schema()
    return dict(_values(schema["properties"], "", schema["$defs"]))


def _values(fields: dict[str, Any], above: str, definitions: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """(name, values if they can be listed) of each setting, by the JSON schema."""
    for name, field in fields.items():
        kinds = field.get("anyOf", [field])
        inner = [definitions[kind["$ref"].rpartition("/")[2]] for kind in kinds if "$ref" in kind]
        if len(inner) < len(kinds):
            listed = [str(value) for kind in kinds for value in kind.get("enum", [])]
            yield above + name, listed + ["true", "false"] * any(kind.get("type") == "boolean" for kind in kinds)
        for section in inner:
            yield from _values(section.get("properties", {}), f"{above}{name}.", definitions)
