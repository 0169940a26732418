"""Where images come from. Every file in this folder is imported, so a source registers by being defined in one."""

import os
import shlex
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules

from lipt.data.sources.base import FORMATS, Listing, Source, check_classes, check_one_size, is_folder, spread
from lipt.data.sources.tars import TAR_PREFIX
from lipt.errors import RunError, UsageError, did_you_mean

__all__ = [
    "Listing",
    "Source",
    "check_format",
    "check_one_size",
    "located",
    "open_source",
    "recognise",
    "sources_without_files",
    "spread",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


_GZIPPED = (".gz", ".tgz")


def open_source(spec: str, format: str = "auto") -> Source:  # noqa: A002 - the name of the setting
    """The source that `spec` names (docs/reference/sources.md lists all sources).

    Args:
        spec: `data.source`, such as `digits`, `cifar10:FOLDER`, `wds:GLOB` or a folder.
        format: `data.format`: one of `FORMATS`, or `auto`: `spec` decides.

    Raises:
        UsageError: the format is unknown, there is nothing at `spec`, or its classes and splits cannot be used.
        RunError: a file is damaged, or permission to read it is missing.
        TransientError: CIFAR has to be downloaded and the network cannot be reached.
    """
    if "\0" in spec:
        raise UsageError(f"{spec!r} is not a path", "name a folder or a glob of tars")
    try:
        source = recognise(spec, format)(spec)
    except PermissionError as error:
        raise RunError(
            f"{error.filename}: permission denied", f"let user {os.geteuid()} read all folders and files of the data"
        ) from None
    except OSError as error:  # a link to itself, a name that is too long, a disk that fails
        remedy = "check the path, and that the disk can be read"
        raise RunError(f"{error.filename or spec}: {error.strerror}", remedy) from error
    check_classes(source, spec)
    return source


def recognise(spec: str, format: str = "auto") -> type[Source]:  # noqa: A002 - the name of the setting
    """The kind of source that `spec` names; with `auto`, a folder that no kind recognises is an `imagefolder`.

    Raises:
        UsageError: the format is unknown, or there is nothing at `spec`.
    """
    check_format(format)
    if format == "store":
        raise UsageError(f"{spec} is an ingested data set, not a source of images", "use it as data.source")
    if format != "auto":
        return FORMATS[format]
    for kind in FORMATS.values():
        if kind.recognises(spec):
            return kind
    if "://" in spec:
        raise UsageError(
            f"{spec} is in an object store, but images are read from a local folder",
            "copy them to this machine; if a data set was ingested there already, use it as data.source",
        )
    if not is_folder(spec):
        if os.path.exists(spec):
            raise UsageError(
                f"{spec} is a file of a kind that LiPT does not read",
                f"unpack it and name the folder; if it is a WebDataset tar, gunzip {shlex.quote(spec)} and name the tar"
                if spec.lower().endswith(_GZIPPED)
                else "name a folder with one sub-folder of images per class, or uncompressed tars: 'wds:FOLDER/*.tar'",
            )
        raise UsageError(f"{spec}: no such folder", f"name a folder or tars, or {_near(spec)}")
    return FORMATS["imagefolder"]


def _near(spec: str) -> str:
    """What may be meant in place of a folder that does not exist: a folder beside it, or a source without files."""
    parent, name = os.path.split(os.path.normpath(spec))
    known = {each: each for each in sources_without_files()}
    with suppress(OSError), os.scandir(parent or os.curdir) as beside:
        known |= {each.name: os.path.join(parent, each.name) for each in beside if each.is_dir()}
    close = get_close_matches(name, known, n=1)
    return f"did you mean {known[close[0]]!r}?" if close else did_you_mean(spec, sources_without_files())


def located(spec: str, format: str) -> str:  # noqa: A002 - the name of the setting
    """The source under a name that means the same in every folder: a path becomes absolute.

    An address and a source whose images are the same everywhere, such as `digits`, keep their names.
    """
    kind = FORMATS.get(format) or next((each for each in FORMATS.values() if each.recognises(spec)), None)
    if "://" in spec or (kind is not None and not kind.needs_files):
        return spec
    path = spec.removeprefix(TAR_PREFIX)
    return spec.removesuffix(path) + os.path.abspath(path)


def check_format(format: str) -> None:  # noqa: A002 - the name of the setting
    """
    Raises:
        UsageError: `data.format` does not exist.
    """
    known = ["auto", *FORMATS, "store"]
    if format not in known:
        raise UsageError(f"data.format: no format {format!r}", did_you_mean(format, known))


def sources_without_files() -> list[str]:
    """The sources that are named without a path and work on every machine, such as `digits`."""
    return [name for name, kind in FORMATS.items() if not kind.needs_files]
