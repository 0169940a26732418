"""`lipt open`."""

import webbrowser
from contextlib import ExitStack
from pathlib import Path

import click

from lipt.cli.options import set_option
from lipt.cli.suggestions import runs


@click.command("open")
@click.argument("run", metavar="CONFIG", shell_complete=runs)
@set_option
def open_report(run: str, overrides: tuple[str, ...]) -> None:
    """Open the report of a finished run of CONFIG in a browser, and print its path.

    CONFIG can also be a RUN that `lipt ls` lists (in another workspace than runs: WORKSPACE/reports/RUN), or the handle
    of a run on a cluster. A report that lies in an object store is first written into the current folder.
    """
    from lipt.cli.finished import find_report

    with ExitStack() as stack:
        path = find_report(run, overrides, stack).rendered()
    webbrowser.open(Path(path).absolute().as_uri())
    click.echo(path)
