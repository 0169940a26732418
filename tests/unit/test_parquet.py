"""Reading a parquet file leaves nothing that disturbs the end of the process."""

from __future__ import annotations

import os

from tests.programs import run_python

_READ = """
import sys, torch, lipt
from lipt.data.chunks.index import read_table
data = lipt.select("random", lipt.Candidates.of(torch.arange(3000) % 10), k=300).to_parquet()
objects = [[number] for number in range(300_000)]  # Python needs a while to end
sys.setswitchinterval(100)  # a thread that waits for Python waits until then
"""
_SELECTION = _READ + "lipt.Selection.from_parquet(data, origin='a')"
_TABLE = _READ + "read_table(data, 'a')"


def test_a_process_that_has_just_read_a_file_ends_in_order() -> None:
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if cores:
        os.sched_setaffinity(0, {min(cores)})  # on one core Arrow's threads are late
    try:
        for program in (_SELECTION, _TABLE):
            run_python("-c", program)
    finally:
        if cores:
            os.sched_setaffinity(0, cores)
