"""What Argo Workflows and Kubeflow Pipelines have in common: the client of an engine, and the state of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lipt import __version__
from lipt.errors import UsageError

#: Engine -> where its runs are unless a user names another namespace.
DEFAULT_NAMESPACE = {"argo": "lipt", "kubeflow": "kubeflow"}
#: In the order in which they run.
BOXES = ("dispatch", "pretrain", "merge", "select", "train")


@dataclass(frozen=True, kw_only=True)
class BoxState:
    """A box of a run. Times are ISO 8601, None where there is none yet."""

    name: str
    phase: str
    """Pending, Running, Succeeded, Failed or Skipped."""
    started: str | None = None
    finished: str | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class RunState:
    """A run as its engine knows it."""

    phase: str
    """Pending, Running, Succeeded or Failed."""
    parameters: dict[str, Any]
    boxes: list[BoxState] = field(default_factory=list)
    message: str = ""

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


class EngineClient(Protocol):
    """What `lipt submit`, `status`, `logs` and `report` need of an engine."""

    def parameters(self) -> dict[str, Any]:
        """The parameters of the installed pipeline with their defaults, None where there is none.

        Raises:
            UsageError: it is not installed, or belongs to another version of lipt.
        """
        ...

    def submit(self, name: str, parameters: Mapping[str, Any]) -> str:
        """Start a run; returns its identifier."""
        ...

    def state(self, run: str) -> RunState:
        """Where a run stands."""
        ...

    def workflow(self, run: str) -> str:
        """The name of the workflow that executes a run."""
        ...


def check_version(found: str, *, what: str, remedy: str) -> None:
    """A pipeline of another version would misread what this one writes.

    Raises:
        UsageError: `found` is not this version.
    """
    if found != __version__:
        raise UsageError(f"{what} is of lipt {found or '(unknown)'}, this is {__version__}", remedy)
