"""`lipt report`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict

import click

from lipt.cli.finished import find_report, write_here
from lipt.cli.options import output_option, print_json, set_option
from lipt.cli.verbose import is_verbose
from lipt.errors import LiptError
from lipt.report.costs import spent
from lipt.report.document import Document
from lipt.report.next_step import PLACEHOLDER
from lipt.report.verdict import judge


@click.command()
@click.argument("runs", metavar="CONFIG...", nargs=-1, required=True)
@set_option
@output_option
def report(runs: tuple[str, ...], overrides: tuple[str, ...], output: str) -> None:
    """Show the verdict of the last finished `run` or `compare` of CONFIG, and write its HTML report again.

    Several CONFIGs are put side by side, on one page in the current folder. Runs on different data are shown, but not
    compared. CONFIG can also be the handle of a run on a cluster, or WORKSPACE/reports/RUN (`lipt ls` lists the runs).
    The report of a handle is also written into the current folder. Its store is that of the cluster's runs, unless
    LIPT_S3_ENDPOINT names one.
    """
    with ExitStack() as stack:
        reports = [find_report(run, overrides, stack) for run in runs]
        found = list({each.location: each for each in reports}.values())  # a run that is named twice counts once
        if len(found) == 1:
            config = runs[0] if found[0].of_config else PLACEHOLDER
            show_with_page(found[0].document, found[0].shown, output, config, overrides)
            return
    from lipt.report.html_page import render
    from lipt.report.side_by_side import distinct_names, side_by_side

    names = distinct_names([(each.document.run_id, each.store.uri) for each in found])
    document = side_by_side(dict(zip(names, (each.document for each in found), strict=True)))
    pages = dict(zip(names, (each.location for each in found), strict=True))
    show_with_page(
        document, lambda: write_here(f"{document.run_id}.html", render(document, pages=pages).encode()), output
    )


def show_with_page(
    document: Document,
    write: Callable[[], str],
    output: str,
    config: str = PLACEHOLDER,
    overrides: Sequence[str] = (),
) -> None:
    """Write the page and show the report, also if the page cannot be written.

    Args:
        write: writes the page and returns its location.
        config: as for `show_report`, and so are the overrides.

    Raises:
        LiptError: the error of `write`, once the report is shown.
    """
    page, failure = None, None
    try:
        page = write()
    except LiptError as error:
        failure = error
    show_report(document, page, output, config, overrides)
    if failure:
        raise failure


def show_report(document: Document, location: str | None, output: str, config: str, overrides: Sequence[str]) -> None:
    """Verdict and table; the last line on stdout is the report's location, if it has a page.

    Args:
        config: path of the configuration, for the command that the report ends with.
        overrides: the values of `--set`.
    """
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
                "verdict": asdict(verdict),
            }
        )
        return
    from lipt.report.terminal import print_report

    print_report(document, verdict, whole=is_verbose(), config=config, overrides=overrides)
    if location:
        click.echo(f"\n{location}")
