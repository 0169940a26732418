"""The finished runs and sweeps of a workspace, and the settings that tell runs of one name apart."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import fmean

from lipt.adapters.store import MissingObjectError
from lipt.errors import IntegrityError
from lipt.flow.address import read_report
from lipt.flow.runs import SWEEPS, Origins, read_list, refs_of, report_folders, sizes_of
from lipt.report.document import Document
from lipt.report.side_by_side import differing, settings_of
from lipt.runtime.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run or comparison, or the finished points of a sweep."""

    run: str
    """Name of the run; of a sweep, the `name` in its configuration."""
    points: int = 0
    """Finished points of a sweep; 0 if it is none."""
    created: str
    """ISO 8601; of a sweep, when its last network was evaluated."""
    stages: int
    """Artifacts that it made or reused."""
    accuracy: float | None
    """Test accuracy of the selected row, mean over seeds; None for a sweep, whose results are in a file of its own."""
    num_bytes: int
    """Of all artifacts that it refers to, the data set included; runs share artifacts."""
    differs: dict[str, str] = field(default_factory=dict)
    """Setting -> value, where at most half of the runs with the same `name` have this value."""


def list_runs(workspace: Workspace) -> tuple[list[Run], list[IntegrityError]]:
    """The runs and sweeps of a workspace, the latest last, and an error for each report or list that cannot be read."""
    sizes, found, unread = sizes_of(workspace.store.sizes()), list[Run](), list[IntegrityError]()
    origins, documents = Origins(workspace), list[Document]()
    for folder in report_folders(workspace):
        try:
            document = read_report(workspace.store, folder)
        except IntegrityError as error:
            unread.append(error)
            continue
        row = next((row for row in document.rows if row.role == "selected"), document.rows[0])
        documents.append(document)
        found.append(
            Run(
                run=folder.split("/")[-1],
                created=document.created,
                stages=len(document.ledger),
                accuracy=fmean(row.accuracy),
                num_bytes=sum(sizes.get(ref, 0) for ref in origins.reached(refs_of(document))),
            )
        )
    found = [replace(run, differs=own) for run, own in zip(found, _told_apart(documents), strict=True)]
    for name, keys in sweeps_of(workspace).items():
        try:
            refs = {ref for key in keys for ref in read_list(workspace, key)}
        except IntegrityError as error:
            unread.append(error)
            continue
        num_bytes = sum(sizes.get(ref, 0) for ref in origins.reached(refs))
        created = _last_evaluation(workspace, sorted(refs))
        found.append(
            Run(run=name, points=len(keys), created=created, stages=len(refs), accuracy=None, num_bytes=num_bytes)
        )
    return sorted(found, key=lambda run: run.created), unread


def _told_apart(documents: Sequence[Document]) -> list[dict[str, str]]:
    """For each report, the settings in which it differs from most reports of its name."""
    settings = [settings_of(document) for document in documents]
    found: list[dict[str, str]] = [{} for _ in documents]
    for title in dict.fromkeys(document.title for document in documents):
        places = [place for place, document in enumerate(documents) if document.title == title]
        for key, values in differing([settings[place] for place in places]).items():
            for place, value in zip(places, values, strict=True):
                if 2 * values.count(value) <= len(values):
                    found[place][key] = value
    return found


def sweeps_of(workspace: Workspace) -> dict[str, list[str]]:
    """Name -> the keys of the lists that its points left."""
    found: dict[str, list[str]] = {}
    for key in workspace.store.list(SWEEPS):
        found.setdefault(key.removeprefix(SWEEPS).rpartition("-")[0], []).append(key)
    return found


def _last_evaluation(workspace: Workspace, refs: Sequence[str]) -> str:
    """When the last of these artifacts that are evaluations ended; empty if they are lost."""
    ended = list[float]()
    for ref in refs:
        if ref.startswith("evaluate/"):
            with suppress(MissingObjectError, IntegrityError):
                ended.append(workspace.cost(workspace.get(ref)).ended)
    return datetime.fromtimestamp(max(ended), UTC).isoformat(timespec="seconds") if ended else ""
