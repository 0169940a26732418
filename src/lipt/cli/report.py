"""`lipt report`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lipt.adapters.cluster.engine import DEFAULT_NAMESPACE
from lipt.cli.options import config_options, output_option, print_json
from lipt.cli.verbose import is_verbose
from lipt.errors import RunError, UsageError

if TYPE_CHECKING:
    from lipt.adapters.store import Store
    from lipt.config import Config
    from lipt.report.document import Document


@click.command()
@config_options
@output_option
def report(config_path: str, overrides: tuple[str, ...], output: str) -> None:
    """Show the verdict of a finished `run` or `compare` of CONFIG, and render its HTML report again.

    CONFIG can be the handle of a run on a cluster. The report is then also written into the current folder.
    """
    from lipt.adapters.store import MissingObjectError
    from lipt.config import load_config
    from lipt.flow.address import report_key, run_id
    from lipt.report.document import Document
    from lipt.report.html_page import render
    from lipt.runtime.workspace import Workspace

    remote = config_path.startswith(tuple(f"{engine}/" for engine in DEFAULT_NAMESPACE))
    config = _config_of_run(config_path, overrides) if remote else load_config(config_path, list(overrides))
    store, key = Workspace(config.workspace).store, report_key(config, "json")
    try:
        document = Document.from_json(store.read(key, kind="other"), origin=f"{store.uri}/{key}")
    except MissingObjectError:
        raise RunError(f"{store.uri} has no report of this configuration", "run it first: lipt run") from None
    html = render(document).encode()
    store.write(report_key(config, "html"), html, kind="other")
    location = location_of(store, config)
    if remote:
        location = f"{run_id(config)}.html"
        Path(location).write_bytes(html)
    show_report(document, location, output)


def _config_of_run(handle: str, overrides: tuple[str, ...]) -> Config:
    """The configuration that a run on a cluster was started with."""
    from lipt.adapters.cluster.api import Cluster
    from lipt.adapters.cluster.runs import Handle
    from lipt.pods.spec import PARAMETERS, configure

    if overrides:
        raise UsageError("--set cannot change a finished run", "remove --set")
    address = Handle.parse(handle)
    parameters = address.client(Cluster()).state(address.run).parameters
    settings = {name: value for name, value in parameters.items() if name in PARAMETERS}
    return configure(str(parameters.get("config") or ""), **settings)


def location_of(store: Store, config: Config) -> str:
    """Path or address of a configuration's report, as a person opens it."""
    from lipt.flow.address import report_key

    return f"{store.uri.removeprefix('file://')}/{report_key(config, 'html')}"


def show_report(document: Document, location: str, output: str) -> None:
    """Verdict and table; the last line on stdout is the report's location."""
    from lipt.report.costs import spent
    from lipt.report.verdict import judge

    verdict = judge(document.rows)
    if output == "json":
        rows = [row.model_dump(mode="json") for row in document.rows]
        this_run, earlier = spent(document.ledger)
        print_json(
            {
                "run_id": document.run_id,
                "report": location,
                "rows": rows,
                "spent": {"this_run": asdict(this_run), "earlier_runs": asdict(earlier)},
                "verdict": {"level": verdict.level, "headline": verdict.headline, "sentences": verdict.sentences},
            }
        )
        return
    from lipt.report.terminal import print_report

    print_report(document, verdict, whole=is_verbose())
    click.echo(f"\n{location}")
