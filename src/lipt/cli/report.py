"""`lipt report`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lipt.cli import suggestions
from lipt.cli.options import output_option, print_json, set_option
from lipt.cli.verbose import is_verbose
from lipt.errors import LiptError, all_in_one

if TYPE_CHECKING:  # the imports take longer than the tab key may
    from lipt.cli.finished import Found
    from lipt.report.document import Document
    from lipt.report.next_step import Origin


@click.command()
@click.argument("runs", metavar="CONFIG...", nargs=-1, required=True, shell_complete=suggestions.runs)
@set_option
@output_option
def report(runs: tuple[str, ...], overrides: tuple[str, ...], output: str) -> None:
    """Show the verdict of the last finished `run` or `compare` of CONFIG, and write its HTML report again.

    Several CONFIGs are put side by side, on one page in the current folder. Runs on different data are shown, but not
    compared. CONFIG can also be a RUN that `lipt ls` lists (in another workspace than runs: WORKSPACE/reports/RUN), or
    the handle of a run on a cluster. The report of a handle is also written into the current folder. Its store is that
    of the cluster's runs, unless LIPT_S3_ENDPOINT names one.
    """
    from lipt.cli.finished import write_here
    from lipt.report.next_step import Origin, identity_of

    with ExitStack() as stack:
        reports = _find_all(runs, overrides, stack)
        named = {each.location: (run, each) for run, each in reports}.values()  # a run that is named twice counts once
        found = [each for _, each in named]
        configs = [
            Origin(run, overrides, identity_of(each.document))
            if each.of_config
            else Origin.stored(each.document, each.store.uri)
            for run, each in named
        ]
        if len(found) == 1:
            show_with_page(found[0].document, found[0].shown, output, {found[0].document.run_id: configs[0]})
            return
    from lipt.report.html_page import render
    from lipt.report.side_by_side import distinct_names, side_by_side

    names = distinct_names([(each.document.run_id, each.store.uri) for each in found])
    document = side_by_side(dict(zip(names, (each.document for each in found), strict=True)))
    pages = dict(zip(names, (each.location for each in found), strict=True))
    origins = dict(zip(names, configs, strict=True))

    def write() -> str:
        return write_here(f"{document.run_id}.html", render(document, pages=pages, origins=origins).encode())

    show_with_page(document, write, output, origins)


def _find_all(runs: Sequence[str], overrides: tuple[str, ...], stack: ExitStack) -> list[tuple[str, Found]]:
    """The report of each run.

    Raises:
        LiptError: names all that were not found.
    """
    from lipt.cli.finished import find_report

    found, problems = list[tuple[str, "Found"]](), dict[str, LiptError]()
    for run in runs:
        try:
            found.append((run, find_report(run, overrides, stack)))
        except LiptError as error:
            problems.setdefault(error.message, error)
    if problems:
        raise all_in_one([*problems.values()])
    return found


def show_with_page(
    document: Document,
    write: Callable[[], str],
    output: str,
    origins: Mapping[str, Origin],
) -> None:
    """Write the page and show the report, also if the page cannot be written.

    Args:
        write: writes the page and returns its location.
        origins: as for `show_report`.

    Raises:
        LiptError: the error of `write`, once the report is shown.
    """
    page, failure = None, None
    try:
        page = write()
    except LiptError as error:
        failure = error
    show_report(document, page, output, origins)
    if failure:
        raise failure


def show_report(document: Document, location: str | None, output: str, origins: Mapping[str, Origin]) -> None:
    """Verdict and table; the last line on stdout is the report's location, if it has a page.

    Args:
        origins: run -> its configuration, for the commands that the report ends with.
    """
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
                "verdict": asdict(verdict),
            }
        )
        return
    from lipt.report.terminal import print_report

    print_report(document, verdict, whole=is_verbose(), origins=origins)
    if location:
        click.echo(f"\n{location}")
