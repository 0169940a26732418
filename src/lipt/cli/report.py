"""`lipt report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lipt.cli.options import config_options, output_option
from lipt.errors import RunError, UsageError

if TYPE_CHECKING:
    from lipt.config import Config


@click.command()
@config_options
@output_option
def report(config_path: str, overrides: tuple[str, ...], output: str) -> None:
    """Show the verdict of a finished `run` or `compare` of CONFIG, and render its HTML report again.

    CONFIG can be the handle of a run on a cluster. The report is then also written into this folder.
    """
    from lipt.adapters.cluster.engine import DEFAULT_NAMESPACE
    from lipt.adapters.store import MissingObjectError
    from lipt.cli.run import show
    from lipt.config import load_config
    from lipt.flow.report import report_key, run_id
    from lipt.report.document import Document
    from lipt.report.html_page import render
    from lipt.run.workspace import Workspace

    remote = config_path.startswith(tuple(f"{engine}/" for engine in DEFAULT_NAMESPACE))
    config = _config_of_run(config_path, overrides) if remote else load_config(config_path, list(overrides))
    store, key = Workspace(config.workspace).store, report_key(config, "json")
    try:
        document = Document.from_json(store.read(key, kind="other"), origin=f"{store.uri}/{key}")
    except MissingObjectError:
        raise RunError(f"{store.uri} has no report of this configuration", "run it first: lipt run") from None
    html = render(document).encode()
    store.write(report_key(config, "html"), html, kind="other")
    location = f"{store.uri.removeprefix('file://')}/{report_key(config, 'html')}"
    if remote:
        location = f"{run_id(config)}.html"
        Path(location).write_bytes(html)
    show(document, location, output)


def _config_of_run(handle: str, overrides: tuple[str, ...]) -> Config:
    """The configuration that a run on a cluster was started with."""
    from lipt.adapters.cluster.api import Cluster
    from lipt.adapters.cluster.runs import Handle, engine_client
    from lipt.pods.spec import PARAMETERS, configure

    if overrides:
        raise UsageError("--set cannot change a finished run", "remove --set")
    address = Handle.parse(handle)
    parameters = engine_client(address.engine, Cluster(), address.namespace).state(address.run).parameters
    settings = {name: value for name, value in parameters.items() if name in PARAMETERS}
    return configure(str(parameters.get("config") or ""), **settings)
