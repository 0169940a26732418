"""Builds an overlay without kustomize: the fields that manifests/ uses, anything else is an error.

Where `kubectl` or `kustomize` is installed a test compares the two, so that what is checked here is what is applied.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

_FIELDS = {
    "apiVersion", "kind", "resources", "components", "namespace", "labels", "images", "patches", "replacements",
}  # fmt: skip
_CLUSTER_WIDE = {"Namespace"}
_WITH_PODS = {"Deployment", "StatefulSet", "DaemonSet", "Job"}


class UnsupportedError(Exception):
    """Something that this does not build."""


def load(path: Path) -> list[Object]:
    """The documents of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def build(folder: Path) -> list[Object]:
    """The objects that `kubectl apply -k FOLDER` would send."""
    return _build(folder, [])


def _build(folder: Path, objects: list[Object]) -> list[Object]:
    (kustomization,) = load(folder / "kustomization.yaml")
    if unknown := set(kustomization) - _FIELDS:
        raise UnsupportedError(f"{folder}: {sorted(unknown)}")
    for entry in kustomization.get("resources", []):
        path = folder / entry
        objects = objects + (load(path) if path.is_file() else _build(path, []))
    for entry in kustomization.get("components", []):
        objects = _build(folder / entry, objects)
    for patch in kustomization.get("patches", []):
        objects = _patched(objects, patch)
    if namespace := kustomization.get("namespace"):
        _move(objects, namespace)
    for labels in kustomization.get("labels", []):
        _label(objects, **labels)
    for image in kustomization.get("images", []):
        _tag(objects, **image)
    for replacement in kustomization.get("replacements", []):
        _replace(objects, **replacement)
    local = "config.kubernetes.io/local-config"
    return [one for one in objects if one["metadata"].get("annotations", {}).get(local) != "true"]


def _patched(objects: list[Object], entry: Object) -> list[Object]:
    patch = yaml.safe_load(entry["patch"])
    if isinstance(patch, dict):
        if set(patch) != {"apiVersion", "kind", "metadata", "$patch"} or patch["$patch"] != "delete":
            raise UnsupportedError(f"a patch other than JSON 6902 and $patch: delete: {patch}")
        return [one for one in objects if one is not _one(objects, kind=patch["kind"], name=patch["metadata"]["name"])]
    target = _one(objects, **entry["target"])
    for step in patch:
        *parents, last = step["path"].strip("/").split("/")
        parent: Any = target
        for key in parents:
            parent = parent[int(key) if isinstance(parent, list) else key]
        if step["op"] == "add" and last == "-":
            parent.append(step["value"])
        elif step["op"] == "add" and isinstance(parent, dict):
            parent[last] = step["value"]
        elif step["op"] == "replace":
            key = int(last) if isinstance(parent, list) else last
            parent[key]  # must exist
            parent[key] = step["value"]
        else:
            raise UnsupportedError(step)
    return objects


def _move(objects: list[Object], namespace: str) -> None:
    accounts = {one["metadata"]["name"] for one in objects if one["kind"] == "ServiceAccount"}
    for one in objects:
        if one["kind"] in _CLUSTER_WIDE:
            one["metadata"]["name"] = namespace
        else:
            one["metadata"]["namespace"] = namespace
        for subject in one.get("subjects", []):
            if subject["name"] in accounts:
                subject["namespace"] = namespace


def _label(objects: list[Object], *, pairs: dict[str, str], includeTemplates: bool = False) -> None:
    for one in objects:
        one["metadata"].setdefault("labels", {}).update(pairs)
        if includeTemplates and one["kind"] in _WITH_PODS:
            one["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {}).update(pairs)


def _tag(objects: list[Object], *, name: str, newTag: str) -> None:
    for one in objects:
        if one["kind"] in _WITH_PODS:
            spec = one["spec"]["template"]["spec"]
            for container in spec.get("initContainers", []) + spec["containers"]:
                if container["image"].partition(":")[0] == name:
                    container["image"] = f"{name}:{newTag}"


def _replace(objects: list[Object], *, source: dict[str, str], targets: list[Object]) -> None:
    (holder, key), *more = _places(_one(objects, kind=source["kind"], name=source["name"]), source["fieldPath"])
    assert not more
    for target in targets:
        for path in target["fieldPaths"]:
            for parent, last in _places(_one(objects, **target["select"]), path):
                parent[last]  # must exist
                parent[last] = deepcopy(holder[key])


def _places(one: Object, path: str) -> list[tuple[Any, Any]]:
    """Where a path such as `a.[name=x].b` or `a.*.b` leads: what holds the value, and its key or index there."""
    places: list[tuple[Any, Any]] = [({"": one}, "")]
    for step in re.findall(r"\[[^]]*\]|[^.]+", path):
        found = []
        for parent, key in places:
            here = parent[key]
            if step == "*":
                found += [(here, index) for index in range(len(here))]
            elif step.startswith("["):
                name, _, value = step[1:-1].partition("=")
                found += [(here, index) for index, entry in enumerate(here) if entry[name] == value]
            else:
                found.append((here, step))
        places = found
    if not places:
        raise KeyError(path)
    return places


def _one(objects: list[Object], *, kind: str, name: str) -> Object:
    (found,) = (one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def canonical(objects: list[Object]) -> list[str]:
    """The same for two lists that say the same, in any order."""
    return sorted(json.dumps(one, sort_keys=True) for one in objects)
