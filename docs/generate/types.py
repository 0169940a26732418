"""Types of a JSON schema, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_BOUNDS = {"exclusiveMinimum": "> {}", "minimum": "≥ {}", "exclusiveMaximum": "< {}", "maximum": "≤ {}"}
_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true, false", "null": "null"}


def values(field: dict[str, Any], section: Callable[[str], str]) -> str:
    """Type and range of a field, or its choices.

    Args:
        section: words for a field that has fields of its own, by the name of their model.
    """
    if "anyOf" in field:
        return " or ".join(values(each, section) for each in field["anyOf"])
    if "$ref" in field:
        return section(target(field))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field["type"] == "array":
        items = field.get("prefixItems")
        each = values(items[0] if items else field["items"], section)
        return f"list of {len(items)}: {each}" if items else f"list: {each}"
    if field["type"] == "object":
        return "mapping"
    bounds = [text.format(f"{field[key]:,}".removesuffix(".0")) for key, text in _BOUNDS.items() if key in field]
    return " ".join([_TYPES[field["type"]], *[", ".join(bounds)] * bool(bounds)])


def target(field: dict[str, Any]) -> str:
    """The name of the model that a field has."""
    return str(field["$ref"]).rpartition("/")[2]
