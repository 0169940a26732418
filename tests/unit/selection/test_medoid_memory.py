"""The memory that medoids take, against the forecast of it."""

from __future__ import annotations

import pytest

from lipt.selection.algorithms.submodular import Greedy, medoid_bytes
from tests.programs import run_python

PROGRAM = """
import sys, torch
from lipt.ledger import peak_memory_bytes, reset_peak_memory
from lipt.selection import Candidates, Outputs, select
torch.set_num_threads(1)  # others have buffers of their own
def choose(n):
    outputs = Outputs(logits_NC=torch.randn(n, 4), features_ND=torch.randn(n, 8))
    candidates = Candidates(labels_N=torch.arange(n) % 4, num_classes=4, outputs=[outputs])
    reset_peak_memory()
    before = peak_memory_bytes()
    select(sys.argv[1], candidates, fraction=20 / n, balanced=False, greedy=sys.argv[3])
    return peak_memory_bytes() - before
choose(200)
print(choose(int(sys.argv[2])))
"""


@pytest.mark.parametrize(
    ("algorithm", "n", "greedy"),
    [
        ("craig", 6000, "auto"),
        ("facility_location", 6000, "auto"),
        ("craig", 17_000, "lazy"),  # too many to keep the distances
        ("craig", 17_000, "sparse"),
    ],
)
def test_the_memory_of_medoids_is_as_predicted(algorithm: str, n: int, greedy: Greedy) -> None:
    # The allocator gives freed blocks back at once: how many it keeps otherwise differs from machine to machine.
    measured = int(run_python("-c", PROGRAM, algorithm, str(n), greedy, MALLOC_MMAP_THRESHOLD_="65536"))
    predicted = medoid_bytes(n, greedy=greedy)
    assert 0.4 * predicted < measured < 1.2 * predicted
