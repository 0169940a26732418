"""Costs add up."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lipt.ledger import Cost, elapsed_s


def test_the_machine_is_that_of_the_last_attempt_that_did_the_work() -> None:
    first, second, waited = Cost(machine="GPU"), Cost(machine="CPU"), Cost()
    assert (first + second).machine == (first + second + waited).machine == "CPU"


def test_costs_add_up_and_peaks_do_not() -> None:
    a = Cost(wall_s=1, flops=2, peak_bytes=30, read={"data": 5}, written={"model": 7}, requests=1)
    b = Cost(wall_s=2, flops=3, peak_bytes=20, read={"data": 1, "model": 4}, requests=2)
    total = a + b
    assert (total.wall_s, total.flops, total.peak_bytes, total.requests) == (3, 5, 30, 3)
    assert (total.bytes("data"), total.bytes("model"), total.bytes("other")) == (6, 11, 0)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0),
        ([(10, 12), (12, 15)], 5),  # one after the other
        ([(10, 14), (11, 13), (12, 16)], 6),  # side by side
        ([(10, 14), (90, 91)], 5),  # one of another run, found finished
        ([(10, 14), (10, 14), (-3, 0)], 7),  # of one it is not known when
    ],
)
def test_workers_side_by_side_count_once(spans: list[tuple[float, float]], seconds: float) -> None:
    costs = [Cost(wall_s=end - start, ended=end) for start, end in spans]
    assert elapsed_s(costs) == elapsed_s(reversed(costs)) == seconds


PEAK = """
from lipt.ledger import peak_memory_bytes, reset_peak_memory
block = bytearray(200_000_000)
block[::4096] = b"x" * len(block[::4096])
with_block = peak_memory_bytes()
del block
reset_peak_memory()
print(with_block - peak_memory_bytes())
"""


def test_the_peak_is_measured_from_the_reset_on() -> None:
    """In a process of its own: the peak of this one depends on every test before."""
    fallen = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout
    assert int(fallen) > 100_000_000
