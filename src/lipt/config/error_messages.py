"""Describes invalid settings: which setting, where it was set, what it should be."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from reprlib import Repr
from typing import Any, get_args

from lipt.config.base import Section
from lipt.config.config import Config
from lipt.errors import UsageError, did_you_mean

#: The path of a setting -> where its value was written, such as `run.yaml, line 3`.
Places = Mapping[tuple[str, ...], str]

#: Problems that are shown.
_MOST = 5
_ALL = "see `lipt config show` for all settings"
#: How YAML writes what Python writes differently.
_YAML = {"None": "null", "True": "true", "False": "false"}
_repr = Repr()
_repr.maxlevel, _repr.maxstring, _repr.maxother = 2, 60, 60


def describe(details: Sequence[Any], origin: str, places: Places) -> list[UsageError]:
    """All errors of pydantic, each with the place where the setting was set, or with `origin`."""
    found: dict[tuple[str, ...], list[Any]] = {}
    for detail in details:
        found.setdefault(_path(detail["loc"]), []).append(detail)
    shown = list(found.items())[:_MOST]
    problems = [
        UsageError(f"{_place(path, entries, origin, places)}: {_message(path, entries)}", how_to_correct(entries[0]))
        for path, entries in shown
    ]
    if len(found) > _MOST:
        problems.append(UsageError(f"and {len(found) - _MOST} more", _ALL))
    return problems


def how_to_correct(entry: Any) -> str:
    """The remedy of an error of pydantic: a rule about several settings needs another one than a wrong value."""
    several = entry["type"] == "value_error" and len(set(re.findall(r"[a-z_]+\.[a-z_]+", str(entry["msg"])))) > 1
    return "change one of these settings" if several else _ALL


def _path(loc: Sequence[str | int]) -> tuple[str, ...]:
    """The setting of a pydantic location, without union members and list items, unless these are sections."""
    section: Any = Config
    for depth, part in enumerate(loc):
        if isinstance(part, int):  # an item of a list of sections
            continue
        field = section.model_fields.get(part)
        annotation = field and field.annotation
        options = [annotation, *get_args(annotation)]  # a section may be optional
        section = next((each for each in options if isinstance(each, type) and issubclass(each, Section)), None)
        if section is None:
            return tuple(map(str, loc[: depth + 1]))
    return tuple(map(str, loc))


def _place(path: tuple[str, ...], entries: list[Any], origin: str, places: Places) -> str:
    """Where it was set; for a rule about several settings, the places of those that its message names."""
    message = str(entries[0]["msg"])
    named = [place for keys, place in places.items() if len(keys) > 1 and _names(message, ".".join(keys))]
    if entries[0]["type"] == "value_error" and named:
        return ", ".join(dict.fromkeys(named))
    for stop in range(len(path), 0, -1):
        if path[:stop] in places:
            return places[path[:stop]]
    return next((place for keys, place in places.items() if path and keys[: len(path)] == path), origin)


def _names(message: str, setting: str) -> bool:
    """Whether a message names a setting: `train.epochs` does not name `train.epoch`."""
    return re.search(rf"(?<![\w.]){re.escape(setting)}(?!\w)", message) is not None


def _message(path: tuple[str, ...], entries: list[Any]) -> str:
    name, first = re.sub(r"\.(\d+)\b", r"[\1]", ".".join(path)), entries[0]
    item = first["loc"][len(path) : len(path) + 1]
    if item and isinstance(item[0], int):
        name += f"[{item[0]}]"
    value = _YAML.get(repr(first["input"])) or _repr.repr(first["input"])
    if first["type"] == "extra_forbidden":
        if nested := _nested(path, value):
            return f"unknown key {_repr.repr(name)}; settings are nested: {nested}"
        return f"unknown key {_repr.repr(name)}; {_suggestion(path)}"
    if first["type"] == "invalid_key":  # a number, or a word such as yes
        return f"unknown key {'.'.join((*path[:-1], value))!r}; {_suggestion(path)}"
    if first["type"] == "value_error":
        message = str(first["ctx"]["error"])
        return message if not path or message.startswith(name) else f"{name}: {message}"
    if first["type"] == "missing":
        return f"{name} is missing"
    if first["type"] == "model_type" and path[-1].isdecimal():
        return f"{name} is {value}; it should be a mapping: {{KEY: VALUE}}"
    if first["type"] == "model_type":
        return f"{name} is {value}; it is a section, write {name}.KEY: VALUE"
    if first["type"] == "string_pattern_mismatch":
        return f"{name} is {value}; it should be {_description(path)}"
    if first["type"] == "too_short":
        count = first["ctx"]["actual_length"]
        there = f"has {count} entr{'y' if count == 1 else 'ies'}" if count else "is empty"
        return f"{name} {there}; it should have at least {first['ctx']['min_length']}"
    if first["type"] == "too_long":
        count, most = first["ctx"]["actual_length"], first["ctx"]["max_length"]
        return f"{name} has {count} entries; it should have {most} at most"
    told = [str(entry["msg"]).replace("a valid tuple", "a valid list") for entry in entries]  # YAML has no tuples
    should = [text.removeprefix("Input ").partition(", unable")[0] for text in told]
    if not should[0].startswith("should be "):
        return f"{name}: {should[0]}"
    wanted = " or ".join([should[0], *(text.removeprefix("should be ") for text in should[1:])])
    return f"{name} is {value}; it {wanted}{_as_share(first)}"


def _as_share(entry: Any) -> str:
    """How a share is written, for one that was given in per cent."""
    text = str(entry["input"]).strip()
    if entry["type"] != "float_parsing" and entry.get("ctx", {}).get("le") != 1:
        return ""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        return ""
    return f"; {percent:g} % is written {percent / 100:g}" if text.endswith("%") or 1 < percent <= 100 else ""


def _description(path: tuple[str, ...]) -> str:
    """The first sentence of a setting's docstring, as the end of a sentence."""
    section: Any = Config
    for part in path[:-1]:
        section = section.model_fields[part].annotation
    text = str(section.model_fields[path[-1]].description).partition(". ")[0]
    return f"{text[0].lower()}{text[1:].rstrip('.')}"


def _nested(path: tuple[str, ...], value: str) -> str:
    """How a setting is written that was named with dots in a mapping; "" if it was not, or is none."""
    keys = tuple(".".join(path).split("."))
    if len(keys) == len(path) or keys[:2] not in _settings(Config):
        return ""
    return f"{''.join(f'{{{key!r}: ' for key in keys)}{value}{'}' * len(keys)}"


def _suggestion(path: tuple[str, ...]) -> str:
    """The settings of that name in other sections, else those with a similar name, else all of the section."""
    leaves: dict[str, list[str]] = {}
    own: dict[str, str] = {}
    section = tuple(part for part in path[:-1] if not part.isdecimal())  # without items of lists
    for keys in _settings(Config):
        leaves.setdefault(keys[-1], []).append(".".join(keys))
        if keys[:-1] == section:
            own[keys[-1]] = ".".join(keys)
    leaf = path[-1][:_LONGEST]
    meant = leaves.get(leaf, [])
    for near in get_close_matches(leaf, leaves, n=1):
        meant = meant or ([own[near]] if near in own else leaves[near])
    return f"did you mean {' or '.join(map(repr, meant))}?" if meant else did_you_mean(leaf, own or Config.model_fields)


#: No name is longer; the time of a comparison grows with the product of the lengths.
_LONGEST = 60


def _settings(section: type[Section]) -> Iterator[tuple[str, ...]]:
    """The paths of sections and of the settings in them."""
    for name, field in section.model_fields.items():
        yield (name,)
        for kind in get_args(field.annotation) or (field.annotation,):  # `Race | None`
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from ((name, *keys) for keys in _settings(kind))
