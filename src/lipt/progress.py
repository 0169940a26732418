"""What a person sees while stages run: progress bars on a terminal, one line per stage elsewhere; all on stderr."""

from __future__ import annotations

import sys
from typing import Any, TextIO


class Reporter:
    """One aligned line per finished stage."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    def started(self, label: str) -> None:
        """A stage begins."""

    def advance(self, label: str, done: int, total: int, text: str = "") -> None:
        """A stage has done `done` of `total` units."""

    def stopped(self, label: str) -> None:
        """A stage ended without finishing."""

    def done(self, label: str, wall_s: float, summary: dict[str, Any]) -> None:
        """A stage finished."""
        self.say(f"{label:<16} {wall_s:8.1f} s  {_brief(summary)}")

    def skipped(self, label: str, summary: dict[str, Any]) -> None:
        """A stage was found finished."""
        self.say(f"{label:<16}  up to date  {_brief(summary)}")

    def planned(self, label: str) -> None:
        """A stage would run."""
        self.say(f"{label:<16}   would run")

    def say(self, text: str) -> None:
        print(text.rstrip(), file=self.stream, flush=True)

    def close(self) -> None:
        """Release the terminal."""


class TerminalReporter(Reporter):
    """A live bar for the stage that runs, above it the lines of those that finished."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console  # 60 ms, only where a terminal shows it
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description:<16}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} {task.fields[text]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.tasks: dict[str, Any] = {}
        self.progress.start()

    def started(self, label: str) -> None:
        self.tasks[label] = self.progress.add_task(label, total=None, text="")

    def advance(self, label: str, done: int, total: int, text: str = "") -> None:
        self.progress.update(self.tasks[label], completed=done, total=total, text=text)

    def stopped(self, label: str) -> None:
        self.progress.remove_task(self.tasks.pop(label))

    def done(self, label: str, wall_s: float, summary: dict[str, Any]) -> None:
        self.stopped(label)
        super().done(label, wall_s, summary)

    def say(self, text: str) -> None:
        self.progress.console.print(text.rstrip(), highlight=False, markup=False)

    def close(self) -> None:
        self.progress.stop()


def make_reporter() -> Reporter:
    """Bars when stderr is a terminal, lines otherwise."""
    return TerminalReporter() if sys.stderr.isatty() else Reporter()


def _brief(summary: dict[str, Any]) -> str:
    """The headline figures of a summary: scalars only, shares as per cent."""
    parts = []
    for key, value in summary.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        parts.append(
            f"{key} {value:.2%}"
            if key.endswith(("accuracy", "density"))
            else f"{key} {value:,}"
            if isinstance(value, int)
            else f"{key} {value:.4g}"
        )
    return "  ".join(parts)
