"""Where reports lie in a workspace, and how they are read."""

import hashlib
from typing import Literal

from lipt.adapters.store import Store
from lipt.config import Config
from lipt.report.document import Document
from lipt.runtime.artifact import canonical_json


def run_id(config: Config) -> str:
    """The name of a configuration, with its digest."""
    return f"{config.name}-{hashlib.sha256(canonical_json(config.model_dump(mode='json'))).hexdigest()[:8]}"


def report_folder(config: Config) -> str:
    """Where a configuration's report lies in the workspace, with the files beside it."""
    return f"reports/{run_id(config)}"


def report_key(config: Config, kind: Literal["html", "json"]) -> str:
    """The key of a configuration's report in the workspace."""
    return f"{report_folder(config)}/report.{kind}"


def page_of(store: Store, folder: str) -> str:
    """Path or address of a report as an HTML page, as a person opens it."""
    return f"{store.uri.removeprefix('file://')}/{folder}/report.html"


def read_report(store: Store, folder: str) -> Document:
    """
    Raises:
        MissingObjectError: there is none.
        IntegrityError: it is damaged, or of another format.
    """
    key = f"{folder}/report.json"
    return Document.from_json(store.read(key, kind="other"), origin=f"{store.uri}/{key}")
