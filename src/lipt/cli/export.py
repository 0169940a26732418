"""`lipt export`."""

from dataclasses import asdict
from shlex import quote

import click

from lipt.cli.options import config_options, open_context, output_option, print_json


@click.command()
@config_options
@click.option("--to", required=True, metavar="TARGET", help="list.txt, FILE.csv, FILE.tar or a new folder.")
@output_option
def export(config_path: str, overrides: tuple[str, ...], to: str, output: str) -> None:
    """Write the images that a finished run of CONFIG selected, for other programs.

    \b
    list.txt   the name of each image in its source, one per line
    FILE.csv   source, label, class, position and weight
    FILE.tar   a WebDataset tar of the images
    FOLDER     train/CLASS/NAME, as ImageFolder reads it

    It writes everything or nothing, and never replaces a file. Of a comparison it writes the subset of the first seed.
    """
    with open_context(config_path, overrides) as ctx:
        from lipt.flow.export import export as run_export

        ctx.reporter.started("export")
        written = run_export(ctx, to)
    if not written.named:
        click.echo(
            "lipt: the data set was ingested without image names (format 1); positions are written instead\n"
            "  -> ingest the source again to get names",
            err=True,
        )
    if len(written.seeds) > 1:
        first, *others = written.seeds
        run = " ".join(["lipt run", quote(config_path), *(f"--set {quote(each)}" for each in overrides)])
        click.echo(
            f"lipt: seed {first} of the comparison made this subset\n"
            f"  -> of another seed: {run} --set seed={others[0]}, then lipt export with the same --set",
            err=True,
        )
    if output == "json":
        print_json({"to": to, **asdict(written)})
    else:
        click.echo(f"{written.count:,} of {written.candidates:,} candidates, from {written.subset}", err=True)
        click.echo(to)
