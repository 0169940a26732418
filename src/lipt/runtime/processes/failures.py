"""The error of a stage whose processes failed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from lipt.adapters.store import StoreError
from lipt.errors import LiptError, RunError, TransientError, UnexpectedError, UsageError
from lipt.runtime.processes.peers import Peers

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

#: By rank.
Failures = dict[int, "ProcessFailure"]


class KilledError(RunError):
    """A signal ended a process: SIGKILL when the machine ran out of memory, SIGSEGV …

    Args:
        rank: of the process.
    """

    def __init__(self, message: str, remedy: str, *, rank: int) -> None:
        super().__init__(message, remedy)
        self.rank = rank


def first_error(failures: Failures, processes: int, label: str, peers: Peers | None) -> LiptError:
    """The one error that explains the others: an error with a known cause, else a kill, else the earliest.

    A process that loses its partner fails, too. So the order of the failures says little. If no process here failed by
    itself, it was one in another pod.
    """
    messages = [failure.error_file_data["message"] for failure in failures.values()]
    told = [message for message in messages if isinstance(message, dict)]
    died = {rank: failure.exitcode for rank, failure in failures.items()}
    told.sort(key=lambda error: (not error["known"], error["follows"], error["time"]))
    if told and told[0]["known"]:
        classes: dict[int, type[LiptError]] = {2: UsageError, 3: TransientError}
        kind = StoreError if told[0]["store"] else classes.get(told[0]["code"], RunError)
        return kind(told[0]["message"], told[0]["remedy"])
    rank, code = min(died.items(), key=lambda end: (_precedence(end[1]), end[0]))
    by_itself = _precedence(code) == 0
    if peers and not by_itself and all(error["follows"] for error in told):
        return peers.error()
    if told and not by_itself:
        where = f"{label}: process {told[0]['rank']} of {processes}"
        return UnexpectedError(f"{where}: {told[0]['message']}", told[0]["traceback"])
    if code < 0:
        number = signal.Signals(-code)
        memory = "; give it more memory if it ran out" if number == signal.SIGKILL else ""
        return KilledError(
            f"{label}: process {rank} of {processes} was killed ({number.name})",
            f"run the same command again: finished stages are kept{memory}",
            rank=rank,
        )
    ended = f"{label}: process {rank} of {processes} ended with code {code}"
    return RunError(ended, "its last lines in the log say why")


def _precedence(code: int) -> int:
    """The lower, the more the end of a process explains; 0: a signal that no other failure causes.

    The launcher stops the other processes with SIGTERM, and one that has lost its partner may abort.
    """
    if code > 0:
        return 1
    return {signal.SIGABRT: 2, signal.SIGTERM: 3}.get(signal.Signals(-code), 0)
