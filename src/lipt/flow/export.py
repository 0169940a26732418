"""The selected images for other programs: their names as a list, a table of them, or the files themselves.

Legend: K selected samples; rows ascend by position, as training reads them.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from lipt.adapters.store import MissingObjectError
from lipt.adapters.store.base import TEMPORARY
from lipt.data.chunks import Dataset, Sample, read_samples
from lipt.data.chunks.index import END_OF_TAR, pack_sample
from lipt.errors import RunError, UsageError
from lipt.flow.report import report_key
from lipt.report.document import Document
from lipt.run.attempt import Attempt
from lipt.run.context import Context
from lipt.run.dataset import open_dataset
from lipt.stages.select import read_subset

Kind = Literal["list", "csv", "tar", "folder"]
_KINDS: dict[str, Kind] = {".txt": "list", ".csv": "csv", ".tar": "tar", "": "folder"}

#: Two ranges of a chunk this close are read as one.
_GAP_BYTES = 256_000
#: Longer names are cut; file systems take 255 bytes, tar headers 100.
_LONGEST_FILE, _LONGEST_KEY = 150, 80
_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written."""

    kind: Kind
    count: int
    candidates: int
    subset: str
    """Reference of the selection."""
    named: bool
    """Whether the data set knows the names of its images; otherwise positions stand for them."""


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """The selected samples: a table of source, label, class, position and weight, and where the images are."""

    table: pa.Table
    dataset: Dataset
    classes: list[str]

    def samples(self) -> Iterator[tuple[str, Sample]]:
        """Each with its name; read by range, checked."""
        wanted = self.dataset.ranges_of("train", self.table["position"].to_numpy(), gap_bytes=_GAP_BYTES)
        names = (name.as_py() for name in self.table["source"])
        return zip(names, read_samples(wanted, self.dataset.read), strict=True)


def kind_of(target: str) -> Kind:
    """What `target` is to become, by its suffix.

    Raises:
        UsageError: not a local path, a suffix of something else, or something is there already.
    """
    if "://" in target:
        raise UsageError(f"--to {target}: not a local path", "write to this machine, then copy it")
    path = Path(target)
    kind = _KINDS.get(path.suffix.lower() if not (path.is_dir() or target.endswith("/")) else "")
    if kind is None:
        raise UsageError(
            f"--to {target}: unknown suffix {path.suffix!r}", "name a .txt, .csv or .tar file, or a folder: FOLDER/"
        )
    is_free = not os.path.lexists(path) or (kind == "folder" and path.is_dir() and not os.listdir(path))
    if not is_free or path.is_symlink():
        raise UsageError(f"--to {target}: there is something already", "delete it, or choose another name")
    return kind


def export(ctx: Context, target: str) -> Exported:
    """Write the subset of a finished run to `target`: all of it or nothing.

    Raises:
        UsageError: as `kind_of`.
        RunError: the run has no subset yet, an image is damaged, or `target` cannot be written.
    """
    kind = kind_of(target)
    _check_apart(ctx, target, kind)
    document = _document(ctx)
    assert document.subset is not None
    subset = ctx.workspace.get(document.subset.ref)
    attempt = Attempt(ctx=ctx, ref="exports", label="export")
    dataset = open_dataset(attempt, ctx.workspace.get(subset.inputs[0]))
    classes = list(dataset.manifest.classes)
    table = read_subset(attempt, subset, sources=True).table
    chosen = _Chosen(
        table=_columns(table.filter(pa.compute.is_valid(table["rank"])), classes), dataset=dataset, classes=classes
    )
    named = "source" in table.column_names
    with _whole(Path(target)) as unfinished:
        _WRITERS[kind](
            chosen, unfinished, lambda done: ctx.reporter.advance("export", done, len(chosen.table), "images")
        )
    return Exported(kind=kind, count=len(chosen.table), candidates=len(table), subset=document.subset.ref, named=named)


def _check_apart(ctx: Context, target: str, kind: Kind) -> None:
    """Images that are written among those of the source would be ingested with them."""
    source = Path(ctx.config.data.source)
    if kind in ("tar", "folder") and source.is_dir() and Path(target).resolve().is_relative_to(source.resolve()):
        raise UsageError(f"--to {target}: lies in {source}, where the images come from", "write outside of that folder")


def _document(ctx: Context) -> Document:
    """The run's report, which names its subset."""
    try:
        data = ctx.workspace.store.read(report_key(ctx.config, "json"), kind="other")
    except MissingObjectError:
        remedy = "run it first, to the end: lipt run CONFIG"
        raise RunError(f"{ctx.workspace.store.uri} has no subset of this configuration", remedy) from None
    try:
        document = Document.model_validate_json(data)
    except ValueError:
        raise RunError(f"{ctx.workspace.store.uri}: the report is damaged", "run it again: lipt run CONFIG") from None
    if document.subset is None or not document.subset.ref:
        raise RunError(
            f"{ctx.workspace.store.uri}: an earlier version of lipt made this run", "run it again: lipt run CONFIG"
        )
    return document


def _columns(kept: pa.Table, classes: list[str]) -> pa.Table:
    """source, label, class, position and weight by ascending position; where names are unknown, from the position."""
    kept = kept.sort_by("position")
    position = kept["position"]
    if "source" in kept.column_names:
        source = kept["source"]
    else:
        source = pa.compute.utf8_lpad(position.cast(pa.string()), width=8, padding="0")
    named = pa.array(classes, pa.string()).take(kept["label"].combine_chunks())
    return pa.table(
        {"source": source, "label": kept["label"], "class": named, "position": position, "weight": kept["weight"]}
    )


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """A place beside `target` that takes its name when all is written, and goes when it is not."""
    unfinished = target.absolute().parent / f"{TEMPORARY}{uuid4().hex}"
    try:
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        if (
            os.path.lexists(target) and not unfinished.is_dir()
        ):  # a folder is never renamed onto anything but an empty one
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(unfinished, target)
    except OSError as error:
        raise RunError(
            f"cannot write {target}: {error.strerror or error}", "free space, or choose another place"
        ) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        with suppress(OSError):
            unfinished.unlink()


def _write_list(chosen: _Chosen, target: Path, advance: Callable[[int], None]) -> None:
    """One name a line."""
    names = chosen.table["source"]
    if pa.compute.any(pa.compute.match_substring_regex(names, r"[\r\n]")).as_py():
        raise RunError("the name of an image holds a line break: a list would be ambiguous", "export to a .csv file")
    with open(target, "x", encoding="utf-8", newline="\n") as file:
        for name in names:
            file.write(f"{name.as_py()}\n")
    advance(len(names))


def _write_csv(chosen: _Chosen, target: Path, advance: Callable[[int], None]) -> None:
    """A header, and a row for each sample."""
    pa.csv.write_csv(chosen.table, target)
    advance(len(chosen.table))


def _write_folder(chosen: _Chosen, target: Path, advance: Callable[[int], None]) -> None:
    """`train/CLASS/NAME`."""
    folders = [target / "train" / name for name in folder_names(chosen.classes)]
    for done, (name, sample) in enumerate(chosen.samples(), 1):
        folder = folders[sample.label]
        folder.mkdir(parents=True, exist_ok=True)
        file_name = safe_name(name, sample.ext)
        try:
            file = open(folder / file_name, "xb")  # noqa: SIM115 - closed below
        except FileExistsError:  # also where the file system does not tell upper from lower case
            file = open(folder / f"{sample.position:08d}-{file_name}", "xb")  # noqa: SIM115 - closed below
        with file:
            file.write(sample.image)
        advance(done)


def _write_tar(chosen: _Chosen, target: Path, advance: Callable[[int], None]) -> None:
    """Members `KEY.jpg|png` and `KEY.cls`."""
    taken: set[str] = set()
    with open(target, "xb") as file:
        for done, (name, sample) in enumerate(chosen.samples(), 1):
            key = safe_key(name)
            if key in taken:
                key = f"{sample.position:08d}-{key}"
            taken.add(key)
            file.write(pack_sample(key, sample.image, sample.ext, sample.label))
            advance(done)
        file.write(END_OF_TAR)


_WRITERS: dict[Kind, Callable[[_Chosen, Path, Callable[[int], None]], None]] = {
    "list": _write_list,
    "csv": _write_csv,
    "folder": _write_folder,
    "tar": _write_tar,
}


def safe_name(source: str, ext: str) -> str:
    """A file name for an image: the last part of its name in the source, with a suffix that tells what it holds."""
    name = _safe(PurePosixPath(source.replace("\\", "/")).name)
    fits = _JPEG if ext == "jpg" else (".png",)
    stem, suffix = (name, f".{ext}") if not name.lower().endswith(fits) else os.path.splitext(name)
    return _cut(stem, _LONGEST_FILE) + suffix


def safe_key(source: str) -> str:
    """A WebDataset key: the name in the source without its suffix, in one part and without dots."""
    parts = [_safe(part) for part in source.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    stems = [*parts[:-1], *(os.path.splitext(part)[0] for part in parts[-1:])]
    return _cut("-".join(stems).replace(".", "_") or "_", _LONGEST_KEY)


def folder_names(classes: list[str]) -> list[str]:
    """A folder for each class, by its name as far as that can be one."""
    names: list[str] = []
    taken: set[str] = set()
    for label, name in enumerate(classes):
        safe = _cut(_safe(name), _LONGEST_FILE)
        while safe.casefold() in taken:
            safe += f"-{label}"
        taken.add(safe.casefold())
        names.append(safe)
    return names


def _safe(part: str) -> str:
    """One part of a path: no separators, no control characters, not hidden, not empty."""
    cleaned = re.sub(r"[/\\\x00-\x1f\x7f]", "_", part)
    return re.sub(r"^[. ]+", "_", cleaned) or "_"


def _cut(text: str, longest: int) -> str:
    """The end of a text, cut to a number of bytes of UTF-8."""
    return text.encode()[-longest:].decode(errors="ignore")
