"""From YAML to validated settings; every mistake is one clear error that names the setting.

`profile: paper` replaces the defaults in which the paper differs. What a user writes always wins over the profile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from lipt.config.sections import Config
from lipt.errors import UsageError, did_you_mean

#: Where the paper's recipe differs from the robust defaults (method.md section 2).
PROFILES: dict[str, dict[str, Any]] = {
    "robust": {},
    "paper": {
        "dispatch": {"stratified": False},
        "pretrain": {"lr": 0.1},
        "merge": {"search": "grid", "batchnorm": "averaged", "fallback": False, "search_images": None},
        "select": {"algorithm": "grand"},
    },
}


def parse_config(document: dict[str, Any], *, origin: str = "configuration") -> Config:
    """Validate a nested mapping; the profile's values lie under the user's.

    Raises:
        UsageError: unknown key (with the closest known one), wrong type or value; names `origin` and the key.
    """
    profile = document.get("profile", "robust")
    base = PROFILES.get(profile if isinstance(profile, str) else "", {})
    try:
        return Config.model_validate(_overlay(base, document))
    except ValidationError as error:
        problems = [_problem(detail) for detail in error.errors()]
        raise UsageError(
            f"{origin}: " + "; ".join(problems), "see `lipt config schema`, or `lipt config show`"
        ) from None


def load_config(path: str | None, overrides: list[str] | None = None) -> Config:
    """Read a YAML file (None: all defaults) and apply `a.b=value` overrides, whose values are YAML.

    Raises:
        UsageError: no such file, not YAML, not a mapping, or an invalid setting.
    """
    document: Any = {}
    if path is not None:
        try:
            document = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}", "name an existing YAML file") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}", "correct that line") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path} holds a {type(document).__name__}, not settings", "write `key: value` lines")
    for text in overrides or []:
        document = _overlay(document, _override(text))
    return parse_config(document, origin=path or "settings")


def override(config: Config, changes: dict[str, Any]) -> Config:
    """A copy with nested `changes` applied and validated again."""
    return parse_config(_overlay(config.model_dump(mode="json"), changes))


def _override(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text}: not of the form a.b=value", "for example --set select.fraction=0.05")
    try:
        nested: Any = yaml.safe_load(value)
    except yaml.YAMLError:
        raise UsageError(f"--set {text}: the value is not YAML", "quote it") from None
    for part in reversed(key.split(".")):
        nested = {part: nested}
    return dict(nested)


def _overlay(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """`top` over `base`, section by section; `select.options` is replaced as a whole, its keys belong together."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict) and key != "options"
        merged[key] = _overlay(dict(below or {}), value) if both else value
    return merged


def _problem(detail: Any) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] != "extra_forbidden":
        return (
            f"{where}: {detail['msg'].removeprefix('Value error, ')}"
            if where
            else detail["msg"].removeprefix("Value error, ")
        )
    section: Any = Config
    for part in detail["loc"][:-1]:
        section = section.model_fields[part].annotation
    return f"unknown key {where!r}; {did_you_mean(str(detail['loc'][-1]), section.model_fields)}"
