"""Progress of running stages on stderr: bars on a terminal, lines elsewhere."""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from lipt import metrics
from lipt.errors import in_one_line

#: Seconds between two progress lines of a running stage.
_EVERY_S = 30.0


@dataclass(kw_only=True)
class Standing:
    """Progress of a running stage."""

    done: int = 0
    total: int = 0
    """0 if unknown."""
    text: str = ""
    """The unit, and further information."""
    since: float = field(default_factory=time.monotonic)
    first: tuple[float, int] | None = None
    """Time of the first message and the work done by then: a stage may continue from a checkpoint."""

    def advance(self, done: int, total: int, text: str) -> None:
        self.done, self.total, self.text = done, total, text
        if self.first is None or done < self.first[1]:
            self.first = (time.monotonic(), done)

    def counts(self) -> str:
        """`1,280 of 51,600 images`; `1,280 images` without a total."""
        if self.total:
            return f"{self.done:,} of {self.total:,} {self.text}"
        return f"{self.done:,} {self.text}" if self.done else ""

    def line(self) -> str:
        """`90 s  1,280 of 51,600 images  142/s  6 min left`."""
        now = time.monotonic()
        parts = [_duration(now - self.since), self.counts()]
        if self.first and now > self.first[0] and self.done > self.first[1]:
            rate = (self.done - self.first[1]) / (now - self.first[0])
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
            if self.total:
                parts.append(f"{_duration((self.total - self.done) / rate)} left")
        return "  ".join(filter(None, parts))


class Reporter:
    """One aligned line per finished stage, and one every 30 s per running stage, so that a pod's log shows progress."""

    def __init__(self, stream: TextIO | None = None, *, every_s: float = _EVERY_S) -> None:
        self.stream = stream or sys.stderr
        self.scope = ""
        """The run among several of one command, such as `random/seed 1`. Figures are told apart by it."""
        self.running: dict[str, Standing] = {}
        self._every_s = every_s
        self._measures = True
        self._lock = threading.Lock()
        self._idle = threading.Event()

    def started(self, label: str) -> None:
        """A stage begins."""
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
            self.say(f"{metrics.VARIABLE}: {in_one_line(error)}; the run continues without it")

    def done(self, label: str, wall_s: float, summary: dict[str, Any]) -> None:
        """A stage finished."""
        self.stopped(label)
        self.say(f"{label:<16} {wall_s:8.1f} s  {_brief(summary)}")

    def skipped(self, label: str, summary: dict[str, Any]) -> None:
        """A stage was already finished."""
        self.say(f"{label:<16}  up to date  {_brief(summary)}")

    def planned(self, label: str) -> None:
        """A stage would run."""
        self.say(f"{label:<16}   would run")

    def say(self, text: str) -> None:
        print(text.rstrip(), file=self.stream, flush=True)

    def close(self) -> None:
        """Stop reporting; release the terminal."""
        with self._lock:
            self.running.clear()
            self._idle.set()

    def _watch(self, idle: threading.Event) -> None:
        while not idle.wait(self._every_s):
            with self._lock:
                lines = [f"{label:<16}  {standing.line()}" for label, standing in self.running.items()]
            for line in lines:
                self.say(line)


class QuietReporter(Reporter):
    """No line at all."""

    def say(self, text: str) -> None:
        """Say nothing."""


class TerminalReporter(Reporter):
    """A live bar for each running stage, below the lines of finished stages."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console  # takes 60 ms to import; only for a terminal
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.table import Column

        self.bars = Progress(
            TextColumn("{task.description:<16}", markup=False),
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

    def say(self, text: str) -> None:
        self.bars.console.print(text.rstrip(), highlight=False, markup=False)

    def close(self) -> None:
        self.bars.stop()


#: Width of the bar, the label and the times.
_BESIDES = 46


def make_reporter(*, quiet: bool = False) -> Reporter:
    """Bars if stderr is a terminal, else lines; nothing if `quiet`."""
    if quiet:
        return QuietReporter()
    return TerminalReporter() if sys.stderr.isatty() else Reporter()


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _brief(summary: dict[str, Any]) -> str:
    """The main figures of a summary: only scalars, shares in per cent."""
    parts = []
    for key, value in summary.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        parts.append(
            f"{key} {value:.2%}"
            if key.endswith(("accuracy", "density", "saved"))
            else f"{key} {value:,}"
            if isinstance(value, int)
            else f"{key} {value:.4g}"
        )
    return "  ".join(parts)
