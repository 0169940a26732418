"""A lease on a piece of work in a workspace: while one process does it, others that want the same wait.

A process that wants a lease writes a *claim*, an object of its own, and then lists all claims. If there is no other, it
holds the lease; otherwise it withdraws its claim, and waits until all other claims are gone. Of two processes at least
one sees the claim of the other, so they never hold the lease at the same time. The store only has to list every object
that was written before.

A holder writes a *beat* beside its claim every `BEAT_S` seconds. A claim whose beat does not change for `EXPIRE_S`
seconds is removed: its process is dead. On the same machine this shows at once. Who waits counts these seconds itself,
so the clocks of machines may differ. A holder that was merely suspended finds its claim removed, and then leaves the
work to the other. (Beats are objects of their own, because a late one must not bring back a claim that was removed.)
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

from lipt.adapters.store import MissingObjectError, Store
from lipt.errors import LiptError, RunError, UsageError, printable

#: Seconds between two beats, and without one until others take over.
BEAT_S, EXPIRE_S = 5.0, 30.0
_BEAT = ".beat"
_CLAIM = re.compile(r"(.*/)?[a-z]+-[0-9a-f]{16}")
_LONGEST_PAUSE_S = 5.0


class LostLeaseError(Exception):
    """Another process has taken over: this one was suspended for too long."""


class DoneMeanwhileError(Exception):
    """Who waited for a lease does not need it any more: another process has done the work."""


class Lease:
    """A lease that this process holds."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self.key = store, f"{name}-{uuid4().hex[:16]}"
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def check(self) -> None:
        """Make sure that this process still holds the lease.

        Raises:
            LostLeaseError: it does not.
        """
        if self._store.size(self.key) is None:
            raise LostLeaseError

    def _claim(self) -> None:
        document = {"machine": _machine(), "host": socket.gethostname(), "pid": os.getpid()}
        self._store.write(self.key, json.dumps(document).encode(), kind="other")

    def _withdraw(self) -> None:
        with self._lock, suppress(LiptError):  # with the store away, it expires
            self._ended.set()
            _remove(self._store, self.key)

    def _beat_on(self) -> None:
        beats = 0
        while not self._ended.wait(BEAT_S):
            # A store that is away is away for the others, too. No error may end the beat: others would take over.
            with suppress(Exception), self._lock:
                if self._ended.is_set() or self._store.size(self.key) is None:
                    return
                beats += 1
                self._store.write(self.key + _BEAT, b"%d" % beats, kind="other")


def _remove(store: Store, claim: str) -> None:
    store.delete(claim)
    store.delete(claim + _BEAT)


@contextmanager
def leased(
    store: Store, name: str, say: Callable[[str], None], done: Callable[[], bool] = lambda: False
) -> Iterator[Lease]:
    """Hold the lease `name`, the beginning of a key; wait for it first.

    Args:
        say: told for whom this process waits, and that it takes over from a dead one.
        done: whether the work is done. Many may wait for it: none of them then waits for its turn.

    Raises:
        DoneMeanwhileError: `done` has become true while this process waited.
    """
    rivals, pause_s = _Rivals(store, name, say), 0.1
    while True:
        lease = Lease(store, name)
        try:
            lease._claim()
            if not rivals.alive(besides=lease.key):
                threading.Thread(target=lease._beat_on, daemon=True).start()
                yield lease
                return
        finally:
            lease._withdraw()
        while True:
            rivals.pause_s = pause_s * random.uniform(0.5, 1)  # two that met are not to meet again
            time.sleep(rivals.pause_s)
            pause_s = min(pause_s * 1.3, _LONGEST_PAUSE_S)
            if done():
                raise DoneMeanwhileError
            if not rivals.alive():
                break


@contextmanager
def at_work(store: Store) -> Iterator[None]:
    """Show that this process works in a workspace, also between two stages (`find_holder`). Others may work there."""
    lease = Lease(store, "run")
    with suppress(RunError, UsageError):  # who may only read finds all finished, or fails at a stage
        lease._claim()
        threading.Thread(target=lease._beat_on, daemon=True).start()
    try:
        yield
    finally:
        lease._withdraw()


def find_holder(store: Store, keys: Iterable[str]) -> str | None:
    """A process that is at work, holds a lease or waits for one, such as `process 7 on lab`; None if there is none.

    A claim counts when its beat has changed. So this takes up to `EXPIRE_S` seconds; claims of dead processes are
    removed.

    Args:
        keys: those of the store.
    """
    rivals, claims = _Rivals(store, "", lambda _text: None), [key for key in keys if _CLAIM.fullmatch(key)]
    while claims := [key for key in claims if rivals.is_alive(key)]:
        for claim in claims:
            if rivals.has_beaten(claim):
                return rivals.names[claim]
        rivals.pause_s = min(1.0, BEAT_S)
        time.sleep(rivals.pause_s)
    return None


def is_claim(key: str) -> bool:
    """Whether a lease wrote the object `key`: a claim or its beat."""
    return bool(_CLAIM.fullmatch(key.removesuffix(_BEAT)))


class _Rivals:
    """The claims of other processes, as one that waits sees them."""

    def __init__(self, store: Store, name: str, say: Callable[[str], None]) -> None:
        self._store, self._name, self._say = store, name, say
        self._seen: dict[str, tuple[bytes, float]] = {}
        """Claim -> (its last beat, seconds for which it has not changed, as far as the store was there)."""
        self._told: set[str] = set()
        self.names: dict[str, str] = {}
        """Claim -> its process, as messages name it."""
        self.pause_s = 0.0
        """Seconds since the last look."""

    def alive(self, *, besides: str = "") -> bool:
        """Whether there are claims of living processes. Those of dead ones are removed."""
        found = [key for key in self._store.list(f"{self._name}-") if key != besides and not key.endswith(_BEAT)]
        return sum(map(self.is_alive, found)) > 0  # looks at all of them

    def has_beaten(self, key: str) -> bool:
        """Whether the beat of a claim has changed between the last two looks."""
        return self.pause_s > 0 and self._seen[key][1] == 0

    def is_alive(self, key: str) -> bool:
        """Whether this claim is that of a living process. That of a dead one is removed."""
        try:
            data, beat = self._store.read(key, kind="other"), b""
            with suppress(MissingObjectError):
                beat = self._store.read(key + _BEAT, kind="other")
        except MissingObjectError:
            return False
        before, quiet_s = self._seen.get(key, (beat, 0.0))
        self._seen[key] = beat, quiet_s + self.pause_s if beat == before else 0.0
        try:
            claim = json.loads(data)
            who = printable(f"process {claim['pid']} on {claim['host']}")
            gone = _is_gone(claim["machine"], claim["pid"])
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):  # not ours; it expires, too
            who, gone = self._store.uri + "/" + key, False
        self.names[key] = who
        if gone:
            self._say(f"{who} is gone: its work is done here")
        elif self._seen[key][1] >= EXPIRE_S:
            self._say(f"{who} has given no sign for {EXPIRE_S:g} s: its work is done here")
        else:
            if key not in self._told:
                self._told.add(key)
                self._say(f"waits for {who}, which does the same work")
            return True
        with suppress(RunError):  # `lipt gc --dry-run` of somebody who may only read
            _remove(self._store, key)
        return False


@cache
def _machine() -> str:
    """Where process numbers mean the same: machine, its start, and the container."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return " ".join(parts)


def _is_gone(machine: str, pid: int) -> bool:
    """Whether the process was of this machine and has ended."""
    if machine != _machine():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # of another user
        return False
    # If its parent has not asked how it ended, its number is still there. In a container often nobody asks.
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return status.rpartition(")")[2].split()[0] == "Z"
    return False
