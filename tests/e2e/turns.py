"""Two tests at a time, on one cluster."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait until no other test has the cluster alone; or until no other test runs at all, to have it `alone`.

    Whoever waits stands in the door, so that no test that comes later gets in first.
    """
    with (folder / "cluster").open("a") as cluster:
        with (folder / "door").open("a") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(cluster, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """For what both processes need and only one of them should do."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
