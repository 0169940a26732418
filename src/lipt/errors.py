"""The error taxonomy: what went wrong decides the exit code, and the exit code decides whether a pod is retried.

| code | class            | meaning                                             | retry |
|------|------------------|-----------------------------------------------------|-------|
| 0    |                  | done                                                |       |
| 1    | `RunError`       | the run failed: data, quorum, numerical failure     | no    |
| 2    | `UsageError`     | command line, configuration, credentials            | no    |
| 3    | `TransientError` | store or API unreachable for now                    | yes   |
| 130  |                  | interrupted; the same command continues             |       |
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class LiptError(Exception):
    """An error a user can act on: says what is wrong, where, and what to do next.

    Args:
        message: what is wrong, naming the file, key or object.
        remedy: what to do next, an imperative sentence.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  -> {self.remedy}" if self.remedy else self.message


class RunError(LiptError):
    """The run cannot go on: retrying the same thing would fail the same way."""


class IntegrityError(RunError):
    """Bytes that were read are not the bytes that were written."""


class UsageError(LiptError):
    """The command line, the configuration or the credentials are wrong."""

    exit_code = 2


class TransientError(LiptError):
    """A store or an API is out of reach for now; the same call may succeed later."""

    exit_code = 3


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the choice closest to `word`, or the list of choices when none is close."""
    known = list(choices)
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"choose from: {', '.join(known)}"
