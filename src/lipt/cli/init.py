"""`lipt init`."""

from pathlib import Path

import click

from lipt.errors import RunError, UsageError, did_you_mean

_PACKAGE = Path(__file__).parents[1]


@click.command()
@click.argument("example", required=False)
def init(example: str | None) -> None:
    """Write an example into the current folder. Without EXAMPLE, list them.

    lipt init quickstart
    """
    examples = {path.stem.partition("-")[2]: path for path in sorted(_folder().glob("[0-9]*"))}
    if example is None:
        width = max(map(len, examples))
        for name, path in examples.items():
            click.echo(f"{name:{width}}  {_first_sentence(path)}")
        return
    if example not in examples:
        raise UsageError(f"no example {example!r}", did_you_mean(example, examples))
    _copy(examples[example], Path(examples[example].name))
    click.echo(examples[example].name)


def _folder() -> Path:
    """The examples: inside an installed package, beside `src` in a checkout."""
    inside = _PACKAGE / "examples"
    return inside if inside.is_dir() else _PACKAGE.parents[1] / "examples"


def _first_sentence(path: Path) -> str:
    """What an example is, from its first line."""
    if path.suffix == ".ipynb":
        return "A notebook: select from features, train with your own loop."
    text = (path / "run.yaml" if path.is_dir() else path).read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("# ").partition(". ")[0].rstrip(".") + "."


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder; never replace one.

    Raises:
        UsageError: the target exists.
        RunError: it cannot be written.
    """
    try:
        if not source.is_dir():
            with open(target, "xb") as file:
                file.write(source.read_bytes())
            return
        target.mkdir()
        for path in source.iterdir():
            if path.is_file():
                (target / path.name).write_bytes(path.read_bytes())
    except FileExistsError:
        raise UsageError(f"{target} exists already", "delete it, or use another folder") from None
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}", "use another folder") from None
