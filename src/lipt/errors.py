"""The error taxonomy: what went wrong decides the exit code, and the exit code decides whether a pod is retried.

| code | class            | meaning                                             | retry |
|------|------------------|-----------------------------------------------------|-------|
| 0    |                  | done                                                |       |
| 1    | `RunError`       | the run failed: data, quorum, numerical failure     | no    |
| 2    | `UsageError`     | command line, configuration, credentials            | no    |
| 3    | `TransientError` | store or API unreachable for now                    | yes   |
| 130  |                  | interrupted; the same command continues             |       |
| 143  |                  | terminated, as a pod that is stopped                | yes   |
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class LiptError(Exception):
    """An error a user can act on: says what is wrong, where, and what to do next.

    Args:
        message: what is wrong, naming the file, key or object.
        remedy: what to do next, an imperative sentence.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message, self.remedy = printable(message), printable(remedy)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n  -> {self.remedy}" if self.remedy else self.message


def printable(text: str) -> str:
    """The text on one line: names of files and settings may hold line ends and what a terminal obeys."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class RunError(LiptError):
    """The run cannot go on: retrying the same thing would fail the same way."""


class IntegrityError(RunError):
    """Bytes that were read are not the bytes that were written."""


class DamagedDataError(IntegrityError):
    """A file of a data set is missing, or not the one that was written."""


class UsageError(LiptError):
    """The command line, the configuration or the credentials are wrong."""

    exit_code = 2


class UnexpectedError(LiptError):
    """An exception that no one foresaw, in another process or pod: a bug of ours, or of a model of the user's.

    Args:
        message: the exception in one line, and where it happened.
        trace: its traceback.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message, "correct the model where it is yours; otherwise report this, with the traceback")
        self.trace = trace


class TransientError(LiptError):
    """A store or an API is out of reach for now; the same call may succeed later."""

    exit_code = 3


class Terminated(SystemExit):
    """SIGTERM arrived: the process gives back what it holds, then ends with 143."""

    def __init__(self) -> None:
        super().__init__(143)

    def __str__(self) -> str:
        return "terminated\n  -> the same command continues where it stopped"


def say_why(error: BaseException) -> None:
    """The error in one line, where `kubectl describe pod` and the engines show it; nothing outside a pod."""
    if os.access(_TERMINATION_LOG, os.W_OK):
        known = isinstance(error, LiptError) and not isinstance(error, UnexpectedError)
        what = str(error) if known else f"{UNEXPECTED}{in_one_line(error)}"
        Path(_TERMINATION_LOG).write_text(" ".join(f"lipt: {what}".split())[:2000], encoding="utf-8")


#: By this a box knows, of a worker pod that failed, that it met a bug, which no other pod escapes.
UNEXPECTED = "unexpected "


def in_one_line(error: BaseException) -> str:
    """Type and message of an exception."""
    return " ".join(f"{type(error).__name__}: {error}".split())


_TERMINATION_LOG = "/dev/termination-log"


def stop_on_sigterm() -> None:
    """SIGTERM ends the process by an exception, so that it gives back what it holds; exit code 143.

    As a container's first process it would ignore the signal otherwise, and be killed after the grace period.
    """

    def stop(_number: int, _frame: Any) -> None:
        raise Terminated

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the choice closest to `word`, or the list of choices when none is close."""
    known = list(choices)
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"choose from: {', '.join(known)}"
