"""The page of settings, from the models of the configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lipt.config import PROFILES, Config
from lipt.flow.variants import variants

PAGE = Path(__file__).parents[1] / "reference/settings.md"
_HEAD = """# Settings

`make reference` writes this page. A configuration is a YAML file. Every setting has a default, so write only those that
you change:

```yaml
name: pets
data: {source: photos, image_size: 64}
select: {fraction: 0.1}
train: {epochs: 30}
```

`--set select.fraction=0.2` changes one setting on the command line. `lipt config show FILE` prints all of them, and
`lipt config schema` prints a JSON schema for editors. An unknown setting, a wrong type and a value out of range are
errors.
"""
_TABLE = "| setting | values | default | what it does |\n|---|---|---|---|\n"
_VARIANTS = """### Variants

| `compare.variants` | row of the table | settings that differ from the configuration |
|---|---|---|
"""
_PAPER = """## The paper's profile

`profile: paper` changes these defaults to the values of the paper. Settings that you write still override them.

| setting | `robust` | `paper` |
|---|---|---|
"""
_BOUNDS = {"exclusiveMinimum": "> {}", "minimum": "≥ {}", "exclusiveMaximum": "< {}", "maximum": "≤ {}"}
_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true, false", "null": "null"}


def text() -> str:
    """The page: the settings outside of sections, a table per section, and the values of the paper's profile."""
    schema = Config.model_json_schema()
    definitions = schema["$defs"]
    plain, sections = {}, {}
    for name, field in schema["properties"].items():
        (sections if "$ref" in field else plain)[name] = field
    parts = [_HEAD, f"## General\n\n{_TABLE}{_rows(plain, (), definitions)}"]
    for name, field in sections.items():
        section = definitions[_target(field)]
        rows = _rows(section["properties"], (name,), definitions)
        parts.append(f"## {name}\n\n{section['description']}\n\n{_TABLE}{rows}")
    return "\n".join([*parts, _VARIANTS + _variants(), _PAPER + _paper()])


def _rows(fields: dict[str, Any], section: tuple[str, ...], definitions: dict[str, Any]) -> str:
    rows = []
    for name, field in fields.items():
        path = (*section, name)
        description = " ".join(field["description"].split()).replace("|", "\\|")
        description = description.replace(f"docs/reference/{PAGE.name} lists", "[the table below](#variants) lists")
        description = re.sub(r"docs/reference/(\w+\.md)", r"[\1](\1)", description)
        rows.append(
            f"| `{'.'.join(path)}` | {_values(field, definitions)} | {_default(path, field)} | {description} |\n"
        )
        nested = [definitions[_target(each)] for each in field.get("anyOf", []) if "$ref" in each]
        rows += [_rows(each["properties"], path, definitions) for each in nested]
    return "".join(rows)


def _values(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Type and range, or the list of choices."""
    if "anyOf" in field:
        return " or ".join(_values(each, definitions) for each in field["anyOf"])
    if "$ref" in field:
        return "a section"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field["type"] == "array":
        items = field.get("prefixItems")
        each = _values(items[0] if items else field["items"], definitions)
        return f"list of {len(items)}: {each}" if items else f"list: {each}"
    if field["type"] == "object":
        return "mapping"
    bounds = [text.format(f"{field[key]:,}") for key, text in _BOUNDS.items() if key in field]
    return " ".join([_TYPES[field["type"]], *[", ".join(bounds)] * bool(bounds)])


def _default(path: tuple[str, ...], field: dict[str, Any]) -> str:
    """As it is written in YAML. In a section that is null by default, it is the value that counts if it is given."""
    value = Config().model_dump(mode="json")
    for name in path:
        value = value[name] if value else field["default"]
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, dict):
        return "{}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _target(field: dict[str, Any]) -> str:
    return str(field["$ref"]).rpartition("/")[2]


def _variants() -> str:
    """Name, label and settings of each variant; values that follow from the configuration are those of the defaults."""
    rows = []
    for name, (label, changes) in variants(Config()).items():
        settings = [
            f"`{section}.{key}: {_yaml(value)}`" for section, values in changes.items() for key, value in values.items()
        ]
        rows.append(f"| `{name}` | {label.replace('*', chr(92) + '*')} | {', '.join(settings)} |\n")
    return "".join(rows)


def _paper() -> str:
    robust = Config().model_dump(mode="json")
    return "".join(
        f"| `{section}.{name}` | `{_yaml(robust[section][name])}` | `{_yaml(value)}` |\n"
        for section, changes in PROFILES["paper"].items()
        for name, value in changes.items()
    )
