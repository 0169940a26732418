"""`lipt init`."""

import re
from pathlib import Path

import click

from lipt.cli.packaged import copy_out, is_named, packaged
from lipt.cli.suggestions import completes


def _examples() -> dict[str, Path]:
    return {path.stem.partition("-")[2]: path for path in sorted(packaged("examples").glob("[0-9]*"))}


@click.command()
@click.argument("names", metavar="[EXAMPLE]...", nargs=-1, shell_complete=completes(_examples))
def init(names: tuple[str, ...]) -> None:
    """Write examples into the current folder. Without EXAMPLE, list them."""
    examples = _examples()
    described = {name: _first_sentence(path) for name, path in examples.items()}
    wanted = [name for name in names or (None,) if is_named(name, described, "example")]  # all, before one is written
    for source in (examples[str(name)] for name in wanted):
        copy_out(source, Path(source.name))
        click.echo(source.name)
        click.echo(f"lipt: next: {_next_command(source)}", err=True)


def _next_command(path: Path) -> str:
    """The first command in the first lines of an example."""
    if path.suffix == ".ipynb":
        return f"jupyter lab {path.name}"
    found = _COMMAND.search((path / "run.yaml" if path.is_dir() else path).read_text(encoding="utf-8"))
    assert found is not None  # a test checks it
    return f"cd {path.name} && {found[1]}" if path.is_dir() else found[1]


#: A command in the comments that an example begins with, without the remark in parentheses behind it.
_COMMAND = re.compile(r"^#   (\S.*?)(?:  +\(.*)?$", re.MULTILINE)


def _first_sentence(path: Path) -> str:
    """The description of an example: its first sentence."""
    if path.suffix == ".ipynb":
        return "A notebook: select from features, train with your own loop."
    text = (path / "run.yaml" if path.is_dir() else path).read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("# ").partition(". ")[0].rstrip(".") + "."
