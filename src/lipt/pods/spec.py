"""The run specification, a small file that all pods of a run share, and settings from an engine's parameters."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import yaml

from lipt.adapters.cluster.job_manifest import Pods
from lipt.adapters.store import open_store
from lipt.config import PROFILES, Config, Train, as_settings, parse_config, read_yaml, without
from lipt.errors import IntegrityError, UsageError
from lipt.pipeline import Engine

#: Pipeline parameter -> (its setting, its type).
PARAMETERS: dict[str, tuple[str, type]] = {
    "data": ("data.source", str),
    "workspace": ("workspace", str),
    "model": ("model.name", str),
    "width": ("model.width", int),
    "algorithm": ("select.algorithm", str),
    "fraction": ("select.fraction", float),
    "epoch_fraction": ("train.epoch_fraction", float),
    "jigsaws": ("dispatch.jigsaws", int),
    "batches": ("dispatch.batches", int),
    "passes": ("pretrain.passes", int),
    "epochs": ("train.epochs", int),
    "train_nodes": ("train.nodes", int),
    "seed": ("seed", int),
    "seeds": ("compare.seeds", list),
    "profile": ("profile", str),
    "random_baseline": ("train.random_baseline", bool),
    "chunk_mb": ("data.chunk_mb", float),
    "shuffle_seed": ("data.shuffle_seed", int),
}
#: Parameters for which 0 means "not set", because engines have no null for numbers.
UNSET_IF_ZERO = {"width", "epoch_fraction"}
_EPOCHS = Train().epochs


def _value_at(settings: dict[str, Any], setting: str, missing: Any = None) -> Any:
    """The value of `section.key` or `key`."""
    section, _, key = setting.rpartition(".")
    holder = settings.get(section, {}) if section else settings
    return holder.get(key, missing) if isinstance(holder, dict) else missing


#: Setting -> its default, of the settings that have a parameter.
_DEFAULTS = {setting: _value_at(Config().model_dump(mode="json"), setting) for setting, _ in PARAMETERS.values()}


def configure(config: str, **parameters: Any) -> Config:
    """The configuration of a run that was started with pipeline parameters.

    A run must use the parameters that the engine shows. So `config` may not contradict them. Nor may the profile
    contradict a parameter that has its default value, because then nobody may have chosen that value; `config` can
    confirm it. Another value replaces the profile's.

    Args:
        config: YAML of the settings that have no parameter.
        parameters: values by the names in `PARAMETERS`; numbers may be given as text.

    Raises:
        UsageError: not YAML, an invalid setting, or a contradiction, of which it names both sides.
    """
    document, places = _settings(config)
    profile: dict[str, Any] = PROFILES.get(parameters.get("profile", ""), {})
    conflicts = []
    for name, given in parameters.items():
        value = _typed(name, given)
        if name in UNSET_IF_ZERO and not value:
            continue
        setting = PARAMETERS[name][0]
        section, _, key = setting.rpartition(".")
        origin, found = "config", _value_at(document, setting)
        if found is None and value == _DEFAULTS[setting]:
            origin, found = "the profile", _value_at(profile, setting)
        if found not in (None, value):
            conflicts.append(f"parameter {name} is {value!r}, {origin} says {setting}: {found!r}")
        if name == "epochs" and value == _EPOCHS:
            continue  # engines also pass a default, and only epochs that somebody wrote override a profile's steps
        holder = document.setdefault(section, {}) if section else document
        if isinstance(holder, dict):  # else the check of the configuration says what a section is
            holder[key] = value
    if conflicts:
        raise UsageError("; ".join(conflicts), "set it once, in the parameter")
    # Only now, because a setting in `config` may need one that is a parameter.
    return parse_config(document, origin="pipeline parameters", places=places)


def parameters_of(config: Config, names: list[str]) -> dict[str, Any]:
    """The pipeline parameters of a configuration; the inverse of `configure`.

    Args:
        names: the parameters of the pipeline. All other settings go into `config` as YAML.
    """
    document = config.model_dump(mode="json")
    epochs = {"train": {"epochs": config.train.epochs}} if config.train.epochs != _EPOCHS else {}
    rest = without(document, parse_config({"profile": config.profile} | epochs).model_dump(mode="json"))
    parameters, profile = {}, PROFILES[config.profile]
    for name in names:
        if name not in PARAMETERS:
            continue
        setting, kind = PARAMETERS[name]
        section, _, key = setting.rpartition(".")
        value = _value_at(document, setting)
        parameters[name] = kind() if value is None and name in UNSET_IF_ZERO else value
        if value == _DEFAULTS[setting] != _value_at(profile, setting, value):
            continue  # `config` confirms it
        holder = rest.get(section, {}) if section else rest
        holder.pop(key, None)
        if section and not holder:
            rest.pop(section, None)
    # On one line: in the form of Kubeflow's UI, where a user may edit the copy of a run, a field holds no line break.
    config_yaml = yaml.safe_dump(rest, default_flow_style=True, width=math.inf).strip() if rest else ""
    return parameters | {"config": config_yaml}


def _settings(config: str) -> tuple[dict[str, Any], dict[tuple[str, ...], str]]:
    """The mapping in `config`, and the place of each key."""
    document, lines = read_yaml(config, "config")
    if document is None and config.strip():  # a form with one line per field makes one comment of a pasted file
        raise UsageError("config contains only a comment", "write it in one line: {train: {epochs: 10}, …}")
    return as_settings(document, "config"), {keys: f"config, line {line}" for keys, line in lines.items()}


def _typed(name: str, given: Any) -> Any:
    """A parameter's value; engines without types pass text."""
    kind = PARAMETERS[name][1]
    if kind is str or not isinstance(given, str):
        return given
    try:
        value, _ = read_yaml(given, f"parameter {name}")
        return float(value) if kind is float else value
    except (UsageError, TypeError, ValueError):
        return given  # the check of the configuration reports it, with the expected type


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """The run specification. It lies in the workspace, so that a box needs only its address."""

    config: dict[str, Any]
    dataset: str
    initial: tuple[str, ...]
    shards: str | None
    engine: Engine
    pods: Pods
    """Resources and placement of worker pods."""
    failures: dict[int, str] = field(default_factory=dict)
    """Error message of each lost model of `score.runs`, by index."""

    @property
    def refs(self) -> list[str]:
        """The artifacts that it refers to."""
        return [self.dataset, *self.initial, *([self.shards] if self.shards else [])]

    def save(self) -> str:
        """Write it to the workspace; returns its address, `WORKSPACE/specs/KEY.json`."""
        return save_spec(self.config["workspace"], asdict(self) | {"pods": self.pods.model_dump()})

    @classmethod
    def load(cls, address: str) -> RunSpec:
        """Read it; raises as `load_spec`."""
        document = load_spec(address)
        pods = Pods(**document["pods"])
        failures = {int(index): why for index, why in document.get("failures", {}).items()}
        return cls(**{**document, "initial": tuple(document["initial"]), "pods": pods, "failures": failures})


_FOLDER = "specs"


def save_spec(workspace: str, document: dict[str, Any]) -> str:
    """Write a specification for pods to the workspace; returns its address, `WORKSPACE/specs/KEY.json`."""
    data = json.dumps(document, indent=1, sort_keys=True).encode()
    store = open_store(workspace)
    key = f"{_FOLDER}/{hashlib.sha256(data).hexdigest()[:16]}.json"
    store.write(key, data, kind="other")
    return f"{store.uri}/{key}"


def load_spec(address: str) -> dict[str, Any]:
    """Read a specification that `save_spec` wrote.

    Raises:
        UsageError: `address` is not the address of a specification.
        IntegrityError: the file is damaged.
        MissingObjectError: the file does not exist.
    """
    workspace, found, key = address.rpartition(f"/{_FOLDER}/")
    if not found:
        raise UsageError(
            f"{address!r} is not the address of a run specification",
            f"pass the address that dispatch prints: WORKSPACE/{_FOLDER}/KEY.json",
        )
    data = open_store(workspace).read(f"{_FOLDER}/{key}", kind="other")
    if hashlib.sha256(data).hexdigest()[:16] != key.removesuffix(".json"):
        raise IntegrityError(f"{address} is damaged", "start the run again")
    document: dict[str, Any] = json.loads(data)
    return document
