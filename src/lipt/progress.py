"""Progress of running stages on stderr: bars on a terminal, lines elsewhere."""

import sys
import threading
from collections.abc import Mapping
from typing import Any, TextIO

from lipt import metrics
from lipt.errors import in_one_line
from lipt.progress_lines import LABEL, PART, Alike, Standing, brief, line_of

#: Seconds between two progress lines of a running stage.
_EVERY_S = 30.0


class Reporter:
    """One aligned line per finished stage, and one every 30 s per running stage, so that a pod's log shows progress.

    Parts of a stage that are up to date, or that a dry run lists, share a line. It is printed before the next line of
    another kind, or by `close`.
    """

    def __init__(self, stream: TextIO | None = None, *, every_s: float = _EVERY_S, verbose: bool = False) -> None:
        self.stream = stream or sys.stderr
        self._verbose = verbose
        self._alike: Alike | None = None
        self._warned: set[str] = set()
        self.scope = ""
        """The run among several of one command, such as `random/seed 1`. Figures are told apart by it."""
        self.running: dict[str, Standing] = {}
        self._every_s = every_s
        self._measures = True
        self._lock = threading.Lock()
        self._idle = threading.Event()

    def started(self, label: str) -> None:
        """A stage begins."""
        self._flush()
        with self._lock:
            self.running[label] = Standing()
            if len(self.running) == 1:
                self._idle = threading.Event()
                threading.Thread(target=self._watch, args=(self._idle,), daemon=True).start()

    def advance(self, label: str, done: int, total: int, text: str = "") -> None:
        """A stage has done `done` of `total` units; `total` is 0 if unknown.

        Args:
            text: the unit, then further information.
        """
        with self._lock:
            if label in self.running:
                self.running[label].advance(done, total, text)

    def stopped(self, label: str) -> None:
        """A stage ended without finishing."""
        with self._lock:
            self.running.pop(label, None)
            if not self.running:
                self._idle.set()

    def measured(self, label: str, step: int, figures: Mapping[str, float]) -> None:
        """Figures of a stage after an optimiser step; step 0: of the whole stage. They go where LIPT_METRICS says.
        A run does not fail because they cannot be delivered."""
        if not self._measures:
            return
        try:
            metrics.log(f"{self.scope}/{label}" if self.scope else label, step, figures)
        except Exception as error:  # of a program that is not ours
            self._measures = False
            self.alert(f"{metrics.VARIABLE}: {in_one_line(error)}; the run continues without it")

    def done(self, label: str, wall_s: float, summary: dict[str, Any]) -> None:
        """A stage finished."""
        self.stopped(label)
        self.note(label, f"{wall_s:8.1f} s  {brief(summary, verbose=self._verbose)}")

    def skipped(self, label: str, summary: dict[str, Any]) -> None:
        """A stage was already finished."""
        self._state(label, "up to date", brief(summary, verbose=self._verbose))

    def planned(self, label: str) -> None:
        """A stage would run."""
        self._state(label, " would run")

    def note(self, label: str, text: str) -> None:
        """A line about a stage."""
        self.say(line_of(label, text))

    def warn(self, text: str) -> None:
        """A warning, once: the runs of a comparison may give the same one."""
        if text not in self._warned:
            self._warned.add(text)
            self.alert(f"warning: {text}")

    def alert(self, text: str, label: str = "") -> None:
        """A line about something that went wrong, was lost or left out, although the run goes on.

        Args:
            label: the stage that it is about, if it is one.
        """
        self._flush()
        self._print((line_of(label, text) if label else text).rstrip())

    def say(self, text: str) -> None:
        """A line of progress. Parts of a stage that wait for a common line come first."""
        self._flush()
        self._print(text.rstrip())

    def close(self) -> None:
        """Stop reporting; release the terminal."""
        self._flush()
        with self._lock:
            self.running.clear()
            self._idle.set()

    def _print(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def _state(self, label: str, state: str, facts: str = "") -> None:
        part = PART.fullmatch(label)
        if part is None:
            self.note(label, f"{state}  {facts}")
            return
        name, index = part[1], int(part[2])
        with self._lock:
            if self._alike and (self._alike.name, self._alike.state) == (name, state):
                self._alike.indices.append(index)
                return
        self._flush()
        self._alike = Alike(name, state, [index], facts)

    def _flush(self) -> None:
        with self._lock:
            alike, self._alike = self._alike, None
        if alike:
            self._print(alike.line().rstrip())

    def _watch(self, idle: threading.Event) -> None:
        while not idle.wait(self._every_s):
            with self._lock:
                lines = [(label, standing.line()) for label, standing in self.running.items()]
            for label, line in lines:
                self.note(label, line)


class QuietReporter(Reporter):
    """No progress: only what `alert` and `warn` say."""

    def say(self, text: str) -> None:
        """Print nothing."""

    def _state(self, label: str, state: str, facts: str = "") -> None:
        """Print nothing."""


class TerminalReporter(Reporter):
    """A live bar for each running stage, below the lines of finished stages."""

    def __init__(self, *, verbose: bool) -> None:
        super().__init__(verbose=verbose)
        from rich.console import Console  # takes 60 ms to import; only for a terminal
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.table import Column

        self.bars = Progress(
            TextColumn(f"{{task.description:<{LABEL}}}", markup=False),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True, overflow="crop")),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.tasks: dict[str, Any] = {}
        self.bars.start()

    def started(self, label: str) -> None:
        self._flush()
        self.running[label] = Standing()
        self.tasks[label] = self.bars.add_task(label, total=None, text="")

    def advance(self, label: str, done: int, total: int, text: str = "") -> None:
        super().advance(label, done, total, text)
        if label in self.tasks:
            room = self.bars.console.width - _BESIDES
            counts = full = self.running[label].counts()
            for shorter in (text.partition(",")[0], ""):  # omit the epoch, then the unit; never cut the figures
                if len(counts) > room:
                    counts = (full.removesuffix(text) + shorter).rstrip()
            self.bars.update(self.tasks[label], completed=done, total=total or None, text=counts)

    def stopped(self, label: str) -> None:
        self.running.pop(label, None)
        if label in self.tasks:
            self.bars.remove_task(self.tasks.pop(label))

    def _print(self, text: str) -> None:
        self.bars.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._flush()
        self.bars.stop()


#: Width of the bar, the label and the times.
_BESIDES = LABEL + 30


def make_reporter(*, quiet: bool = False, verbose: bool = False) -> Reporter:
    """Bars if stderr is a terminal, else lines; no progress if `quiet`, every fact of a stage if `verbose`."""
    if quiet:
        return QuietReporter()
    return TerminalReporter(verbose=verbose) if sys.stderr.isatty() else Reporter(verbose=verbose)
