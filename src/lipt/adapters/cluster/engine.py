"""Common to Argo Workflows and Kubeflow Pipelines: the client of an engine, and the state of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lipt.errors import UsageError
from lipt.pipeline import ClusterEngine
from lipt.version import __version__

#: Engine -> namespace of its runs, unless the user names another.
DEFAULT_NAMESPACE: dict[ClusterEngine, str] = {"argo": "lipt", "kubeflow": "kubeflow"}


@dataclass(frozen=True, kw_only=True)
class BoxState:
    """A box of a run. Times are ISO 8601, or None until they are known."""

    name: str
    phase: str
    """Pending, Running, Succeeded, Failed or Skipped."""
    started: str | None = None
    finished: str | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The state of a run, as its engine reports it."""

    phase: str
    """Pending, Running, Succeeded or Failed."""
    parameters: dict[str, Any]
    boxes: list[BoxState] = field(default_factory=list)
    message: str = ""
    suspended: bool = False
    """Somebody has suspended it: it goes on when somebody resumes it. `message` says how."""

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


#: In the message of a box that runs again: the reason of an earlier attempt follows.
BEFORE = " (before: "


def repeated(attempts: int, message: str) -> str:
    """The message of a box that runs again, whose earlier attempt ended with `message`."""
    return f"attempt {attempts}{BEFORE}{message})"


#: Messages of a pod that is about to start: nothing has to be done.
STARTING = ("PodInitializing", "ContainerCreating")


def said(node: Mapping[str, Any]) -> str:
    """The message of a workflow's node; empty if its pod is only about to start."""
    message = str(node.get("message") or "")
    return "" if message in STARTING else message


class EngineClient(Protocol):
    """The part of an engine that `lipt submit`, `status`, `logs`, `cancel` and `report` need."""

    def parameters(self) -> dict[str, Any]:
        """The parameters of the installed pipeline, each with its default; None: it is required.

        Raises:
            UsageError: it is not installed, or belongs to another version of lipt.
        """
        ...

    def submit(self, name: str, parameters: Mapping[str, Any]) -> str:
        """Start a run; returns its identifier.

        Raises:
            RunError: the cluster does not keep what identifies the run.
        """
        ...

    def state(self, run: str) -> RunState:
        """The state of a run."""
        ...

    def cancel(self, run: str) -> None:
        """Stop a run. Its boxes get SIGTERM; the Jobs of their workers go on for a while (`delete_jobs`)."""
        ...

    def workflow(self, run: str) -> str:
        """The name of the workflow that executes a run."""
        ...


def check_version(found: str, *, what: str, remedy: str) -> None:
    """Refuse a pipeline of another version, which would misread our parameters.

    Raises:
        UsageError: `found` is not this version.
    """
    if found != __version__:
        raise UsageError(f"{what} is for lipt {found or '(unknown)'}, but this is lipt {__version__}", remedy)
