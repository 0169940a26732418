"""`lipt export`."""

from contextlib import ExitStack
from dataclasses import asdict
from shlex import quote

import click

from lipt.cli.options import output_option, print_json, set_option
from lipt.cli.verbose import is_quiet
from lipt.report.numbers import format_percent


@click.command()
@click.argument("run", metavar="CONFIG")
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
    from lipt.cli.finished import find_report
    from lipt.flow.export import export as export_images
    from lipt.flow.export import kind_of
    from lipt.flow.export_network import export_network
    from lipt.progress import make_reporter

    kind = kind_of(to)
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
    if written.kind != "network" and not written.named:
        click.echo(
            "lipt: the data set was ingested without image names (format 1); positions are written instead\n"
            "  -> ingest the source again to get names",
            err=True,
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
