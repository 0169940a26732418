"""The memory that algorithms take, against the forecast of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lipt.selection.algorithms import submodular
from lipt.selection.needs import Size
from lipt.selection.registry import lookup
from tests.programs import run_python

PROGRAM = """
import json, sys, torch
from lipt.ledger import peak_memory_bytes, reset_peak_memory
from lipt.selection import Candidates, Outputs, select
from lipt.selection.algorithms import submodular
torch.set_num_threads(1)  # others have buffers of their own
algorithm, n, d, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
submodular.DENSE_LIMIT = int(sys.argv[5])
def choose(n):
    outputs = Outputs(logits_NC=torch.randn(n, 4), features_ND=torch.randn(n, d))
    candidates = Candidates(labels_N=torch.arange(n) % 4, num_classes=4, outputs=[outputs])
    reset_peak_memory()
    before = peak_memory_bytes()
    select(algorithm, candidates, fraction=20 / n, balanced=False, **options)
    return peak_memory_bytes() - before
choose(200)
print(choose(n))
"""
#: In place of `submodular.DENSE_LIMIT`: above that many samples a choice takes seconds.
LIMIT = 8192


def measured(algorithm: str, n: int, d: int, options: dict[str, Any]) -> int:
    # The allocator gives freed blocks back at once: how many it keeps otherwise differs from machine to machine.
    arguments = (algorithm, str(n), str(d), json.dumps(options), str(LIMIT))
    return int(run_python("-c", PROGRAM, *arguments, MALLOC_MMAP_THRESHOLD_="65536"))


@pytest.mark.parametrize(
    ("algorithm", "n", "greedy"),
    [
        ("craig", 6000, "auto"),
        ("facility_location", 6000, "auto"),
        ("craig", 9000, "lazy"),  # too many to keep the distances
        ("craig", 9000, "sparse"),
    ],
)
def test_the_memory_of_medoids_is_as_predicted(
    algorithm: str, n: int, greedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submodular, "DENSE_LIMIT", LIMIT)
    predicted = lookup(algorithm).memory(Size(n, 20, classes=4, features=8), greedy=greedy)
    assert 0.4 * predicted < measured(algorithm, n, 8, {"greedy": greedy}) < 1.2 * predicted


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("gradmatch", {}),
        ("gradmatch", {"per": "batch"}),
        ("glister", {}),
        ("moderate", {"variant": "authors"}),
    ],
)
def test_copies_of_the_outputs_are_counted(algorithm: str, options: dict[str, Any]) -> None:
    """GradMatch and the authors' `moderate` took six copies where one was counted."""
    size = Size(20_000, 20, classes=4, features=128)
    predicted = 4 * size.n * size.numbers + lookup(algorithm).memory(size, **options)
    assert 0.5 * predicted < measured(algorithm, size.n, size.features, options) < 1.2 * predicted + 8e6
