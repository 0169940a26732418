"""Many candidates: blocks of rows, memory-mapped outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from selection_samples import FROM_OUTPUTS, make, peak_bytes

from lipt.errors import RunError
from lipt.selection import Candidates, Outputs, requirements, select
from lipt.selection.algorithms.ranking import difficulty
from lipt.selection.algorithms.sampling import _dual_scores
from lipt.selection.inputs.compressed import TopLogits
from lipt.selection.inputs.passes import check_finite
from lipt.selection.numerics import blocks
from lipt.selection.numerics.blocks import class_sizes, members_by_class, per_row, row_blocks

SCORES = ("el2n", "grand", "entropy", "margin", "least_confidence")


# Blocks


@settings(max_examples=30)
@given(n=st.integers(0, 50), width=st.integers(1, 20), limit=st.integers(1, 400))
def test_blocks_cover_every_row_once(n: int, width: int, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", limit)
        found = list(row_blocks(n, width))
        assert [row for block in found for row in range(block.start, block.stop)] == list(range(n))
        assert all(block.stop - block.start <= max(1, limit / (4 * width)) for block in found)
        assert torch.equal(per_row(n, width, lambda block: torch.arange(50)[block]), torch.arange(n))


@settings(max_examples=30)
@given(labels=st.lists(st.integers(0, 5), max_size=40))
def test_members_of_every_class_ascend(labels: list[int]) -> None:
    labels_N = torch.tensor(labels, dtype=torch.int64)
    members = members_by_class(labels_N, class_sizes(labels_N, 6))
    assert [each.tolist() for each in members] == [(labels_N == c).nonzero().flatten().tolist() for c in range(6)]


@pytest.mark.parametrize("limit", [1, 777, 2**30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nothing_depends_on_the_size_of_a_block(
    monkeypatch: pytest.MonkeyPatch, limit: int, dtype: torch.dtype
) -> None:
    candidates = make(90, 5, 7, models=2, dtype=dtype)
    chosen = {name: select(name, candidates, fraction=0.3) for name in FROM_OUTPUTS}
    dual = _dual_scores(candidates, 2)
    others = [difficulty(candidates, score) for score in SCORES]
    top = TopLogits.compress(candidates.outputs[0].logits(slice(None)), candidates.labels_N, 2)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", limit)
    for name, selection in chosen.items():
        assert torch.equal(select(name, candidates, fraction=0.3).indices_K, selection.indices_K), name
    assert torch.equal(_dual_scores(candidates, 2), dual)
    for score, before in zip(SCORES, others, strict=True):
        assert torch.equal(difficulty(candidates, score), before)
    again = TopLogits.compress(candidates.outputs[0].logits(slice(None)), candidates.labels_N, 2).tensors()
    assert all(torch.equal(again[name], tensor) for name, tensor in top.tensors().items())


@pytest.mark.parametrize("row", [0, 41, 89])
def test_values_that_are_not_finite_are_found_in_any_block(monkeypatch: pytest.MonkeyPatch, row: int) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 300)
    candidates = make(90, 5, 7)
    candidates.outputs[0].features_ND[row:, 3] = torch.nan
    with pytest.raises(RunError, match=f"features of candidate sample {row}, model 0"):
        check_finite(candidates, "candidate")


# Memory


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("el2n", {}),
        ("grand", {}),
        ("uncertainty", {"measure": "entropy"}),
        ("uncertainty", {"measure": "margin"}),
        ("uncertainty", {"measure": "least_confidence"}),
        ("ccs", {}),
        ("moderate", {}),
        ("dual", {}),
        ("herding", {}),
        ("k_center", {}),
        ("graph_cut", {}),
        ("gradmatch", {}),
        ("craig", {"greedy": "stochastic"}),
        ("facility_location", {}),
        ("prototypes", {}),
        ("glister", {}),
    ],
)
def test_no_algorithm_copies_all_logits_or_features(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, options: dict[str, Any]
) -> None:
    """All that is held at a time is smaller than a float32 copy of the logits, or of the features, of one model."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**16)
    n, classes, d = 4000, 40, 48
    candidates = make(n, classes, d, models=2, dtype=torch.bfloat16)
    peak = peak_bytes(lambda: select(algorithm, candidates, fraction=0.05, **options))
    assert 2 * n <= peak <= n * min(classes, d) * 4


@pytest.mark.parametrize("algorithm", ["k_center", "graph_cut"])
def test_one_problem_over_all_classes_takes_one_copy_of_the_features(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**16)
    candidates = make(6000, 4, 64, dtype=torch.float32)
    peak = peak_bytes(lambda: select(algorithm, candidates, fraction=0.01, balanced=False))
    assert peak <= 1.5 * 6000 * 64 * 4


def test_a_class_of_its_own_is_no_exception_for_moderate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**14)
    candidates = make(3000, 1, 64, dtype=torch.bfloat16)
    assert peak_bytes(lambda: select("moderate", candidates, fraction=0.05)) <= 3000 * 64 * 4 // 2


def test_memory_mapped_outputs_give_the_same_as_those_in_memory(tmp_path: Path) -> None:
    candidates = make(200, 5, 16, dtype=torch.bfloat16)
    (outputs,) = candidates.outputs
    stored = []
    for name, tensor in (("logits", outputs.logits(slice(None))), ("features", outputs.features_ND)):
        tensor.view(torch.int16).numpy().tofile(tmp_path / name)
        flat = torch.from_file(str(tmp_path / name), size=tensor.numel(), dtype=torch.bfloat16)
        stored.append(flat.view(tensor.shape))
    mapped = Candidates(
        labels_N=candidates.labels_N, num_classes=5, outputs=[Outputs(logits_NC=stored[0], features_ND=stored[1])]
    )
    for algorithm in FROM_OUTPUTS:
        needs = requirements(algorithm, 0.2)
        if (needs.trajectory and not needs.outputs) or needs.scores or needs.models > 1:
            continue
        chosen = [select(algorithm, each, fraction=0.2) for each in (candidates, mapped)]
        assert torch.equal(chosen[0].indices_K, chosen[1].indices_K), algorithm
        assert torch.equal(chosen[0].weights_K, chosen[1].weights_K), algorithm


def test_numpy_matrices_on_disk_stay_there(tmp_path: Path) -> None:
    candidates = make(100, 4, 8, dtype=torch.float32)
    (outputs,) = candidates.outputs
    np.save(tmp_path / "features.npy", outputs.features_ND.numpy())
    mapped = Candidates.of(
        candidates.labels_N, logits=outputs.logits_NC, features=np.load(tmp_path / "features.npy", mmap_mode="r")
    )
    assert torch.equal(
        select("moderate", mapped, fraction=0.2).indices_K, select("moderate", candidates, fraction=0.2).indices_K
    )
