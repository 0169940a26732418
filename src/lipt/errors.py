"""The error classes. The class decides the exit code, and the exit code decides whether a pod is retried.

| code | class            | meaning                                             | retry |
|------|------------------|-----------------------------------------------------|-------|
| 0    |                  | done                                                |       |
| 1    | `RunError`       | the run failed: data, quorum, numerical failure     | no    |
| 2    | `UsageError`     | command line, configuration, credentials            | no    |
| 3    | `TransientError` | store or API unreachable at the moment              | yes   |
| 130  |                  | interrupted; the same command continues             |       |
| 143  |                  | terminated, like a pod that is stopped              | yes   |
"""

import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import indent
from types import FrameType
from typing import Any, NoReturn


class LiptError(Exception):
    """An error that a user can fix: says what is wrong, where, and what to do next.

    Args:
        message: what is wrong, naming the file, key or object.
        remedy: what to do next, an imperative sentence.
    """

    exit_code = 1
    heading = "several problems:"
    """Stands above `problems`."""
    problems: "Sequence[LiptError]" = ()
    """If it stands for several errors: these. `message` has them in one line, `str` one below the other."""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message, self.remedy = printable(message), printable(remedy)
        super().__init__(self.message)

    def __str__(self) -> str:
        text, common = self.message, True
        if self.problems:
            common = len({each.remedy for each in self.problems}) == 1
            lines = [indent(f"- {each.message if common else each}", "  ") for each in self.problems]
            text = "\n".join([self.heading, *lines])
        return f"{text}\n  -> {self.remedy}" if self.remedy and common else text


def all_in_one(problems: "Sequence[LiptError]") -> LiptError:
    """One error that tells all problems; a single one is that error. The first determines the exit code."""
    first = problems[0]
    if len(problems) == 1:
        return first
    kind = UsageError if isinstance(first, UsageError) else type(first)
    remedies = dict.fromkeys(error.remedy for error in problems if error.remedy)
    error = kind("; ".join(error.message for error in problems), "; ".join(remedies))
    error.problems = problems
    return error


def printable(text: str) -> str:
    """The text on one line without control characters, which names of files and settings may contain."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class RunError(LiptError):
    """The run failed. A retry would fail in the same way."""


class FailedPointError(RunError):
    """A point of a sweep failed, or several; the others are finished."""

    heading = "failed points:"


class DivergedError(RunError):
    """The loss of a training is not finite.

    Args:
        images: that were trained on until then.
        steps: that were taken until then.
    """

    def __init__(self, message: str, remedy: str, *, images: int = 0, steps: int = 0) -> None:
        super().__init__(message, remedy)
        self.images, self.steps = images, steps


class IntegrityError(RunError):
    """Bytes that were read are not the bytes that were written."""


class DamagedDataError(IntegrityError):
    """A file of a data set is missing, or differs from the one that was written."""


class UsageError(LiptError):
    """The command line, the configuration, the credentials, or the classes and splits of the data are wrong."""

    exit_code = 2


class UnexpectedError(LiptError):
    """An unexpected exception in another process or pod: a bug in lipt or in the user's model.

    Args:
        message: the exception in one line, and where it happened.
        trace: its traceback.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message, "if the model is yours, correct it; otherwise report this with the traceback")
        self.trace = trace


class TransientError(LiptError):
    """A store or an API is unreachable; the same call may succeed later."""

    exit_code = 3


#: The modules that `pip install 'lipt[run]'` adds to those that a selection needs.
RUN_MODULES = frozenset(
    {
        "PIL", "filelock", "jinja2", "markupsafe", "matplotlib", "minio", "rich", "simplejpeg", "tenacity",
        "torchvision", "urllib3", "zstandard",
    }
)  # fmt: skip


def of_missing_module(error: ModuleNotFoundError) -> Exception:
    """The error for a user whose installation lacks the extra `run`; for any other module the same error."""
    if (error.name or "").partition(".")[0] not in RUN_MODULES:
        return error
    return UsageError(
        f"{error.name} is not installed; a selection works without it, a run does not", "pip install 'lipt[run]'"
    )


class Terminated(SystemExit):
    """SIGTERM arrived: the process releases its resources, then exits with 143."""

    def __init__(self) -> None:
        super().__init__(143)


def say_why(error: BaseException) -> None:
    """In a pod, write the error as its termination message, which `kubectl describe pod` and the engines show."""
    if os.access(_TERMINATION_LOG, os.W_OK):
        known = isinstance(error, LiptError) and not isinstance(error, UnexpectedError)
        what = f"lipt: {error}" if known else f"{BUG}{in_one_line(error)}"
        text = " ".join(what.split()).encode(errors="backslashreplace")  # a name may be no valid Unicode
        Path(_TERMINATION_LOG).write_bytes(text[:_MESSAGE_BYTES].decode(errors="ignore").encode())


#: Starts the message of a pod that met a bug; no other message starts so.
BUG = "lipt: unexpected "


def in_one_line(error: BaseException) -> str:
    """Type and message of an exception."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def first_problem(details: Sequence[Any]) -> str:
    """The first field that is wrong, and how.

    Args:
        details: `errors()` of a `ValidationError` of pydantic.
    """
    first = details[0]
    return ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))


_TERMINATION_LOG = "/dev/termination-log"
#: The kubelet takes the last 4096 bytes of a longer file, so without its beginning.
_MESSAGE_BYTES = 4096


class Stop:
    """Turns a signal into an exception, so that the process can release its resources, and remembers it.

    C code that swallows the exception may leave a library half loaded, which fails later on: torch does so while it
    loads numpy.

    In the code of Python's locks and queues it waits a moment: between taking a lock and the block that gives it back,
    the exception would leave the lock taken. urllib3 then waits for ever when it gives its connection back.
    """

    def __init__(self, exception: type[BaseException]) -> None:
        self.came = False
        self._exception = exception
        self._waits = _MOST_WAITS

    def on(self, number: signal.Signals) -> "Stop":
        """Raise the exception at this signal; threads other than the main one cannot set that up."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, self._note)
        return self

    def explains(self, error: BaseException) -> bool:
        """Whether the signal came: then this error is taken for its consequence.

        An error that the next attempt may mend says more: a pod that lost another one sends SIGTERM to itself.
        """
        return self.came and not isinstance(error, TransientError)

    def _note(self, _number: int, frame: FrameType | None) -> None:
        self.came = True
        if frame is not None and frame.f_globals.get("__name__") in _LOCKING and self._waits:
            self._waits -= 1  # it may be a wait for another thread, which can take long
            signal.signal(signal.SIGALRM, self._note)
            signal.setitimer(signal.ITIMER_REAL, _WAIT_S)
            return
        raise self._exception


_LOCKING = ("queue", "threading")
_MOST_WAITS, _WAIT_S = 10, 0.02


def stop_on_sigterm() -> Stop:
    """Turn SIGTERM into an exception; exit code 143.

    Otherwise the first process of a container ignores the signal and is killed after the grace period.
    """
    return Stop(Terminated).on(signal.SIGTERM)


#: What to do after a signal, unless a command knows better.
AGAIN = "the same command continues: finished stages are kept"


def end_terminated(remedy: str = AGAIN) -> NoReturn:
    """End as after SIGTERM."""
    _end_at_the_next_signal()
    print(f"lipt: terminated\n  -> {remedy}", file=sys.stderr, flush=True)
    sys.exit(143)


def end_interrupted(remedy: str = AGAIN) -> NoReturn:
    """End as after Ctrl-C."""
    _end_at_the_next_signal()
    print(f"lipt: interrupted\n  -> {remedy}", file=sys.stderr, flush=True)
    sys.exit(130)


def _end_at_the_next_signal() -> None:
    """All is released: another signal ends the process at once, without a traceback out of the interpreter's end."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`"did you mean 'x'?"` for the choice closest to `word` in any case, or the list of choices if none is close."""
    known = {choice.casefold(): choice for choice in choices}
    close = get_close_matches(word.casefold(), known, n=1)
    return f"did you mean {known[close[0]]!r}?" if close else f"choose from: {', '.join(known.values())}"
