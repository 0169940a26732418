"""Files that the package brings along for its users: examples, compiled pipelines, manifests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from lipt.errors import RunError, UsageError, did_you_mean

_PACKAGE = Path(__file__).parents[1]


def packaged(name: str) -> Path:
    """The folder NAME: inside an installed package, beside `src` in a checkout."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parents[1] / name


def is_named(name: str | None, known: Mapping[str, str], what: str) -> bool:
    """Whether one of the known is named; if none is, print them with their descriptions.

    Raises:
        UsageError: the name is not known.
    """
    if name is None:
        width = max(map(len, known))
        for each, text in known.items():
            click.echo(f"{each:{width}}  {text}")
        click.echo(f"{click.get_current_context().command_path} NAME writes one into the current folder.", err=True)
    elif name not in known:
        raise UsageError(f"no {what} {name!r}", did_you_mean(name, known))
    return name is not None


def copy_out(source: Path, target: Path) -> None:
    """Copy a file or a folder; never replace one.

    Raises:
        UsageError: the target exists.
        RunError: it cannot be written.
    """
    try:
        if source.is_dir():
            target.mkdir()
            for path in source.iterdir():
                if path.name != "__pycache__":
                    copy_out(path, target / path.name)
            return
        with open(target, "xb") as file:
            file.write(source.read_bytes())
    except FileExistsError:
        raise UsageError(f"{target} exists already", "delete it, or use another folder") from None
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}", "use another folder") from None
