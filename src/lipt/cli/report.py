"""`lipt report`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import click

from lipt.adapters.cluster.api import Cluster
from lipt.adapters.cluster.engine import DEFAULT_NAMESPACE
from lipt.adapters.cluster.runs import Handle
from lipt.adapters.store import MissingObjectError, Store, open_store
from lipt.cli.options import output_option, print_json, set_option
from lipt.cli.verbose import is_verbose
from lipt.config import Config, load_config
from lipt.errors import RunError, UsageError
from lipt.flow.address import page_of, read_report, report_folder
from lipt.pods.spec import PARAMETERS, configure
from lipt.report.costs import spent
from lipt.report.document import Document
from lipt.report.verdict import judge


@dataclass(frozen=True)
class Found:
    """A finished run's report, in a store."""

    document: Document
    store: Store
    folder: str
    """Key of the folder of the report."""
    remote: bool
    """Whether a person needs a copy in the current folder."""

    @property
    def location(self) -> str:
        """Path or address of the page, as a person opens it."""
        return page_of(self.store, self.folder)

    def rendered(self) -> str:
        """Render the page again; returns the path of a copy that a browser can open."""
        from lipt.report.html_page import render

        html = render(self.document).encode()
        self.store.write(f"{self.folder}/report.html", html, kind="other")
        if self.store.uri.startswith("file://") and not self.remote:
            return self.location
        copy = f"{self.folder.rpartition('/')[2]}.html"
        Path(copy).write_bytes(html)
        return copy


def find_report(run: str, overrides: tuple[str, ...]) -> Found:
    """The report of a configuration, of a handle, or of WORKSPACE/reports/RUN.

    Raises:
        RunError: there is none.
    """
    remote = run.startswith(tuple(f"{engine}/" for engine in DEFAULT_NAMESPACE))
    workspace, below, name = run.rstrip("/").rpartition("/reports/")
    if below and not remote and not run.endswith((".yaml", ".yml")):
        store, folder = open_store(workspace), f"reports/{name}"
    else:
        config = _config_of_run(run, overrides) if remote else load_config(run, list(overrides))
        store, folder = open_store(config.workspace), report_folder(config)
    try:
        return Found(read_report(store, folder), store, folder, remote)
    except MissingObjectError:
        raise RunError(f"{store.uri} has no report of {run}", "run it first: lipt run") from None


@click.command()
@click.argument("runs", metavar="CONFIG...", nargs=-1, required=True)
@set_option
@output_option
def report(runs: tuple[str, ...], overrides: tuple[str, ...], output: str) -> None:
    """Show the verdict of a finished `run` or `compare` of CONFIG, and render its HTML report again.

    Several CONFIGs are put side by side, on one page in the current folder. Runs on different data are shown, but not
    compared. CONFIG can also be the handle of a run on a cluster, or WORKSPACE/reports/RUN (`lipt ls` lists the runs).
    The report of a handle is also written into the current folder.
    """
    found = [find_report(run, overrides) for run in runs]
    if len(found) == 1:
        (one,) = found
        copy = one.rendered()
        show_report(one.document, copy if one.remote else one.location, output)
        return
    from lipt.report.html_page import render
    from lipt.report.side_by_side import side_by_side

    document = side_by_side([each.document for each in found])
    page = Path(f"{document.run_id}.html")
    page.write_text(render(document), encoding="utf-8")
    show_report(document, str(page), output)


def _config_of_run(handle: str, overrides: tuple[str, ...]) -> Config:
    """The configuration that a run on a cluster was started with."""
    if overrides:
        raise UsageError("--set cannot change a finished run", "remove --set")
    address = Handle.parse(handle)
    parameters = address.client(Cluster()).state(address.run).parameters
    settings = {name: value for name, value in parameters.items() if name in PARAMETERS}
    return configure(str(parameters.get("config") or ""), **settings)


def show_report(document: Document, location: str, output: str) -> None:
    """Verdict and table; the last line on stdout is the report's location."""
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
