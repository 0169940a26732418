"""Where reports lie in a workspace, and how they are read."""

import hashlib
from contextlib import suppress
from shlex import quote
from typing import Any

import yaml

from lipt.adapters.store import MissingObjectError, Store
from lipt.config import Config
from lipt.report.document import Document
from lipt.report.side_by_side import flat_settings
from lipt.runtime.artifact import canonical_json

#: The files of a report: the numbers, which are written last; the page; the configuration; the names of the subset.
REPORT, PAGE, CONFIG, CHOSEN = "report.json", "report.html", "config.yaml", "chosen.txt"


def run_id(config: Config, *, comparison: bool = False) -> str:
    """The name of a configuration, with its digest; that of its comparison (`lipt compare`) has an ending.

    A workspace that was moved or copied still has its reports: its place is not in the digest. Two projects with
    different images have different digests, even if both call their folder `images`.
    """
    settings = located_settings(config)
    del settings["workspace"]
    digest = hashlib.sha256(canonical_json(settings)).hexdigest()[:8]
    return f"{config.name}-{digest}" + ("-compare" if comparison else "")


def located_settings(config: Config) -> dict[str, Any]:
    """All settings of a run, with the absolute path of local images."""
    from lipt.data.sources import located  # Pillow takes 50 ms to import

    settings = config.model_dump(mode="json")
    settings["data"]["source"] = located(config.data.source, config.data.format)
    return settings


def report_folder(config: Config, *, comparison: bool = False) -> str:
    """Where a configuration's report lies in the workspace, with the files beside it."""
    return f"reports/{run_id(config, comparison=comparison)}"


def folder_of(document: Document) -> str:
    """Where this report lies."""
    return f"reports/{document.run_id}"


def page_of(store: Store, folder: str) -> str:
    """Path or address of a report as an HTML page, as a person opens it."""
    return f"{store.uri.removeprefix('file://')}/{folder}/{PAGE}"


def reports_of(store: Store, config: Config) -> dict[str, Document]:
    """The finished reports of a configuration, by folder: that of its run, then that of its comparison.

    Raises:
        IntegrityError: one is damaged, or of another format.
    """
    found = {}
    for comparison in (False, True):
        folder = report_folder(config, comparison=comparison)
        with suppress(MissingObjectError):
            found[folder] = read_report(store, folder)
    return found


def near_run(store: Store, config: Config) -> str:
    """The end of a remedy: the place of the run of this name whose settings differ least, and how they differ.

    Who changes a setting with --set must repeat it: it is part of the address of the run. "" if there is no such run.
    """
    wanted, found = dict(flat_settings(located_settings(config))), dict[str, list[str]]()
    for key in store.list(f"reports/{config.name}-"):
        if key.endswith(f"/{CONFIG}"):
            with suppress(MissingObjectError, yaml.YAMLError, AttributeError):
                document = yaml.safe_load(store.read(key, kind="other"))
                if document.get("name") != config.name:  # its name only begins like this
                    continue
                settings = dict(flat_settings(document))
                other = {name: value for name, value in settings.items() if wanted.get(name) != value}
                found[key.split("/")[1]] = [f"--set {quote(f'{name}={value}')}" for name, value in other.items()]
    if not found:
        return ""
    run = min(found, key=lambda each: len(found[each]))
    if not found[run]:
        return ""
    return f"; a run with {' '.join(found[run])} exists: {store.uri.removeprefix('file://')}/reports/{run}"


def read_report(store: Store, folder: str) -> Document:
    """
    Raises:
        MissingObjectError: there is none.
        IntegrityError: it is damaged, or of another format.
    """
    key = f"{folder}/{REPORT}"
    return Document.from_json(store.read(key, kind="other"), origin=f"{store.uri}/{key}")
