"""Compressed logits: what is kept, how far off the rest may be, and the score stage that stores them."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from selection_samples import FROM_OUTPUTS, make
from torch import Tensor

from lipt.errors import RunError, UsageError
from lipt.flow.dag import made_of, prepare, score_and_select
from lipt.runtime.artifact import Artifact
from lipt.selection import Candidates, Outputs, select
from lipt.selection.algorithms.ranking import difficulty
from lipt.selection.inputs.compressed import TopLogits
from lipt.selection.inputs.gradients import error_vectors, last_layers
from tests.tiny import tiny_context

SCORES = ("el2n", "grand", "entropy", "margin", "least_confidence")
#: Rounding of float16 logarithms, of a whole row: the entropy of at most log C nats, times 2^-11.
HALF = 2**-11


def compressed(candidates: Candidates, top: int) -> Candidates:
    outputs = [
        Outputs(
            logits_NC=TopLogits.compress(o.logits(slice(None)), candidates.labels_N, top), features_ND=o.features_ND
        )
        for o in candidates.outputs
    ]
    return Candidates(
        labels_N=candidates.labels_N,
        num_classes=candidates.num_classes,
        outputs=outputs,
        forgetting_N=candidates.forgetting_N,
        scores_N=candidates.scores_N,
    )


def error_of(top: TopLogits, logits_NC: Tensor) -> Tensor:
    """|p - p^| (N,), from the definition."""
    return (logits_NC.double().softmax(1) - top[:].double().softmax(1)).norm(dim=1)


@st.composite
def _logits(draw: st.DrawFn) -> tuple[Tensor, Tensor, int]:
    """Random and adversarial rows: flat, one-hot, two-valued, with huge or equal logits; labels; classes to keep."""
    n, classes = draw(st.integers(1, 8)), draw(st.integers(1, 40))
    g = torch.Generator().manual_seed(draw(st.integers(0, 9999)))
    scale = draw(st.sampled_from([0.0, 0.1, 1.0, 5.0, 30.0, 1e3, 1e5]))
    logits_NC = torch.randn(n, classes, generator=g) * scale
    if draw(st.booleans()):  # s classes share everything: with s = 2 m the worst case of the bound
        logits_NC[:, : draw(st.integers(1, classes))] += 20.0
    labels_N = torch.randint(classes, (n,), generator=g)
    return logits_NC, labels_N, draw(st.integers(1, 45))


@settings(max_examples=200)
@given(_logits())
def test_compressed_rows_are_distributions_within_their_bound(case: tuple[Tensor, Tensor, int]) -> None:
    logits_NC, labels_N, m = case
    n, classes = logits_NC.shape
    top = TopLogits.compress(logits_NC, labels_N, m)
    assert (top.shape, len(top), top.classes_NT.shape) == ((n, classes), n, (n, min(m + 1, classes)))
    p_NC = logits_NC.double().softmax(1)
    q_NC = top[:].double().exp()
    rounding = HALF * math.log(max(2, classes)) + 1e-7
    torch.testing.assert_close(q_NC.sum(1), torch.ones(n, dtype=torch.float64), rtol=0, atol=2 * rounding)
    # The label and the m likeliest classes are kept, the label first; what is kept is exact up to storage.
    assert torch.equal(top.classes_NT[:, 0].long(), labels_N)
    assert all(len(set(row)) == len(row) for row in top.classes_NT.tolist())
    likeliest_NM = p_NC.topk(min(m, classes), dim=1)
    torch.testing.assert_close(
        q_NC.gather(1, top.classes_NT.long()), p_NC.gather(1, top.classes_NT.long()), rtol=0, atol=HALF
    )
    others_NT = p_NC.scatter(1, labels_N[:, None], -1).gather(1, top.classes_NT.long())[:, 1:]
    own_N1 = p_NC.gather(1, labels_N[:, None])
    kept_NT = torch.cat([own_N1, others_NT], 1).sort(dim=1, descending=True).values[:, : likeliest_NM.values.shape[1]]
    torch.testing.assert_close(kept_NT, likeliest_NM.values)
    # The stored error is that of the definition, and within the bound of the module.
    error_N = error_of(top, logits_NC)
    assert bool((error_N <= top.error_N).all())
    torch.testing.assert_close(error_N, top.error_N.double(), rtol=1e-6, atol=1e-9)
    assert float(error_N.max()) <= 0.5 / math.sqrt(m) + rounding


def test_the_worst_case_is_met() -> None:
    """m + 1 kept classes and as many more with equal probability: half of it is spread, over a great many classes."""
    m, classes = 16, 20_000
    logits_NC = torch.full((1, classes), -40.0)
    logits_NC[0, 1 : 2 * m + 1] = 0.0
    top = TopLogits.compress(logits_NC, torch.tensor([0]), m)
    assert float(top.error_N) == pytest.approx(0.5 / math.sqrt(m), rel=0.01)


@pytest.mark.parametrize("m", [9, 10, 99])
def test_keeping_all_classes_is_exact(m: int) -> None:
    candidates = make(50, 10, dtype=torch.float32)
    logits_NC = candidates.outputs[0].logits(slice(None))
    top = TopLogits.compress(logits_NC, candidates.labels_N, m)
    assert top.classes_NT.shape == (50, 10)
    assert float(top.error_N.max()) <= HALF * math.log(10)
    torch.testing.assert_close(top[:], logits_NC.log_softmax(1), rtol=HALF, atol=1e-7)


@settings(max_examples=25)
@given(seed=st.integers(0, 999), m=st.integers(1, 12), models=st.integers(1, 2))
def test_scores_of_compressed_logits_are_within_the_bound(seed: int, m: int, models: int) -> None:
    whole = make(40, 12, 6, models=models, seed=seed)
    small = compressed(whole, m)
    errors_N = torch.stack([o.logits_NC.error_N for o in small.outputs]).mean(0).double()
    moved = {score: (difficulty(whole, score) - difficulty(small, score)).abs() for score in SCORES}
    lengths = [(o.features_ND.square().sum(1) + 1).sqrt() for o in whole.outputs]
    scaled_N = torch.stack(
        [o.logits_NC.error_N * length_N for o, length_N in zip(small.outputs, lengths, strict=True)]
    ).mean(0)
    assert bool((moved["el2n"] <= errors_N + 1e-6).all())
    assert bool((moved["grand"] <= scaled_N + 1e-5).all())
    assert bool((moved["least_confidence"] <= errors_N + 1e-6).all())
    assert bool((moved["margin"] <= math.sqrt(2) * errors_N + 1e-6).all())
    # |g - g^| = |delta - delta^| |h~|
    for o, (exact, near) in zip(
        small.outputs,
        zip(*(last_layers(each, torch.arange(40), torch.float64) for each in (whole, small)), strict=True),
        strict=True,
    ):
        delta_NC = (exact.delta_NC - near.delta_NC) * math.sqrt(models)
        assert bool((delta_NC.norm(dim=1) <= o.logits_NC.error_N + 1e-9).all())


def test_confident_samples_keep_their_order() -> None:
    """1 - p_y far below float16's resolution of 1: the digits are in the logarithms of the other classes."""
    logits_NC = torch.zeros(3, 8)
    logits_NC[:, 2] = torch.tensor([30.0, 32.0, 34.0])
    labels_N = torch.full((3,), 2)
    scores_N = error_vectors(TopLogits.compress(logits_NC, labels_N, 7)[:], labels_N).norm(dim=1)
    torch.testing.assert_close(scores_N, error_vectors(logits_NC, labels_N).norm(dim=1), rtol=0.02, atol=0)


def test_every_algorithm_selects_from_compressed_logits() -> None:
    small = compressed(make(60, 8, 6, models=2), 3)
    for algorithm in FROM_OUTPUTS:
        assert len(select(algorithm, small, fraction=0.25).indices_K.unique()) >= 12, algorithm


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_compression_hides_no_value_that_is_not_finite(value: float) -> None:
    whole = make(20, 6)
    whole.outputs[0].logits(slice(None))[7, 1] = value
    with pytest.raises(RunError, match="logits of candidate sample 7, model 0"):
        select("el2n", compressed(whole, 2), fraction=0.5)


def test_class_ids_and_size() -> None:
    for classes, ids in ((100, torch.int16), (40_000, torch.int32)):
        top = TopLogits.compress(torch.randn(3, classes), torch.tensor([0, classes - 1, 5]), 32)
        assert top.classes_NT.dtype == ids
        assert top.nbytes == 3 * TopLogits.row_bytes(classes, 32)
        assert top[torch.tensor([1])].argmax() >= 0
        assert torch.equal(top[torch.tensor([2, 0])], top[:][[2, 0]])


def test_what_does_not_fit_together() -> None:
    logits_NC = torch.zeros(4, 6)
    with pytest.raises(UsageError, match="at least 1 class"):
        TopLogits.compress(logits_NC, torch.zeros(4, dtype=torch.int64), 0)
    with pytest.raises(UsageError, match="3 labels for 4 rows"):
        TopLogits.compress(logits_NC, torch.zeros(3, dtype=torch.int64), 2)
    top = TopLogits.compress(logits_NC, torch.zeros(4, dtype=torch.int64), 2)
    with pytest.raises(UsageError, match="of 4 samples are kept"):
        TopLogits.of(top.tensors() | {"log_rest": torch.zeros(3)}, 6)
    with pytest.raises(UsageError, match="of the same N"):
        Outputs(logits_NC=top, features_ND=torch.zeros(5, 2))


def test_outputs_go_through_storage(tmp_path: Path) -> None:
    for candidates in (make(20, 6), compressed(make(20, 6), 2)):
        (outputs,) = candidates.outputs
        again = Outputs.of(outputs.tensors(), 6)
        assert torch.equal(again.logits(slice(None)), outputs.logits(slice(None)))
        assert (again.num_classes, again.num_features) == (6, 6)


# The pipeline


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scores")


def scored(folder: Path, **settings: Any) -> tuple[tuple[Artifact, ...], set[int]]:
    """The score blocks of the tiny run, and the positions that GraNd picks by them."""
    ctx = tiny_context(folder, {"select": {"algorithm": "grand"}, "merge": {"method": "none"}, "score": settings})
    subset = score_and_select(ctx, prepare(ctx), None)
    blocks = made_of(ctx, subset, "score")
    stored = ctx.workspace.store.read(f"{subset.ref}/subset.parquet", kind="other")
    table = pq.read_table(io.BytesIO(stored))
    return blocks, set(table.filter(pc.is_valid(table["rank"]))["position"].to_pylist())


def size(block: Artifact) -> int:
    return block.files["outputs-0.safetensors"].num_bytes


def test_the_score_stage_keeps_the_likeliest_and_says_how_far_off_they_are(folder: Path) -> None:
    whole, picks = scored(folder, block_images=500)
    small, near = scored(folder, block_images=500, top_classes=4)
    assert len(whole) == len(small) == 3
    assert not {block.ref for block in whole} & {block.ref for block in small}
    for number, (before, after) in enumerate(zip(whole, small, strict=True)):
        summary = after.summary
        of_the_scorer = set() if number else {"accuracy"}
        assert before.summary.keys() == {"models", "images", "classes"} | of_the_scorer
        assert summary["top_classes"] == 4
        assert 0 < summary["error_mean"] < summary["error_max"] < 0.5 / math.sqrt(4) + HALF * math.log(10)
        assert summary["saved_bytes"] == summary["images"] * (10 * 4 - TopLogits.row_bytes(10, 4))
        assert size(before) - size(after) == pytest.approx(summary["saved_bytes"], abs=500)  # headers differ
    assert len(picks & near) >= 0.8 * len(picks)


def test_compression_that_saves_nothing_is_not_done(folder: Path) -> None:
    (whole,), picks = scored(folder)
    (same,), as_many = scored(folder, top_classes=9)
    assert same.files["outputs-0.safetensors"].sha256 == whole.files["outputs-0.safetensors"].sha256
    assert "error_max" not in same.summary
    assert picks == as_many


def test_scores_may_be_stored_in_bf16(folder: Path) -> None:
    (whole,), picks = scored(folder)
    (half,), near = scored(folder, stored_precision="bf16")
    assert size(half) == pytest.approx(size(whole) / 2, abs=500)
    assert len(picks & near) >= 0.8 * len(picks)
