"""The finished runs of a workspace, and the artifacts that no report refers to."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from lipt.adapters.store import MissingObjectError
from lipt.errors import IntegrityError, RunError
from lipt.flow.address import read_report
from lipt.pipeline import STAGES
from lipt.report.document import Document
from lipt.runtime.artifact import CHUNKS, MARKER, owner_of
from lipt.runtime.workspace import Workspace

_REPORT = "/report.json"
_DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run. `accuracy` is the selected row's test accuracy as a share, mean over seeds."""

    run: str
    created: str
    stages: int
    """Artifacts that the run made or reused."""
    accuracy: float
    num_bytes: int
    """Of all artifacts that the report refers to, the data set included; runs share artifacts."""


@dataclass(frozen=True, kw_only=True)
class Unused:
    """A finished artifact that no report refers to."""

    ref: str
    num_bytes: int
    days: float
    """Since it was finished."""


def list_runs(workspace: Workspace) -> tuple[list[Run], list[IntegrityError]]:
    """The runs of a workspace, the latest last, and an error for each report that cannot be read."""
    sizes, found, unread = _sizes(workspace), list[Run](), list[IntegrityError]()
    for folder in _folders(workspace):
        try:
            document = read_report(workspace.store, folder)
        except IntegrityError as error:
            unread.append(error)
            continue
        refs = _reached(workspace, document)
        row = next((row for row in document.rows if row.role == "selected"), document.rows[0])
        found.append(
            Run(
                run=folder.split("/")[-1],
                created=document.created,
                stages=len(document.ledger),
                accuracy=fmean(row.accuracy),
                num_bytes=sum(sizes.get(ref, 0) for ref in refs),
            )
        )
    return sorted(found, key=lambda run: run.created), unread


def list_unused(workspace: Workspace, *, days: float) -> list[Unused]:
    """The finished artifacts that no report refers to, directly or through its inputs.

    Args:
        days: younger artifacts are left out, because an unfinished run may need them.

    Raises:
        RunError: the workspace has no report, so it is unknown which artifacts are needed.
        IntegrityError: a report cannot be read, so it is unknown which artifacts it refers to.
    """
    reached = set().union(
        *(_reached(workspace, read_report(workspace.store, folder)) for folder in _folders(workspace))
    )
    if not reached:
        raise RunError(f"{workspace.store.uri} has no report, so every artifact may be needed", "finish a run first")
    found = []
    for ref, num_bytes in _sizes(workspace).items():
        if ref in reached or workspace.store.size(f"{ref}/{MARKER}") is None:
            continue
        age = (time.time() - workspace.cost(workspace.get(ref)).ended) / _DAY_S
        if age >= days:
            found.append(Unused(ref=ref, num_bytes=num_bytes, days=age))
    return found


def remove(workspace: Workspace, unused: Iterable[Unused]) -> None:
    """Remove artifacts, each marker first: what an interruption leaves of an artifact counts as unfinished."""
    for each in unused:
        files = workspace.store.list(f"{each.ref}/")
        for key in sorted(files, key=lambda key: not key.endswith(f"/{MARKER}")):
            workspace.store.delete(key)


def _folders(workspace: Workspace) -> list[str]:
    """The folders of the reports."""
    return [key.removesuffix(_REPORT) for key in workspace.store.list("reports/") if key.endswith(_REPORT)]


def _reached(workspace: Workspace, document: Document) -> set[str]:
    """References of the artifacts of a report, and of all that they were made from. Lost ones count too."""
    reached, ahead = set[str](), [row.ref for row in document.ledger]
    while ahead:
        ref = ahead.pop()
        if ref in reached:
            continue
        reached.add(ref)
        try:
            artifact = workspace.get(ref)
        except (MissingObjectError, IntegrityError):
            continue
        ahead += artifact.inputs
        if owner := owner_of(artifact):
            ahead.append(owner)
    return reached


def _sizes(workspace: Workspace) -> dict[str, int]:
    """Bytes of each artifact, finished or not, from one listing."""
    stages, sizes = {*(stage.name for stage in STAGES), CHUNKS}, dict[str, int]()
    for key, num_bytes in workspace.store.sizes().items():
        stage, _, rest = key.partition("/")
        if stage in stages and "/" in rest:
            ref = f"{stage}/{rest.partition('/')[0]}"
            sizes[ref] = sizes.get(ref, 0) + num_bytes
    return sizes
