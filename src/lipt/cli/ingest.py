"""`lipt ingest`."""

import click

from lipt.cli.options import output_option, print_json
from lipt.cli.verbose import is_quiet, is_verbose


@click.command()
@click.argument("source")
@click.argument("destination")
@click.option(
    "--format",
    "kind",
    default="auto",
    show_default=True,
    help="Format of SOURCE, as the setting `data.format`; auto: SOURCE decides.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the order of the images."
)
@click.option("--chunk-mb", type=float, default=64.0, show_default=True, help="Size of a chunk in MB.")
@click.option(
    "--test-fraction", type=float, default=0.2, show_default=True, help="Test share if the source has no test split."
)
@click.option(
    "--thumbnails",
    type=click.IntRange(min=1),
    help="Also write every image with its shorter side at most this many pixels, as the setting `data.thumbnails`.",
)
@output_option
def ingest(
    source: str,
    destination: str,
    kind: str,
    seed: int,
    chunk_mb: float,
    test_fraction: float,
    thumbnails: int | None,
    output: str,
) -> None:
    """Write SOURCE into a chunk store at DESTINATION (a folder or s3://bucket/prefix). Set `data.source` to it.

    SOURCE: digits, cifar10[:FOLDER], cifar100[:FOLDER], an ImageFolder, or WebDataset tars ("shards-*.tar").
    """
    from lipt.adapters.store import open_store
    from lipt.config import parse_config
    from lipt.progress import make_reporter
    from lipt.runtime.chunk_store import is_chunk_store, write_apart
    from lipt.runtime.dataset import open_apart

    layout = {"shuffle_seed": seed, "chunk_mb": chunk_mb, "test_fraction": test_fraction, "thumbnails": thumbnails}
    data = parse_config({"data": {"source": source, "format": kind, **layout}}, origin="lipt ingest").data
    if "://" not in source and is_chunk_store(data):
        data = data.model_copy(update={"format": "store"})  # to be told what it is, and not that no class is there
    store, reporter = open_store(destination), make_reporter(quiet=is_quiet(), verbose=is_verbose())
    reporter.started("ingest")
    try:
        images = open_apart(data, store)
        manifest = write_apart(data, store, reporter, images)
    finally:
        reporter.close()
    splits = {name: manifest.splits[name].count for name in ("train", "test")}  # a manifest read back is sorted
    if output == "json":
        left_out, traffic = dict(images.left_out), store.traffic.as_dict()
        found = {"location": store.uri, "digest": manifest.digest, "classes": list(manifest.classes)}
        print_json(found | {"splits": splits, "left_out": left_out, "traffic": traffic})
    else:
        counts = ", ".join(f"{count:,} {name}" for name, count in splits.items())
        size = sum(chunk.size for split in manifest.splits.values() for chunk in split.chunks)
        click.echo(
            f"{manifest.name}: {counts} images of {len(manifest.classes)} classes, {size / 1e6:,.1f} MB", err=True
        )
        click.echo(store.uri)
