"""Where reports lie in a workspace, and how they are read."""

import hashlib
from contextlib import suppress

from lipt.adapters.store import MissingObjectError, Store
from lipt.config import Config
from lipt.report.document import Document
from lipt.runtime.artifact import canonical_json


def run_id(config: Config, *, comparison: bool = False) -> str:
    """The name of a configuration, with its digest; that of its comparison (`lipt compare`) has an ending.

    Two projects with different images have different digests, even if both call their folder `images`.
    """
    from lipt.data.sources import located  # Pillow takes 50 ms to import

    settings = config.model_dump(mode="json")
    settings["data"]["source"] = located(config.data.source, config.data.format)
    digest = hashlib.sha256(canonical_json(settings)).hexdigest()[:8]
    return f"{config.name}-{digest}" + ("-compare" if comparison else "")


def report_folder(config: Config, *, comparison: bool = False) -> str:
    """Where a configuration's report lies in the workspace, with the files beside it."""
    return f"reports/{run_id(config, comparison=comparison)}"


def folder_of(document: Document) -> str:
    """Where this report lies."""
    return f"reports/{document.run_id}"


def page_of(store: Store, folder: str) -> str:
    """Path or address of a report as an HTML page, as a person opens it."""
    return f"{store.uri.removeprefix('file://')}/{folder}/report.html"


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


def read_report(store: Store, folder: str) -> Document:
    """
    Raises:
        MissingObjectError: there is none.
        IntegrityError: it is damaged, or of another format.
    """
    key = f"{folder}/report.json"
    return Document.from_json(store.read(key, kind="other"), origin=f"{store.uri}/{key}")
