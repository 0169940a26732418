"""From YAML to validated settings. Every mistake is one error that names the setting and where it was set.

A profile replaces the defaults that differ in a published protocol. A user's settings always override the profile.
`train.epochs` and `train.steps` exclude each other: one of them also overrides the other of the level below.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from lipt.config.base import Section
from lipt.config.config import Config
from lipt.config.error_messages import Places, describe
from lipt.config.safe_yaml import MAX_CHARACTERS, MAX_DEPTH, read_yaml
from lipt.errors import UsageError, all_in_one

#: Where published protocols differ from the robust defaults: Ro et al., ICML 2023 (200 epochs of the subset, as the
#: defaults); Zheng et al., ICLR 2023, with the authors' code; Cho et al., ICML 2025, with theirs, at 10 % of CIFAR-10.
PROFILES: dict[str, dict[str, Any]] = {
    "robust": {},
    "paper": {
        "dispatch": {"stratified": False},
        "pretrain": {"lr": 0.1},
        "merge": {
            "search": "grid",
            "batchnorm": "averaged",
            "fallback": False,
            "search_images": None,
            "confirmation_images": None,
        },
        "select": {"algorithm": "grand"},
    },
    "ccs": {
        "score": {"model": "trajectory", "runs": 1, "epochs": 200},
        "select": {"algorithm": "ccs", "options": {"score": "aum"}},
        "train": {"steps": 40_000, "batch_size": 256},
    },
    "dual": {
        "initialise": {"batch_size": 128},
        "score": {"model": "trajectory", "runs": 1, "epochs": 30},
        "select": {"algorithm": "dual", "options": {"window": 10, "c_d": 5.5}},
        "train": {"steps": 31_400, "batch_size": 32},
    },
}


def parse_config(document: dict[str, Any], *, origin: str = "configuration", places: Places | None = None) -> Config:
    """Validate a nested mapping; the user's values override the profile's.

    Args:
        origin: source of the document, for errors.
        places: sources of single values, if known.

    Raises:
        UsageError: unknown key (with the closest known one), wrong type or value; names the key and its source.
    """
    profile = document.get("profile", "robust")
    base = PROFILES.get(profile if isinstance(profile, str) else "", {})
    try:
        return Config.model_validate(overlay(base, document))
    except ValidationError as error:
        raise all_in_one(describe(error.errors(include_url=False), origin, places or {})) from None


def load_config(path: str | None, overrides: list[str] | None = None) -> Config:
    """Read a YAML file (None: all defaults) and apply `a.b=value` overrides: texts as they are, other values as YAML.

    Raises:
        UsageError: no such file, not YAML, not a mapping, something else than a configuration, or an invalid setting.
    """
    found = read_settings(path) if path is not None else ({}, {})
    if {"base", "grid"} <= set(found[0]):
        raise UsageError(f"{path} is a sweep: it has base and grid", f"lipt sweep {path}; on a cluster add --engine")
    if {"apiVersion", "kind"} <= set(found[0]):
        raise UsageError(f"{path} is an object of Kubernetes, not a configuration", f"kubectl create -f {path}")
    if {"cells", "nbformat"} <= set(found[0]):
        raise UsageError(f"{path} is a notebook, not a configuration", f"open it with Jupyter: jupyter lab {path}")
    document, places = with_overrides(*found, overrides or [])
    return parse_config(document, origin=path or "settings", places=places)


def with_overrides(
    document: dict[str, Any], places: dict[tuple[str, ...], str], overrides: list[str]
) -> tuple[dict[str, Any], dict[tuple[str, ...], str]]:
    """The settings with `a.b=value` overrides applied, and the place of each."""
    places, lengths = dict(places), dict[tuple[str, ...], str]()
    for text in overrides:
        keys, value = _override(text)
        place = f"--set {text if len(text) <= _SHOWN else f'{text[:_SHOWN]}…'}"
        settings = dict(settings_in(keys, value))
        places |= dict.fromkeys(settings, place)
        places |= dict.fromkeys(_replaced(document, keys), place)
        lengths |= {length: place if settings[length] is not None else "" for length in LENGTHS & settings.keys()}
        document = put(document, keys, value)
    if len(both := list(dict.fromkeys(filter(None, lengths.values())))) > 1:
        raise UsageError(f"{' and '.join(both)} both set the length of the training", "keep one of them")
    return document, places


def _replaced(document: Any, keys: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The settings on this path that were no mappings: the path makes them mappings."""
    for depth, key in enumerate(keys[:-1], 1):
        document = document.get(key) if isinstance(document, dict) else None
        if document is not None and not isinstance(document, dict):
            yield keys[:depth]


def settings_in(keys: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A setting and its value; if that is a mapping, also each setting in it."""
    yield keys, value
    if isinstance(value, dict):
        for key, below in value.items():
            yield from settings_in((*keys, str(key)), below)


#: The settings of which only one may give the length of the training.
LENGTHS = {("train", "epochs"), ("train", "steps")}


def _without_other_length(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """`base` without the length of the training, if `top` gives it in epochs or in steps."""
    below, given = base.get("train"), top.get("train")
    if not isinstance(below, dict) or not isinstance(given, dict):
        return base
    lengths = {key for _, key in LENGTHS}
    if all(given.get(key) is None for key in lengths):
        return base
    return base | {"train": {key: value for key, value in below.items() if key not in lengths}}


def put(document: dict[str, Any], keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The settings with another value at this path. A single option of an algorithm leaves the others as they are."""
    alone = value
    for key in reversed(keys):
        alone = {key: alone}
    return _put(_without_other_length(document, alone), keys, value)


def _put(document: dict[str, Any], keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    key, *below = keys
    if not below:
        return _overlay(document, {key: value})
    inside = document.get(key)
    return document | {key: _put(inside if isinstance(inside, dict) else {}, tuple(below), value)}


_SHOWN = 80


def read_settings(path: str) -> tuple[dict[str, Any], dict[tuple[str, ...], str]]:
    """The mapping in a file, and the place of each key, such as `run.yaml, line 3`.

    Raises:
        UsageError: no such file, not YAML, empty, or not a mapping.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except IsADirectoryError:
        raise UsageError(
            f"{path} is a folder, not a configuration", f"lipt init writes one; --set data.source={path} names images"
        ) from None
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise UsageError(f"cannot read {path}: {error.strerror}", "let your user read it") from None
        near = _similar_file(path)
        raise UsageError(
            f"cannot read {path}: {error.strerror}",
            f"did you mean {near}?" if near else "`lipt init` writes an example",
        ) from None
    except UnicodeDecodeError:
        raise UsageError(
            f"{path} is not a text file in UTF-8", "name a YAML file of settings; images go into data.source"
        ) from None
    document, lines = read_yaml(text, path)
    if document is None and os.path.isfile(path):  # not /dev/null, which says that there are none
        raise UsageError(f"{path} is empty", "write settings into it; lipt init shows examples")
    return as_settings(document, path), {keys: f"{path}, line {line}" for keys, line in lines.items()}


def _similar_file(path: str) -> str:
    """The YAML file beside `path` whose name is most like it; "" if none is."""
    folder, name = os.path.split(path)
    there = list[str]()
    with suppress(OSError):
        there = [each for each in os.listdir(folder or ".") if each.endswith((".yaml", ".yml")) and each != name]
    return next((os.path.join(folder, each) for each in get_close_matches(name, there, n=1)), "")


def as_settings(document: Any, what: str) -> dict[str, Any]:
    """The document, which must be a mapping; an empty document is an empty mapping.

    Raises:
        UsageError: it is something else.
    """
    if document is None:
        return {}
    if not isinstance(document, dict):
        kind = "a list" if isinstance(document, list) else "a single value"
        raise UsageError(f"{what} contains {kind}, not settings", "write `key: value` lines")
    return document


def override(config: Config, changes: dict[str, Any]) -> Config:
    """A copy with nested `changes` applied and validated again.

    If `profile` changes, the values of the new profile replace those of the old one. Written settings stay.
    """
    written = config.model_dump(mode="json", exclude_unset=True)
    if changes.get("profile", config.profile) != config.profile:
        written = without(written, PROFILES[config.profile])
    return parse_config(overlay(written, changes))


def _override(text: str) -> tuple[tuple[str, ...], Any]:
    """The path and the value of `a.b=value`, which is YAML unless the setting is a text.

    A text is taken as it is, if it has no quotes: what YAML reads as a number, a comment or an alias is part of a name.
    """
    key, equals, value = text.partition("=")
    keys, written = tuple(key.split(".")), value.strip()
    if not equals or not all(keys) or len(keys) > MAX_DEPTH:
        raise UsageError(f"--set {text[:_SHOWN]}: not of the form a.b=value", "for example --set select.fraction=0.05")
    if written and written[0] not in "\"'" and _is_text(keys):
        return keys, written
    return keys, read_yaml(value, f"the value of --set {key}")[0]


def _is_text(keys: tuple[str, ...]) -> bool:
    """Whether a setting is a text, whatever it contains."""
    kind: Any = Config
    for key in keys:
        field = kind.model_fields.get(key) if isinstance(kind, type) and issubclass(kind, Section) else None
        kind = field and field.annotation
    return kind is str


def without(document: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """The settings of `document` that differ from `base`, section by section; `select.options` counts as a whole."""
    rest = {}
    for key, value in document.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict) and key != "options":
            if nested := without(value, base[key]):
                rest[key] = nested
        elif key not in base or value != base[key]:
            rest[key] = value
    return rest


def overlay(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """`top` over `base`, section by section.

    `select.options` is replaced as a whole, its keys belong together. So are `train.epochs` and `train.steps`.
    """
    return _overlay(_without_other_length(base, top), top)


def _overlay(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict) and key != "options"
        merged[key] = _overlay(dict(below or {}), value) if both else value
    return merged
