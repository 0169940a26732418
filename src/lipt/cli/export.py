"""`lipt export`."""

from dataclasses import asdict
from shlex import quote

import click

from lipt.cli.options import config_options, open_context, output_option, print_json
from lipt.report.numbers import format_percent


@click.command()
@config_options
@click.option("--to", required=True, metavar="TARGET", help="list.txt, FILE.csv, FILE.tar, FILE.pt2 or a new folder.")
@output_option
def export(config_path: str, overrides: tuple[str, ...], to: str, output: str) -> None:
    """Write what a finished run of CONFIG made, for other programs: the images that it selected, or its network.

    \b
    list.txt   the name of each image in its source, one per line
    FILE.csv   source, label, class, position and weight
    FILE.tar   a WebDataset tar of the images
    FOLDER     train/CLASS/NAME, as ImageFolder reads it
    FILE.pt2   the trained network, as torch.export.load reads it

    It writes everything or nothing, and never replaces a file. Of a comparison it writes what the first seed made.
    """
    with open_context(config_path, overrides) as ctx:
        from lipt.flow.export import export as export_images
        from lipt.flow.export import kind_of
        from lipt.flow.export_network import export_network

        kind = kind_of(to)
        ctx.reporter.started("export")
        written = export_network(ctx, to) if kind == "network" else export_images(ctx, to, kind)
    if written.kind != "network" and not written.named:
        click.echo(
            "lipt: the data set was ingested without image names (format 1); positions are written instead\n"
            "  -> ingest the source again to get names",
            err=True,
        )
    if len(written.seeds) > 1:
        first, *others = written.seeds
        run = " ".join(["lipt run", quote(config_path), *(f"--set {quote(each)}" for each in overrides)])
        click.echo(
            f"lipt: this is what seed {first} of the comparison made\n"
            f"  -> of another seed: {run} --set seed={others[0]}, then lipt export with the same --set",
            err=True,
        )
    if output == "json":
        print_json({"to": to, **asdict(written)})
        return
    if written.kind == "network":
        click.echo(f"test accuracy {format_percent(written.test_accuracy)}, from {written.model}", err=True)
    else:
        click.echo(f"{written.count:,} of {written.candidates:,} candidates, from {written.subset}", err=True)
    click.echo(to)
