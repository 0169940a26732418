"""The artifacts that the finished runs and sweeps of a workspace refer to, and those that none refers to."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from lipt.adapters.store import MissingObjectError, Store
from lipt.config import Config
from lipt.errors import IntegrityError, RunError
from lipt.flow.address import REPORT, read_report, run_id
from lipt.pipeline import STAGE_NAMES
from lipt.report.document import Document
from lipt.runtime.artifact import (
    CHECKPOINT,
    CHECKPOINT_INPUTS,
    CHUNKS,
    DIGEST_BYTES,
    MARKER,
    Artifact,
    canonical_json,
    owner_of,
)
from lipt.runtime.lease import find_holder, is_claim
from lipt.runtime.workspace import Workspace

#: Folder of the lists of references that the points of sweeps leave, which have no report.
SWEEPS = "sweeps/"
_REFS = TypeAdapter(list[str])
#: Folder of the notes of runs on a cluster that have not ended: between two of its pods, no process of a run works.
_RUNNING = "running/"
DAY_S = 86_400.0
#: A note that is older counts no more: its run was deleted, or it failed.
_LONGEST_RUN_DAYS = 30.0
#: Bytes; the format allows no more.
_LONGEST_HEADER = 100_000_000
#: Requests at a time.
_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class Unused:
    """An artifact that no report or sweep refers to."""

    ref: str
    num_bytes: int
    days: float
    """Since it was finished; of an unfinished one, since its last write."""
    finished: bool


def list_unused(workspace: Workspace, *, days: float) -> list[Unused]:
    """The artifacts that no report or sweep refers to, directly or through its inputs.

    Unfinished ones are what interrupted stages left, such as a checkpoint. They stay as long as a run on a cluster has
    not ended: it may go on from them.

    Args:
        days: younger artifacts, and what they were made from, are left out: an unfinished run may need them.

    Raises:
        RunError: the workspace has no report and no sweep, or a process works in it, so it is unknown which artifacts
            are needed.
        IntegrityError: a report or a sweep's list cannot be read, so it is unknown which artifacts it refers to.
    """
    # First, because a run that ends meanwhile writes its report before it gives up its lease, or removes its note.
    working = find_holder(workspace.store, workspace.store.list())
    running = [note.refs for note in list_running(workspace, days=max(days, _LONGEST_RUN_DAYS))]
    named = [refs_of(read_report(workspace.store, folder)) for folder in report_folders(workspace)]
    named += [read_list(workspace, key) for key in workspace.store.list(SWEEPS)]
    if any(named):  # else nothing is known of what is needed
        named += running
    origins = Origins(workspace)
    reached = origins.reached(itertools.chain.from_iterable(named))
    if not reached:
        raise RunError(
            f"{workspace.store.uri} has no report and no sweep, so every artifact may be needed",
            "finish a run; or delete the whole workspace, if you need nothing of it",
        )
    listing, digests = workspace.store.listing(), _digests(workspace, reached)
    objects = {key: found for key, found in listing.items() if not is_claim(key)}
    written = dict[str, float]()
    for key, found in objects.items():
        ref = "/".join(key.split("/")[:2])
        written[ref] = max(written.get(ref, 0.0), found.written)

    def examine(ref: str, num_bytes: int) -> Unused | None:
        """None if it stays anyway."""
        finished = True
        try:
            artifact = workspace.get(ref)
            # It points to the chunks of images that were touched. Without it, the next run reads all of them again.
            if artifact.stage == CHUNKS and artifact.summary.get("digest") in digests:
                return None
            at = workspace.cost(artifact).ended
        except (MissingObjectError, IntegrityError):  # not finished, or damaged, so that it would be made again
            if running:
                return None
            finished, at = False, written[ref]
        return Unused(ref=ref, num_bytes=num_bytes, days=(time.time() - at) / DAY_S, finished=finished)

    sizes = sizes_of({key: found.num_bytes for key, found in objects.items()})
    others = {ref: num_bytes for ref, num_bytes in sizes.items() if ref not in reached}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        examined = [each for each in pool.map(examine, others, others.values()) if each]
    needed = origins.reached(each.ref for each in examined if each.days < days)
    unused = [each for each in examined if each.ref not in needed]
    # A run notes what it needs when it has ended, and a comparison may take weeks. It may have begun meanwhile.
    if unused and (who := working or find_holder(workspace.store, listing)):
        raise RunError(
            f"{who} works in {workspace.store.uri}, so every artifact may be needed", "wait until it has ended"
        )
    return unused


def remove(workspace: Workspace, unused: Iterable[Unused]) -> None:
    """Remove artifacts, each marker first: what an interruption leaves of an artifact counts as unfinished."""
    for each in unused:
        files = workspace.store.list(f"{each.ref}/")
        for key in sorted(files, key=lambda key: not key.endswith(f"/{MARKER}")):
            workspace.store.delete(key)


def note_point(workspace: Workspace, config: Config, artifacts: Iterable[Artifact]) -> None:
    """Note the artifacts of a finished point of a sweep, so that they count as used: it has no report."""
    refs = [artifact.ref for artifact in artifacts]
    workspace.store.write(f"{SWEEPS}{run_id(config)}.json", canonical_json(refs), kind="other")


def note_running(workspace: Workspace, name: str, refs: Iterable[str]) -> None:
    """Note the artifacts that a run on a cluster goes on from, until `note_ended`.

    Args:
        name: of its run specification.
    """
    note = {"since": time.time(), "refs": list(refs)}
    workspace.store.write(f"{_RUNNING}{name}", canonical_json(note), kind="other")


def note_ended(workspace: Workspace, name: str) -> None:
    """The inverse of `note_running`: from now on the run's report refers to its artifacts."""
    workspace.store.delete(f"{_RUNNING}{name}")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A run on a cluster that has not ended, or has failed."""

    key: str
    """Of its note."""
    days: float
    """Since it began."""
    refs: list[str]
    """The artifacts that it goes on from."""


def list_running(workspace: Workspace, *, days: float = _LONGEST_RUN_DAYS) -> list[Running]:
    """What `note_running` wrote, of the runs that began within `days`.

    Raises:
        IntegrityError: a note is damaged.
    """
    found = []
    for key in workspace.store.list(_RUNNING):
        try:
            note = json.loads(workspace.store.read(key, kind="other"))
            age = (time.time() - note["since"]) / DAY_S
            refs = [str(ref) for ref in note["refs"]]
        except MissingObjectError:  # it has just ended
            continue
        except (ValueError, LookupError, TypeError):
            what = f"{workspace.store.uri}/{key} is damaged, so it is unknown which artifacts its run needs"
            raise IntegrityError(what, "when that run has ended, delete this file") from None
        if age < days:
            found.append(Running(key=key, days=age, refs=refs))
    return found


def read_list(workspace: Workspace, key: str) -> list[str]:
    """The references that `note_point` wrote."""
    try:
        return _REFS.validate_json(workspace.store.read(key, kind="other"))
    except ValidationError:
        what = f"{workspace.store.uri}/{key} is damaged, so it is unknown which artifacts its sweep needs"
        raise IntegrityError(what, "run the sweep again, or delete this file") from None


def refs_of(document: Document) -> list[str]:
    """The artifacts that a report refers to."""
    return [row.ref for row in document.ledger]


def report_folders(workspace: Workspace) -> list[str]:
    """The folders of the reports."""
    ending = f"/{REPORT}"
    return [key.removesuffix(ending) for key in workspace.store.list("reports/") if key.endswith(ending)]


class Origins:
    """What each artifact was made from. Runs share artifacts: each is read once."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, list[str]] = {}

    def reached(self, refs: Iterable[str]) -> set[str]:
        """These references, and those of all that their artifacts were made from. Lost ones count too."""
        reached, ahead = set[str](), set(refs)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while ahead:
                reached |= ahead
                ahead = set(itertools.chain.from_iterable(pool.map(self._of, ahead))) - reached
        return reached

    def _of(self, ref: str) -> list[str]:
        if ref not in self._known:
            try:
                artifact = self._workspace.get(ref)
            except (MissingObjectError, IntegrityError):
                return _inputs_of_checkpoint(self._workspace.store, ref)
            owner = owner_of(artifact)
            self._known[ref] = [*artifact.inputs, *([owner] if owner else [])]
        return self._known[ref]


def _inputs_of_checkpoint(store: Store, ref: str) -> list[str]:
    """What an unfinished artifact goes on with. Nothing without a checkpoint, or with a damaged one: it begins anew."""
    key, begin = f"{ref}/{CHECKPOINT}", DIGEST_BYTES + 8  # a safetensors file begins with the length of its header
    try:
        length = int.from_bytes(store.read(key, kind="model", length=begin)[DIGEST_BYTES:], "little")
        if length > _LONGEST_HEADER:
            return []
        header = json.loads(store.read(key, kind="model", start=begin, length=length))
        return _REFS.validate_json(header["__metadata__"][CHECKPOINT_INPUTS])
    except (MissingObjectError, IntegrityError, ValueError, LookupError, TypeError, RecursionError, OverflowError):
        return []


def _digests(workspace: Workspace, refs: Iterable[str]) -> set[str]:
    """The digests of the data sets among these artifacts."""
    found = set[str]()
    for ref in refs:
        if ref.startswith("ingest/"):
            with suppress(MissingObjectError, IntegrityError):
                found.add(str(workspace.get(ref).summary["digest"]))
    return found


def sizes_of(keys: Mapping[str, int]) -> dict[str, int]:
    """Bytes of each artifact, finished or not.

    Args:
        keys: bytes of each object of the workspace.
    """
    stages, sizes = {*STAGE_NAMES, CHUNKS}, dict[str, int]()
    for key, num_bytes in keys.items():
        stage, _, rest = key.partition("/")
        if stage in stages and "/" in rest:
            ref = f"{stage}/{rest.partition('/')[0]}"
            sizes[ref] = sizes.get(ref, 0) + num_bytes
    return sizes
