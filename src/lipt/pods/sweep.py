"""A sweep as pipeline runs: one run per point, row and seed; equal ones once.

The workspace says what is left to do: a run is finished when its report lies there. Beside the report lies the handle
of the run that was started last, so the same command finds the runs in progress, from any machine. Stages that runs
have in common are made once, as for any two runs (`runtime/lease.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from lipt.adapters.cluster.api import MissingError
from lipt.adapters.cluster.engine import EngineClient, RunState
from lipt.adapters.store import MissingObjectError, Store
from lipt.config import Config, Point
from lipt.errors import LiptError, RunError, TransientError
from lipt.flow.address import read_report, run_id
from lipt.flow.provenance_view import NETWORK_CODE, digest_of_network
from lipt.flow.variants import variants
from lipt.pods.sweep_cells import Cell, over_seeds, steps_for_its_cost
from lipt.report.document import Document, Row
from lipt.report.rivals import LONGER
from lipt.report.sweep import Result
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
        self.points, self.client, self.place = points, client, place
        self.opened, self.say, self.at_once = opened, say, at_once
        self._cells: dict[tuple[int, str, int], Cell] = {}
        for number, point in enumerate(points):
            known = variants(point.config)
            for name in (name for name in point.config.compare.variants if name in known):
                for seed in point.config.compare.seeds:
                    self._cells[number, name, seed] = Cell(point=point, variant=known[name], seed=seed)
        self._keys: dict[tuple[int, str, int], str] = {}
        """Cell -> name of its run; without cells whose number of steps is not known yet."""
        self._parameters: dict[str, dict[str, Any]] = {}
        self._config_name = points[0].config.name
        self._make_parameters = parameters
        self._reports: dict[str, Document] = {}
        self._pending: list[str] = []
        self._running: dict[str, str] = {}
        """Name of a run -> the identifier that the engine gave it."""
        self._failed: dict[str, str] = {}
        """Name of a run -> its handle, its cell, and why it failed."""
        self._answered: float | None = None
        """When cluster and store last answered."""
        self._name_runs()

    def run(self, save: Callable[[Sequence[Result]], object]) -> list[Result]:
        """Start what is missing, wait for all runs, and return the results.

        Args:
            save: is called with the results of all finished points, whenever another point is finished.

        Raises:
            RunError: runs failed; names them. The others are finished.
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
                    results = self.results()
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
            raise RunError(
                f"{len(self._failed)} of {self.counts()[0]} runs failed: {named}",
                "lipt logs HANDLE says more; the same command runs only what is missing",
            )
        return results

    def look(self, store: Store) -> None:
        """Read the reports of runs that were not looked for yet."""
        looked = {*self._reports, *self._pending, *self._running, *self._failed}
        while fresh := [key for key in dict.fromkeys(self._keys.values()) if key not in looked]:
            looked.update(fresh)
            self._pending += [key for key in fresh if not (self._read(store, key) and self._of_this_network(key))]
            self._name_runs()

    def counts(self) -> tuple[int, int]:
        """The numbers of (all, finished) runs. A random subset that is trained longer counts for each choice as long as
        the cost of the choice is unknown."""
        return len(set(self._keys.values())) + len(self._cells) - len(self._keys), len(self._reports)

    def results(self) -> list[Result]:
        """The results of all points whose runs are finished."""
        found = []
        for number, point in enumerate(self.points):
            cells = [place for place in self._cells if place[0] == number]
            if any(self._keys.get(place) not in self._reports for place in cells):
                continue
            rows: dict[str, list[Row]] = {}
            for place in cells:
                rows.setdefault(place[1], []).append(self._reports[self._keys[place]].rows[0])
            merged = [over_seeds(self._cells[number, name, own[0].seeds[0]], own) for name, own in rows.items()]
            found.append(Result(point=dict(point.values), rows=merged))
        return found

    def _name_runs(self) -> None:
        """Name the runs of cells whose configuration has become known."""
        for place, cell in self._cells.items():
            if place in self._keys:
                continue
            steps = None
            if cell.variant.name == LONGER:
                number, _, seed = place
                chosen = self._reports.get(self._keys.get((number, "lipt", seed), ""))
                if chosen is None:
                    continue
                steps = steps_for_its_cost(chosen, cell.point.config.train)
            config = cell.config(steps)
            key = self._keys[place] = run_id(config)
            if key not in self._parameters:
                try:
                    self._parameters[key] = self._make_parameters(config)
                except LiptError as error:
                    raise type(error)(f"{cell}: {error.message}", error.remedy) from error

    def _read(self, store: Store, key: str) -> bool:
        """Read the report of a run; False if there is none, or only one of another version of lipt."""
        try:
            found = read_report(store, f"reports/{key}")
        except MissingObjectError:
            return False
        if found.provenance.versions.get("lipt") != __version__:
            return False
        self._reports[key] = found
        return True

    def _of_this_network(self, key: str) -> bool:
        """Whether a finished run trained the network as its code is here; if not, the run is forgotten."""
        then = self._reports[key].provenance.digests.get(NETWORK_CODE)
        now = digest_of_network(self._cell(key).point.config)
        if then is None or now is None or then == now:
            return True
        del self._reports[key]
        self.say(f"{key} runs again: the code of its network has changed")
        return False

    def _start(self, store: Store) -> None:
        """Start runs, or find them in progress, until there are `at_once`."""
        while self._pending and len(self._running) < self.at_once:
            key = self._pending.pop(0)
            run, verb = self._in_progress(store, key), "is in progress"
            if run is None:
                run, verb = self.client.submit(self._config_name, self._parameters[key]), "has started"
                self._running[key] = run  # first: if the store fails now, the error names the run
                store.write(_handle_key(key), f"{self.place}/{run}".encode(), kind="other")
            self._running[key] = run
            self.say(f"{self._tell(key, run)} {verb}")

    def _in_progress(self, store: Store, key: str) -> str | None:
        """The run that an earlier command started, unless it has ended."""
        try:
            place, _, run = store.read(_handle_key(key), kind="other").decode().rpartition("/")
            return run if place == self.place and not self.client.state(run).over else None
        except (MissingObjectError, MissingError):
            return None

    def _wait(self) -> dict[str, RunState]:
        """Wait until runs end; returns their states, by name of the run."""
        ended: dict[str, RunState] = {}
        while not ended:
            time.sleep(POLL_S)
            ended = {key: state for key, run in self._running.items() if (state := self._state(run)).over}
            self._answered = time.monotonic()  # the store has answered just before
        return ended

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
            self.say(self._failed.get(key) or f"{self._tell(key, run)} has finished: {self._progress()}")
        self._name_runs()

    def _state(self, run: str) -> RunState:
        """The state of a run; a run that somebody deleted has failed."""
        try:
            return self.client.state(run)
        except MissingError as error:
            return RunState(phase="Failed", parameters={}, message=error.message)

    def _tell(self, key: str, run: str) -> str:
        """The handle of a run, and what it makes."""
        return f"{self.place}/{run} ({self._cell(key)})"

    def _cell(self, key: str) -> Cell:
        """The first of the cells whose run this is."""
        return next(self._cells[place] for place, own in self._keys.items() if own == key)

    def _progress(self) -> str:
        total, finished = self.counts()
        return f"{finished} of {total} runs"


def _handle_key(key: str) -> str:
    """Where the handle of the run that was started last lies."""
    return f"reports/{key}/handle"


def _reason(state: RunState) -> str:
    """Why a run failed."""
    told = (f"{box.name}: {box.message}" for box in state.boxes if box.phase == "Failed" and box.message)
    return next(told, state.message or "no reason is known")
