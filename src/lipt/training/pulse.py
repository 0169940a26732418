"""How far this process is, in a small file that its parent can read at any time, also when this process hangs.

The file says nothing about time: who reads it notes when it last changed.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from lipt.files import write_whole


class Phase(IntEnum):
    """What a process does, and whether it may take as long as it likes."""

    FREE = 0
    """Work of any length: a selection, an evaluation, the writing of a checkpoint."""
    ALONE = 1
    """An epoch of a training that this process does by itself."""
    TOGETHER = 2
    """An epoch that all processes share, or an exchange between them, in which they wait for the last one."""


class Pulse(NamedTuple):
    """How far a process is."""

    pid: int
    phase: int
    steps: int
    """What it has done so far, in every phase."""
    shared: int
    """The steps in phase TOGETHER. There all processes count the same, so the last one has the fewest."""


_FORMAT = "qqqq"
#: The fields of `Pulse`, of this process; in memory alone until `show_pulse`.
_fields = memoryview(bytearray(struct.calcsize(_FORMAT))).cast("q")


def show_pulse(path: Path) -> None:
    """From now on, others find the pulse of this process at `path`."""
    global _fields
    write_whole(path, struct.pack(_FORMAT, os.getpid(), Phase.FREE, 0, 0))
    with path.open("r+b") as file:
        _fields = memoryview(mmap.mmap(file.fileno(), struct.calcsize(_FORMAT))).cast("q")


def read_pulse(path: Path) -> Pulse | None:
    """The pulse that a process shows; None: it shows none yet."""
    try:
        return Pulse(*struct.unpack(_FORMAT, path.read_bytes()))
    except FileNotFoundError:
        return None


def step() -> None:
    """Note that this process goes on."""
    _fields[2] += 1
    _fields[3] += _fields[1] == Phase.TOGETHER


@contextmanager
def phase(now: Phase) -> Iterator[None]:
    """The block is in this phase; afterwards comes the one before."""
    before = _fields[1]
    _fields[1] = now
    step()
    try:
        yield
    finally:
        step()
        _fields[1] = before
