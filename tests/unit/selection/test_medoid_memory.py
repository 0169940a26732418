"""The memory that medoids take, against the forecast of it."""

from __future__ import annotations

import sys

import pytest

from lipt.selection.algorithms.submodular import medoid_bytes
from tests.programs import run_python

PROGRAM = """
import re, sys, torch
from lipt.selection import Candidates, Outputs, select
def peak():  # not ru_maxrss: a program starts with that of the process that started it
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1])
def choose(n):
    outputs = Outputs(logits_NC=torch.randn(n, 4), features_ND=torch.randn(n, 8))
    candidates = Candidates(labels_N=torch.arange(n) % 4, num_classes=4, outputs=[outputs])
    before = peak()
    select(sys.argv[1], candidates, fraction=20 / n, balanced=False, greedy=sys.argv[3])
    return peak() - before
choose(200)
print(choose(int(sys.argv[2])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize(
    ("algorithm", "n", "greedy"),
    [
        ("craig", 6000, "auto"),
        ("facility_location", 6000, "auto"),
        ("craig", 17_000, "lazy"),  # too many to keep the distances
        ("craig", 17_000, "sparse"),
    ],
)
def test_the_memory_of_medoids_is_as_predicted(algorithm: str, n: int, greedy: str) -> None:
    measured = int(run_python("-c", PROGRAM, algorithm, str(n), greedy))
    predicted = medoid_bytes(n, greedy=greedy)  # type: ignore[arg-type]
    assert 0.4 * predicted < measured < 1.2 * predicted
