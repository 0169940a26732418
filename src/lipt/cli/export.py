"""`lipt export`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal

import click

from lipt.cli.options import output_option, print_json, set_option
from lipt.cli.suggestions import runs
from lipt.cli.verbose import is_quiet
from lipt.errors import UsageError
from lipt.report.numbers import format_percent

if TYPE_CHECKING:
    from lipt.flow.export import ImagesKind

#: Suffix of the target -> what is exported.
_KINDS: dict[str, ImagesKind | Literal["network"]] = {
    ".txt": "list",
    ".csv": "csv",
    ".tar": "tar",
    "": "folder",
    ".pt2": "network",
}


@click.command()
@click.argument("run", metavar="CONFIG", shell_complete=runs)
@set_option
@click.option("--to", required=True, metavar="TARGET", help="list.txt, FILE.csv, FILE.tar, FILE.pt2 or a new folder.")
@output_option
def export(run: str, overrides: tuple[str, ...], to: str, output: str) -> None:
    """Write what a finished run of CONFIG made, for other programs: the images that it selected, or its network.

    \b
    list.txt   the name of each image in its source, one per line
    FILE.csv   source, label, class, position and weight
    FILE.tar   a WebDataset tar of the images
    FOLDER     train/CLASS/NAME, as ImageFolder reads it
    FILE.pt2   the trained network, as torch.export.load reads it

    It writes everything or nothing, and never replaces a file. Of a comparison it writes what the first seed made.
    CONFIG can also be a RUN that `lipt ls` lists (in another workspace than runs: WORKSPACE/reports/RUN), or the handle
    of a run on a cluster.
    """
    kind = _kind_of(to)  # before the imports, which take seconds
    from lipt.cli.finished import find_report
    from lipt.flow.export import export as export_images
    from lipt.flow.export_network import export_network
    from lipt.progress import make_reporter

    with ExitStack() as stack:
        found = find_report(run, overrides, stack)
        reporter = make_reporter(quiet=is_quiet())
        stack.callback(reporter.close)
        ctx = found.context(reporter)
        reporter.started("export")
        written = (
            export_network(ctx, found.document, to)
            if kind == "network"
            else export_images(ctx, found.document, to, kind)
        )
    if len(written.seeds) > 1:
        first, *others = written.seeds
        again = f"run the config.yaml beside its report with --set seed={others[0]}, then export that run"
        if found.of_config:
            command = " ".join(["lipt run", quote(run), *(f"--set {quote(each)}" for each in overrides)])
            again = f"{command} --set seed={others[0]}, then lipt export with the same --set"
        click.echo(f"lipt: this is what seed {first} of the comparison made\n  -> of another seed: {again}", err=True)
    if output == "json":
        print_json({"to": to, **asdict(written)})
        return
    if written.kind == "network":
        click.echo(f"test accuracy {format_percent(written.test_accuracy)}, from {written.model}", err=True)
    else:
        click.echo(f"{written.count:,} of {written.candidates:,} candidates, from {written.subset}", err=True)
    click.echo(to)


def _kind_of(target: str) -> ImagesKind | Literal["network"]:
    """The kind of export that the suffix of `target` asks for.

    Raises:
        UsageError: `target` is empty or not a local path, has an unknown suffix, or exists already.
    """
    if not target:
        raise UsageError("--to is empty", "name a file or a folder")
    if "://" in target:
        raise UsageError(f"--to {target}: not a local path", "export to a local path, then copy the result")
    path = Path(target)
    kind = _KINDS.get(path.suffix.lower() if not (os.path.isdir(path) or target.endswith("/")) else "")
    if kind is None:
        raise UsageError(
            f"--to {target}: unknown suffix {path.suffix!r}",
            "give a .txt, .csv, .tar or .pt2 file, or a folder: FOLDER/",
        )
    is_free = not os.path.lexists(path) or (kind == "folder" and os.path.isdir(path) and not os.listdir(path))
    if not is_free or os.path.islink(path):
        raise UsageError(f"--to {target}: exists already", "delete it, or choose another name")
    return kind
