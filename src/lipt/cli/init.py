"""`lipt init`."""

from pathlib import Path

import click

from lipt.cli.packaged import copy_out, packaged
from lipt.errors import UsageError, did_you_mean


@click.command()
@click.argument("example", required=False)
def init(example: str | None) -> None:
    """Write an example into the current folder. Without EXAMPLE, list them.

    lipt init quickstart
    """
    examples = {path.stem.partition("-")[2]: path for path in sorted(packaged("examples").glob("[0-9]*"))}
    if example is None:
        width = max(map(len, examples))
        for name, path in examples.items():
            click.echo(f"{name:{width}}  {_first_sentence(path)}")
        return
    if example not in examples:
        raise UsageError(f"no example {example!r}", did_you_mean(example, examples))
    copy_out(examples[example], Path(examples[example].name))
    click.echo(examples[example].name)


def _first_sentence(path: Path) -> str:
    """What an example is, from its first line."""
    if path.suffix == ".ipynb":
        return "A notebook: select from features, train with your own loop."
    text = (path / "run.yaml" if path.is_dir() else path).read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("# ").partition(". ")[0].rstrip(".") + "."
