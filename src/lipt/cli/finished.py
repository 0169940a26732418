"""Find the report of a finished run, by its configuration, its name, its handle or its place."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from shlex import quote

import click

from lipt.adapters.cluster.api import Cluster
from lipt.adapters.cluster.engine import DEFAULT_NAMESPACE, RunState
from lipt.adapters.cluster.job_manifest import Pods
from lipt.adapters.cluster.runs import Handle
from lipt.adapters.cluster.runs_store import open_store_of_runs
from lipt.adapters.store import MissingObjectError, Store, open_store
from lipt.adapters.store.file import FileStore
from lipt.config import Config, load_config, override, parse_config, read_yaml
from lipt.errors import RunError, UsageError
from lipt.flow.address import PAGE, near_run, page_of, read_report, report_folder, reports_of
from lipt.flow.listing import sweeps_of
from lipt.flow.runs import report_folders
from lipt.pods.spec import PARAMETERS, configure
from lipt.progress import Reporter
from lipt.report.document import Document
from lipt.runtime.context import Context
from lipt.runtime.workspace import Workspace

#: The workspace whose runs need no more than a name.
_DEFAULT: str = Config.model_fields["workspace"].default


@dataclass(frozen=True)
class Found:
    """A finished run's report, in a store."""

    document: Document
    store: Store
    folder: str
    """Key of the folder of the report."""
    remote: bool
    """Whether a person needs a copy in the current folder."""
    of_config: bool
    """Whether a configuration named it."""

    @property
    def location(self) -> str:
        """Path or address of the page, as a person opens it."""
        return page_of(self.store, self.folder)

    def context(self, reporter: Reporter) -> Context:
        """The run as stages see it, to read its artifacts on this machine, which needs no GPU for that."""
        from lipt.report.document import NETWORK_CODE

        provenance = self.document.provenance
        settings, _ = read_yaml(provenance.config_yaml, "the configuration in the report")
        config = override(parse_config(settings), {"device": "cpu"})
        codes = {config.model.name: provenance.digests.get(NETWORK_CODE)}  # the weights belong to this code alone
        return Context(config=config, workspace=Workspace(self.store), reporter=reporter, codes=codes)

    def rendered(self) -> str:
        """Render the page again; returns the path of a copy that a browser can open.

        If it cannot be written, the page that is there already, or the copy, is enough.

        Raises:
            LiptError: there is no page, and none can be written.
        """
        from lipt.report.html_page import render

        html, key = render(self.document).encode(), f"{self.folder}/{PAGE}"
        here = self.store.uri.startswith("file://") and not self.remote
        try:
            self.store.write(key, html, kind="other")
        except (RunError, UsageError) as error:  # a read-only folder or bucket, a full disk
            if here and self.store.size(key) is None:
                raise
            click.echo(f"lipt: the page is not written again: {error.message}", err=True)
        if here:
            return self.location
        return write_here(f"{self.folder.rpartition('/')[2]}.html", html)

    def shown(self) -> str:
        """Render the page again; returns its location, or that of the copy if a person needs one.

        Raises:
            LiptError: as `rendered`.
        """
        copy = self.rendered()
        return copy if self.remote or self.store.size(f"{self.folder}/{PAGE}") is None else self.location


def find_report(run: str, overrides: tuple[str, ...], stack: ExitStack) -> Found:
    """The report of a configuration, of a handle, of WORKSPACE/reports/RUN, or of a RUN in the default workspace.

    A file counts as a configuration, also if it is called like a run.

    Args:
        stack: closes the way to the store of a cluster.

    Raises:
        RunError: there is none.
        UsageError: `run` names nothing, --set for a finished run, or a wrong configuration.
    """
    file = run.endswith((".yaml", ".yml"))
    remote = not file and run.startswith(tuple(f"{engine}/" for engine in DEFAULT_NAMESPACE))
    here = run.startswith("reports/") and os.path.exists(run)  # in the workspace itself
    workspace, below, name = (f"./{run}" if here else run).rpartition("/reports/")
    name = name.partition("/")[0]  # without one of its files
    state, stored = None, bool(below) and not remote and not file
    if not (file or remote or stored or os.path.isfile(run)):
        workspace, name, stored = _DEFAULT, _listed(run), True
    config: Config | None = None
    if overrides and (remote or stored):
        raise UsageError("--set cannot change a finished run", "remove --set")
    if stored:
        store, folder = open_store(workspace), f"reports/{name}"
    elif remote:
        state, store, folder = _report_of_handle(run, stack)
    else:
        config = load_config(run, list(overrides))
        store, folder = open_store(config.workspace), report_folder(config)
        if found := reports_of(store, config):
            folder = max(found, key=lambda each: found[each].created)
    try:
        return Found(read_report(store, folder), store, folder, remote, of_config=config is not None)
    except MissingObjectError:
        if state:
            raise _without_report(run, state, store) from None
        raise _never_run(run, overrides, store, config) if config else _not_listed(run, store) from None


def _never_run(run: str, overrides: tuple[str, ...], store: Store, config: Config) -> RunError:
    """The error for a configuration without a report in its workspace."""
    workspace = config.workspace
    relative = "://" not in workspace and not Path(workspace).is_absolute()
    here = f"`workspace: {workspace}` is relative to the current folder"
    command = " ".join(["lipt run", quote(run), *(f"--set {quote(each)}" for each in overrides)])
    also = near_run(store, config) or (f". If you ran it in another folder, go there: {here}" if relative else "")
    return RunError(
        f"{store.uri} has no report of {run}",
        f"run it first: {command}; lipt ls {quote(_place(store))} lists the finished runs{also}",
    )


def _not_listed(run: str, store: Store) -> RunError:
    """The error for a run that a workspace does not have."""
    return RunError(
        f"{store.uri} has no report of {run}", f"name one of those that lipt ls {quote(_place(store))} lists"
    )


def _place(store: Store) -> str:
    """A store, as a command takes it."""
    return store.uri.removeprefix("file://")


def _listed(run: str) -> str:
    """`run`, which must be the name of a finished run in the default workspace.

    Raises:
        UsageError: it is not; names the runs that may be meant.
    """
    workspace = Workspace(FileStore(_DEFAULT)) if Path(_DEFAULT).is_dir() else None
    names = [folder.partition("/")[2] for folder in report_folders(workspace)] if workspace else []
    if run in names:
        return run
    if workspace and run in sweeps_of(workspace):
        raise UsageError(
            f"{run} is a sweep, which has no report of its own",
            "lipt sweep FILE prints its table; finished points are not computed again",
        )
    near = [name for name in names if name.startswith(f"{run}-")][-3:] or get_close_matches(run, names, n=1)
    known = f"a run in {_DEFAULT} (lipt ls lists them), WORKSPACE/reports/RUN, or the handle of a run on a cluster"
    raise UsageError(
        f"{run}: neither a configuration nor a run",
        f"did you mean {' or '.join(near)}?" if near else f"name a YAML file, {known}",
    )


def write_here(name: str, html: bytes) -> str:
    """Write a page into the current folder; returns its path.

    Raises:
        RunError: the folder cannot be written.
    """
    FileStore(".").write(name, html, kind="other")
    return str(Path(name).absolute())


def _report_of_handle(handle: str, stack: ExitStack) -> tuple[RunState, Store, str]:
    """The state of a run on a cluster, its store, and the folder of its report."""
    address = Handle.parse(handle)
    cluster = Cluster()
    state = address.client(cluster).state(address.run)
    parameters = state.parameters
    if "workspace" not in parameters:
        raise RunError(
            f"{handle} writes no report: it is no run of the pipelines lipt or lipt-compare",
            f"name such a run; `lipt status {handle}` shows this one",
        )
    settings = {name: value for name, value in parameters.items() if name in PARAMETERS}
    config = configure(str(parameters.get("config") or ""), **settings)
    s3 = str(parameters.get("s3") or Pods.model_fields["s3"].default)
    opened = open_store_of_runs(cluster, address.namespace, s3, config.workspace)
    comparison = any(box.name == "compare" for box in state.boxes)
    return state, stack.enter_context(opened), report_folder(config, comparison=comparison)


def _without_report(handle: str, state: RunState, store: Store) -> RunError:
    """Why a run on a cluster has no report in the store of its workspace."""
    if not state.over:
        return RunError(f"{handle} has no report yet: it has not ended", f"wait for it: lipt status {handle} --wait")
    if state.phase == "Failed":
        return RunError(f"{handle} failed before it wrote a report", f"lipt status {handle} gives the reason")
    return RunError(
        f"{handle} has succeeded, but {store.uri} has no report of it",
        "it was removed, LIPT_S3_ENDPOINT leads to another store, or the run used another version of lipt",
    )
