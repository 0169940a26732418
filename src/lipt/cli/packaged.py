"""Files that the package brings along for its users: examples, compiled pipelines, manifests."""

from __future__ import annotations

from pathlib import Path

from lipt.errors import RunError, UsageError

_PACKAGE = Path(__file__).parents[1]


def packaged(name: str) -> Path:
    """The folder NAME: inside an installed package, beside `src` in a checkout."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parents[1] / name


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
