"""Export the selected images for other programs: as a list of names, a table, or the image files.

Rows ascend by position, the order in which training reads them.
"""

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
from lipt.data.chunks import Dataset, Sample, read_samples
from lipt.data.chunks.members import END_OF_TAR, pack_sample
from lipt.errors import RunError, UsageError
from lipt.files import TEMPORARY
from lipt.report.document import Document
from lipt.runtime import Artifact, Attempt, Context
from lipt.runtime.dataset import open_dataset
from lipt.stages.select import read_subset

ImagesKind = Literal["list", "csv", "tar", "folder"]

#: Two ranges of a chunk this close are read as one.
_GAP_BYTES = 256_000
#: Longer names are cut; file systems take 255 bytes, tar headers 100.
_LONGEST_FILE, _LONGEST_KEY = 150, 80
_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of an export."""

    kind: ImagesKind
    count: int
    candidates: int
    subset: str
    """Reference of the selection."""
    seeds: list[int]
    """The seeds of the run. The subset is that of the first one."""


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """The selected samples: their data set, and a table of source, label, class, position and weight."""

    table: pa.Table
    dataset: Dataset
    classes: list[str]

    def samples(self) -> Iterator[tuple[str, Sample]]:
        """Each sample with its name. Images are read by range, and their checksums verified."""
        wanted = self.dataset.ranges_of("train", self.table["position"].to_numpy(), gap_bytes=_GAP_BYTES)
        names = (name.as_py() for name in self.table["source"])
        return zip(names, read_samples(wanted, self.dataset.read), strict=True)


def export(ctx: Context, document: Document, target: str, kind: ImagesKind) -> Exported:
    """Write the subset of a finished run to `target`. If that fails, nothing is left at `target`.

    Args:
        document: the run's report.

    Raises:
        UsageError: `target` lies in the source.
        RunError: an image is damaged, or `target` cannot be written.
    """
    _check_apart(ctx, target, kind)
    assert document.subset is not None
    subset = finished(ctx, document.subset.ref)
    attempt = Attempt(ctx=ctx, ref="exports", label="export")
    dataset = open_dataset(attempt, finished(ctx, subset.inputs[0]))
    classes = list(dataset.manifest.classes)
    table = read_subset(attempt, subset, sources=True).table()
    chosen = _Chosen(
        table=_columns(table.filter(pa.compute.is_valid(table["rank"])), classes), dataset=dataset, classes=classes
    )
    with whole(Path(target)) as unfinished:
        _WRITERS[kind](
            chosen, unfinished, lambda done: ctx.reporter.advance("export", done, len(chosen.table), "images")
        )
    return Exported(
        kind=kind,
        count=len(chosen.table),
        candidates=len(table),
        subset=document.subset.ref,
        seeds=document.provenance.seeds,
    )


def finished(ctx: Context, ref: str) -> Artifact:
    """An artifact of a finished run.

    Raises:
        RunError: it is gone.
    """
    try:
        return ctx.workspace.get(ref)
    except MissingObjectError:
        raise RunError(
            f"{ctx.workspace.store.uri}/{ref} was removed since its run ended, or is not finished again",
            "run again: what is finished is kept",
        ) from None


def _check_apart(ctx: Context, target: str, kind: ImagesKind) -> None:
    """Refuse a target inside the source: the next ingest would read the exported images too."""
    source = Path(ctx.config.data.source)
    if kind in ("tar", "folder") and source.is_dir() and Path(target).resolve().is_relative_to(source.resolve()):
        raise UsageError(f"--to {target}: lies in the source {source}", "choose a path outside of that folder")


def _columns(kept: pa.Table, classes: list[str]) -> pa.Table:
    """source, label, class, position and weight by ascending position."""
    kept = kept.sort_by("position")
    named = pa.array(classes, pa.string()).take(kept["label"].combine_chunks())
    return kept.append_column("class", named).select(["source", "label", "class", "position", "weight"])


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A temporary path beside `target`. It is renamed to `target` at the end, or deleted on an error."""
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
            f"cannot write {target}: {error.strerror or error}", "choose another path; if the disk is full, free space"
        ) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        with suppress(OSError):
            unfinished.unlink()


def _write_list(chosen: _Chosen, target: Path, advance: Callable[[int], None]) -> None:
    """Write one name per line."""
    names = chosen.table["source"]
    if pa.compute.any(pa.compute.match_substring_regex(names, r"[\r\n]")).as_py():
        raise RunError("an image name contains a line break, so a list would be ambiguous", "export to a .csv file")
    with open(target, "x", encoding="utf-8", newline="\n") as file:
        for name in names:
            file.write(f"{name.as_py()}\n")
    advance(len(names))


def _write_csv(chosen: _Chosen, target: Path, advance: Callable[[int], None]) -> None:
    """Write a header, and a row per sample."""
    pa.csv.write_csv(chosen.table, target)
    advance(len(chosen.table))


def _write_folder(chosen: _Chosen, target: Path, advance: Callable[[int], None]) -> None:
    """Write the images as `train/CLASS/NAME`."""
    folders = [target / "train" / name for name in folder_names(chosen.classes)]
    for done, (name, sample) in enumerate(chosen.samples(), 1):
        folder = folders[sample.label]
        folder.mkdir(parents=True, exist_ok=True)
        file_name = safe_name(name, sample.ext)
        while True:
            try:
                file = open(folder / file_name, "xb")  # noqa: SIM115 - closed below
                break
            except FileExistsError:  # also if the file system ignores case
                file_name = f"{sample.position:08d}-{file_name}"
        with file:
            file.write(sample.image)
        advance(done)


def _write_tar(chosen: _Chosen, target: Path, advance: Callable[[int], None]) -> None:
    """Write a tar with the members `KEY.jpg|png` and `KEY.cls`, as WebDataset reads it."""
    taken: set[str] = set()
    with open(target, "xb") as file:
        for done, (name, sample) in enumerate(chosen.samples(), 1):
            key = safe_key(name)
            while key in taken:
                key = f"{sample.position:08d}-{key}"
            taken.add(key)
            file.write(pack_sample(key, sample.image, sample.ext, sample.label))
            advance(done)
        file.write(END_OF_TAR)


_WRITERS: dict[ImagesKind, Callable[[_Chosen, Path, Callable[[int], None]], None]] = {
    "list": _write_list,
    "csv": _write_csv,
    "folder": _write_folder,
    "tar": _write_tar,
}


def safe_name(source: str, ext: str) -> str:
    """A file name for an image: the last part of its name in the source, with the suffix of its format."""
    name = _safe(PurePosixPath(source.replace("\\", "/")).name)
    fits = _JPEG if ext == "jpg" else (".png",)
    stem, suffix = (name, f".{ext}") if not name.lower().endswith(fits) else os.path.splitext(name)
    return _cut(stem, _LONGEST_FILE) + suffix


def safe_key(source: str) -> str:
    """A WebDataset key: the name in the source without its suffix, slashes replaced by `-` and dots by `_`."""
    parts = [_safe(part) for part in source.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    stems = [*parts[:-1], *(os.path.splitext(part)[0] for part in parts[-1:])]
    return _cut("-".join(stems).replace(".", "_") or "_", _LONGEST_KEY)


def folder_names(classes: list[str]) -> list[str]:
    """A folder name for each class: the class name without forbidden characters, made unique."""
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
    """`part` as one part of a path: no separators, no control characters, not hidden, not empty."""
    cleaned = re.sub(r"[/\\\x00-\x1f\x7f]", "_", part)
    return _visible(cleaned) or "_"


def _cut(text: str, longest: int) -> str:
    """The end of a text, at most `longest` bytes of UTF-8; not hidden."""
    return _visible(text.encode()[-longest:].decode(errors="ignore"))


def _visible(name: str) -> str:
    """The name without the dots and spaces at its beginning: readers of folders pass over hidden files."""
    return re.sub(r"^[. ]+", "_", name)
