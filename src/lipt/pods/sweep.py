"""A sweep as pipeline runs: one run per point, row and seed; equal ones once.

The workspace says what is left to do: a run is finished when its report lies there. Beside the report lies the handle
of the run that was started last, so the same command finds the runs in progress, from any machine. Stages that runs
have in common are made once, as for any two runs (`runtime/lease.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from lipt.adapters.cluster.api import MissingError
from lipt.adapters.cluster.engine import EngineClient, RunState
from lipt.adapters.cluster.runs import Handle
from lipt.adapters.store import MissingObjectError, Store
from lipt.config import Config, Point
from lipt.errors import FailedPointError, TransientError, UsageError
from lipt.flow.address import read_report
from lipt.pods.sweep_cells import Cells
from lipt.report.document import NETWORK_CODE
from lipt.report.sweep import Result
from lipt.training.user_model import code_digest
from lipt.version import __version__

#: Seconds between two looks at the runs in progress.
POLL_S = 5.0
#: Seconds for which a sweep outlives that the cluster or the store does not answer: its runs take hours.
OUTAGE_S = 3600.0
#: Failed runs that an error names; the others are on the screen already.
_NAMED = 3


class SweepRuns:
    """The runs of a sweep on a cluster, and the results that they leave in the workspace."""

    def __init__(
        self,
        points: Sequence[Point],
        *,
        client: EngineClient,
        place: str,
        parameters: Callable[[Config], dict[str, Any]],
        opened: Callable[[], AbstractContextManager[Store]],
        say: Callable[[str], object],
        at_once: int,
    ) -> None:
        """
        Args:
            place: `ENGINE/NAMESPACE`, with which the handles of the runs begin.
            parameters: the pipeline's parameters for a configuration; raises if it could not run.
            opened: the workspace. It is opened anew in each round, because a tunnel to a store does not stand for days.
            at_once: the most runs in progress at a time.

        Raises:
            LiptError: a configuration cannot run; names the point.
        """
        self.cells = Cells(points, parameters)
        self.client, self.place, self.opened, self.say, self.at_once = client, place, opened, say, at_once
        self._pending: list[str] = []
        self._running: dict[str, str] = {}
        """Key -> the identifier that the engine gave the run."""
        self._failed: dict[str, str] = {}
        """Key -> handle of the run, its cell, and why it failed."""
        self._suspended = set[str]()
        """Keys of the runs that are known to be suspended."""
        self._answered: float | None = None
        """When cluster and store last answered."""

    def run(self, save: Callable[[Sequence[Result]], object]) -> list[Result]:
        """Start what is missing, wait for all runs, and return the results.

        Args:
            save: is called with the results of all finished points, whenever another point is finished.

        Raises:
            FailedPointError: runs failed; names them. The others are finished.
            TransientError: the cluster or the store does not answer at first, or for an hour later on.
        """
        saved, ended = 0, dict[str, RunState]()
        try:
            while True:
                try:
                    with self.opened() as store:
                        self._settle(store, ended)
                        self.look(store)
                        self._start(store)
                    results = self.cells.results()
                    if len(results) > saved:
                        save(results)
                        saved = len(results)
                    if not self._running:
                        break
                    ended = self._wait()
                except TransientError as error:
                    ended = self._outlive(error)
        except BaseException:
            if self._running:
                handles = ", ".join(f"{self.place}/{run}" for run in self._running.values())
                self.say(f"these runs go on, and the same command finds them: {handles}")
            raise
        if self._failed:
            named = "; ".join(list(self._failed.values())[:_NAMED])
            raise FailedPointError(
                f"{len(self._failed)} of {self.cells.counts()[0]} runs failed: {named}",
                "lipt logs HANDLE says more; the same command runs only what is missing",
            )
        return results

    def look(self, store: Store) -> None:
        """Read the reports of runs that were not looked for yet."""
        looked = {*self.cells.reports, *self._pending, *self._running, *self._failed}
        while fresh := [key for key in self.cells.keys if key not in looked]:
            looked.update(fresh)
            self._pending += [key for key in fresh if not (self._read(store, key) and self._of_this_network(key))]
            self.cells.name_runs()

    def _read(self, store: Store, key: str) -> bool:
        """Read the report of a run; False if there is none, or only one of another version of lipt."""
        try:
            found = read_report(store, f"reports/{key}")
        except MissingObjectError:
            return False
        if found.provenance.versions.get("lipt") != __version__:
            return False
        self.cells.reports[key] = found
        return True

    def _of_this_network(self, key: str) -> bool:
        """Whether a finished run trained the network as its code is here; if not, the run is forgotten."""
        then = self.cells.reports[key].provenance.digests.get(NETWORK_CODE)
        now = code_digest(self.cells.of(key).point.config.model.name)
        if then is None or now is None or then == now:
            return True
        del self.cells.reports[key]
        self.say(f"{key} runs again: the code of its network has changed")
        return False

    def _start(self, store: Store) -> None:
        """Start runs, or find them in progress, until there are `at_once`."""
        while self._pending and len(self._running) < self.at_once:
            key = self._pending.pop(0)
            run, verb = self._in_progress(store, key), "is in progress"
            if run is None:
                name = self.cells.of(key).point.config.name
                run, verb = self.client.submit(name, self.cells.parameters[key]), "has started"
                self._running[key] = run  # first: if the store fails now, the error names the run
                store.write(_handle_key(key), f"{self.place}/{run}".encode(), kind="other")
            self._running[key] = run
            self.say(f"{self._tell(key, run)} {verb}")

    def _in_progress(self, store: Store, key: str) -> str | None:
        """The run that an earlier command started, unless it has ended."""
        try:
            handle = Handle.parse(store.read(_handle_key(key), kind="other").decode(errors="replace"))
        except MissingObjectError:
            return None
        except UsageError:  # damaged: two runs of the same work are safe, and do each stage once
            return None
        if f"{handle.engine}/{handle.namespace}" != self.place:
            return None
        with suppress(MissingError):
            return None if self.client.state(handle.run).over else handle.run
        return None

    def _wait(self) -> dict[str, RunState]:
        """Wait until runs end; returns their states, by name of the run."""
        ended: dict[str, RunState] = {}
        while not ended:
            time.sleep(POLL_S)
            states = {key: self._state(run) for key, run in self._running.items()}
            self._tell_suspended(states)
            ended = {key: state for key, state in states.items() if state.over}
            self._answered = time.monotonic()  # the store has answered just before
        return ended

    def _tell_suspended(self, states: Mapping[str, RunState]) -> None:
        """Say which runs somebody has suspended, when it happens: else the sweep waits for them in silence."""
        suspended = {key for key, state in states.items() if state.suspended}
        for key in sorted(suspended - self._suspended):
            self.say(f"{self._tell(key, self._running[key])}: {states[key].message}")
        self._suspended = suspended

    def _outlive(self, error: TransientError) -> dict[str, RunState]:
        """Say that cluster or store do not answer, unless it has lasted too long; the next round asks all again."""
        if self._answered is None or time.monotonic() - self._answered > OUTAGE_S:
            raise error
        self.say(f"tries again, because {error.message}")
        time.sleep(POLL_S)
        return {}

    def _settle(self, store: Store, ended: Mapping[str, RunState]) -> None:
        """Read the reports of runs that have ended."""
        for key, state in ended.items():
            run = self._running[key]
            why = _reason(state) if state.phase == "Failed" else ""
            if not why and not self._read(store, key):
                why = f"it has ended, but the workspace has no report of it by lipt {__version__}"
            del self._running[key]  # last: if the store does not answer, the run is looked at again
            if why:
                self._failed[key] = f"{self._tell(key, run)}: {why}"
            total, finished = self.cells.counts()
            self.say(self._failed.get(key) or f"{self._tell(key, run)} has finished: {finished} of {total} runs")
        self.cells.name_runs()

    def _state(self, run: str) -> RunState:
        """The state of a run; a run that somebody deleted has failed."""
        try:
            return self.client.state(run)
        except MissingError as error:
            return RunState(phase="Failed", parameters={}, message=error.message)

    def _tell(self, key: str, run: str) -> str:
        """The handle of a run, and what it makes."""
        return f"{self.place}/{run} ({self.cells.of(key)})"


def _handle_key(key: str) -> str:
    """Where the handle of the run that was started last lies."""
    return f"reports/{key}/handle"


def _reason(state: RunState) -> str:
    """Why a run failed."""
    told = (f"{box.name}: {box.message}" for box in state.boxes if box.phase == "Failed" and box.message)
    return next(told, state.message or "no reason is known")
