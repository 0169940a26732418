"""Outputs that are read block by block: the same selection, bit by bit, with one block in memory."""

from __future__ import annotations

import io
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from selection_samples import FROM_OUTPUTS, make, peak_bytes, same

from lipt.errors import RunError, UsageError
from lipt.flow.dag import made_of, prepare, score_and_select
from lipt.selection import Candidates, Outputs, StoredOutputs, requirements, select
from lipt.selection.inputs import passes
from lipt.selection.inputs.compressed import TopLogits
from lipt.selection.numerics import blocks
from tests.tiny import tiny_context

N = 131
#: Blocks of one size and a rest, of one sample, and of any sizes; two of them end in a block of one.
SIZES = {"equal": [65, 65, 1], "ones": [1] * N, "uneven": [5, 80, 17, 28, 1], "one": [N]}
#: Every algorithm that passes over the outputs, and more options that change what it computes of a sample.
STREAMING: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in FROM_OUTPUTS if requirements(name, 0.05).passes),
    ("uncertainty", {"measure": "margin"}), ("uncertainty", {"measure": "least_confidence"}),
    ("ccs", {"score": "grand", "beta": 0.2}), ("ccs", {"score": "forgetting"}),
    ("ccs", {"score": "entropy", "strata": 7}), ("ccs", {"score": "margin"}), ("ccs", {"score": "least_confidence"}),
    ("dual", {"window": 3, "sampling": "top"}), ("dual", {"c_d": 11.0, "concentration": 3.0}),
]  # fmt: skip


def cut(outputs: Outputs, rows: slice) -> Outputs:
    """Tensors of their own, as if read from a file."""
    tensors = {name: tensor[rows].clone() for name, tensor in outputs.tensors().items()}
    return Outputs.of(tensors, outputs.num_classes)


class Reader:
    """Stored blocks of `whole`; counts how often each is read, and how many are in memory at a time."""

    def __init__(self, whole: Candidates, sizes: Sequence[int]) -> None:
        self.whole, self.sizes = whole, list(sizes)
        self.reads = [0] * len(self.sizes)
        self.alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
        self.most = 0

    def read(self, index: int) -> list[Outputs]:
        start = sum(self.sizes[:index])
        block = [cut(each, slice(start, start + self.sizes[index])) for each in self.whole.outputs]
        self.reads[index] += 1
        self.alive.update(tensor for outputs in block for tensor in outputs.tensors().values())
        self.most = max(self.most, sum(tensor.nbytes for tensor in self.alive))
        return block

    def candidates(self) -> Candidates:
        stored = StoredOutputs(models=len(self.whole.outputs), sizes=self.sizes, read=self.read)
        return replace(self.whole, outputs=(), stored=stored)


def samples(kind: str, classes: int, models: int) -> Candidates:
    dtype = {"float64": torch.float64, "bf16": torch.bfloat16}.get(kind, torch.float32)
    whole = make(N, classes, 24, models=models, dtype=dtype)
    if kind != "compressed":
        return whole
    outputs = [
        replace(each, logits_NC=TopLogits.compress(each.logits(slice(None)), whole.labels_N, 2))
        for each in whole.outputs
    ]
    return replace(whole, outputs=outputs)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("classes", "models"), [(5, 1), (20, 7)])  # softmax goes two ways, and so do sums over models
@pytest.mark.parametrize("kind", ["float32", "float64", "bf16", "compressed"])
def test_streams_select_what_the_whole_selects(kind: str, classes: int, models: int, sizes: str) -> None:
    whole = samples(kind, classes, models)
    for algorithm, options in STREAMING:
        if requirements(algorithm, 0.05).models > models:
            continue
        for balanced in (True, False):
            arguments: dict[str, Any] = {"fraction": 0.05, "seed": 3, "balanced": balanced, **options}
            reader = Reader(whole, SIZES[sizes])
            same(select(algorithm, reader.candidates(), **arguments), select(algorithm, whole, **arguments))
            once = requirements(algorithm, 0.05, options).passes
            assert reader.reads == [once] * len(reader.sizes), algorithm
            block = max(
                sum(t.nbytes for t in cut(each, slice(max(reader.sizes))).tensors().values()) for each in whole.outputs
            )
            assert reader.most <= models * block, algorithm


@pytest.mark.parametrize("algorithm", sorted(set(FROM_OUTPUTS) - {algorithm for algorithm, _ in STREAMING}))
def test_the_others_read_every_block_once_or_never(algorithm: str) -> None:
    whole = make(60, 3, 8, models=2)
    needs = requirements(algorithm, 0.3)
    reader, judges = Reader(whole, [25, 25, 10]), Reader(make(20, 3, 8, models=2, seed=1), [15, 5])
    streamed, at_once = (judges.candidates(), judges.whole) if needs.validation else (None, None)
    found = select(algorithm, reader.candidates(), fraction=0.3, validation=streamed)
    same(found, select(algorithm, whole, fraction=0.3, validation=at_once))
    assert needs.passes == 0
    assert reader.reads == [int(needs.outputs)] * 3
    assert judges.reads == [int(needs.validation)] * 2


@pytest.mark.parametrize("classes", [5, 20])  # softmax goes two ways
def test_a_block_may_be_empty(classes: int) -> None:
    whole = make(60, classes, 8, models=2)
    for algorithm in FROM_OUTPUTS:
        same(select(algorithm, Reader(whole, [0, 25, 0, 35, 0]).candidates(), k=20), select(algorithm, whole, k=20))


def test_a_single_block_is_not_copied() -> None:
    whole = make(20, 3)
    stored = StoredOutputs(models=1, sizes=[20], read=lambda _: whole.outputs)
    candidates = replace(whole, outputs=(), stored=stored)
    assert passes.in_memory(candidates, "candidate").outputs[0] is whole.outputs[0]


# What is wrong is named


@pytest.mark.parametrize(("algorithm", "what", "name"), [
    ("el2n", "logits_NC", "logits"), ("grand", "features_ND", "features"), ("moderate", "features_ND", "features"),
    ("glister", "logits_NC", "logits"), ("herding", "features_ND", "features"),
])  # fmt: skip
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_values_that_are_not_finite_are_named_by_their_overall_position(
    algorithm: str, what: str, name: str, value: float
) -> None:
    whole = make(60, 3, 8, models=2)
    getattr(whole.outputs[1], what)[41, 1] = value
    reader = Reader(whole, [25, 25, 10])
    with pytest.raises(RunError, match=f"{name} of candidate sample 41, model 1"):
        select(algorithm, reader.candidates(), fraction=0.3)
    assert reader.reads == [1, 1, 0]


def test_compressed_values_that_are_not_finite_are_named_by_their_overall_position() -> None:
    whole = make(60, 6, 8)
    whole.outputs[0].logits(slice(None))[41, 1] = torch.inf
    top = TopLogits.compress(whole.outputs[0].logits(slice(None)), whole.labels_N, 2)
    reader = Reader(replace(whole, outputs=[replace(whole.outputs[0], logits_NC=top)]), [25, 25, 10])
    with pytest.raises(RunError, match="logits of candidate sample 41, model 0"):
        select("ccs", reader.candidates(), fraction=0.3)


def test_a_validation_sample_is_named_by_its_overall_position() -> None:
    judges = make(20, 3, 8)
    judges.outputs[0].features_ND[17, 0] = torch.nan
    with pytest.raises(RunError, match="features of validation sample 17, model 0"):
        select("glister", make(60, 3, 8), fraction=0.3, validation=Reader(judges, [15, 5]).candidates())


def test_wrong_arguments_are_refused_before_a_block_is_read() -> None:
    reader = Reader(make(60, 3, 8), [30, 30])
    wrong: list[dict[str, Any]] = [{"initial": [60]}, {"validation": make(20, 3, 8)}]
    for arguments in wrong:
        with pytest.raises(UsageError, match=r"position 60 is outside|takes no validation samples"):
            select("herding", reader.candidates(), k=5, **arguments)
    assert reader.reads == [0, 0]


def test_blocks_that_do_not_fit() -> None:
    whole = make(60, 3, 8)
    read = Reader(whole, [60]).read
    with pytest.raises(UsageError, match="outputs of 50 samples are stored, and those of 0 models"):
        replace(whole, outputs=(), stored=StoredOutputs(models=1, sizes=[25, 25], read=read))
    with pytest.raises(UsageError, match="and those of 1 model are in memory; there are 60 labels"):
        replace(whole, stored=StoredOutputs(models=1, sizes=[60], read=read))
    other = replace(whole, outputs=(), stored=StoredOutputs(models=2, sizes=[60], read=read))
    with pytest.raises(UsageError, match=r"block 0 is of 1 model, expected 2"):
        select("el2n", other, fraction=0.3)
    longer = replace(whole, outputs=(), stored=StoredOutputs(models=1, sizes=[25, 35], read=lambda _: whole.outputs))
    with pytest.raises(UsageError, match=r"have shape \(60, 3\), expected \(25, 3\)"):
        select("el2n", longer, fraction=0.3)


@pytest.mark.parametrize("algorithm", ["el2n", "moderate", "herding", "glister"])
@pytest.mark.parametrize(("what", "form"), [("logits_NC", "logits float16 3"), ("features_ND", "features float16 8")])
def test_a_block_of_another_precision_is_refused(algorithm: str, what: str, form: str) -> None:
    """It was rounded to that of the first block, and what is too large for it became infinite."""
    whole = make(60, 3, 8, dtype=torch.float32)

    def read(index: int) -> list[Outputs]:
        block = cut(whole.outputs[0], slice(20 * index, 20 * index + 20))
        return [replace(block, **{what: getattr(block, what).half()})] if index == 0 else [block]

    candidates = replace(whole, outputs=(), stored=StoredOutputs(models=1, sizes=[20, 20, 20], read=read))
    used = getattr(requirements(algorithm, 0.3), what.partition("_")[0])
    with pytest.raises(UsageError, match=f"block 1 .*; block 0 holds .*{form}") if used else nullcontext():
        select(algorithm, candidates, fraction=0.3)


def test_a_block_of_another_width_is_refused() -> None:
    whole, wide = make(20, 3, 8), make(20, 3, 9)
    stored = StoredOutputs(models=1, sizes=[20, 20], read=lambda index: (whole, wide)[index].outputs)
    candidates = Candidates(labels_N=torch.cat([whole.labels_N, wide.labels_N]), num_classes=3, stored=stored)
    for algorithm in ("moderate", "herding"):
        with pytest.raises(UsageError, match=r"block 1 of the candidate samples holds .*features float64 9; block 0"):
            select(algorithm, candidates, fraction=0.3)


# Memory


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("grand", {}), ("ccs", {}), ("uncertainty", {"measure": "margin"}), ("dual", {}), ("moderate", {})],
)
def test_memory_does_not_grow_with_the_outputs(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**14)
    n, size = 8000, 200
    whole = make(n, 20, 100, models=2, dtype=torch.float32)
    candidates = Reader(whole, [size] * (n // size)).candidates()
    outputs = 2 * n * (20 + 100) * 4
    assert peak_bytes(lambda: passes.in_memory(candidates, "candidate")) >= outputs
    peak = peak_bytes(lambda: select(algorithm, candidates, fraction=0.1, **options))
    assert peak <= outputs * size / n + 80 * n + 2**16  # a block, what selecting takes per candidate, a pass within it


# The pipeline


@pytest.mark.parametrize("algorithm", ["ccs", "moderate", "gradmatch"])
def test_the_stage_selects_the_same_from_blocks_of_any_size(tmp_path: Path, algorithm: str) -> None:
    picks, read = [], []
    # Whole batches, as the default: a convolution may round differently in a batch of another size.
    for size in (5120, 512):
        changes = {"select": {"algorithm": algorithm}, "merge": {"method": "none"}, "score": {"block_images": size}}
        ctx = tiny_context(tmp_path, changes)
        subset = score_and_select(ctx, prepare(ctx), None)
        blocks = made_of(ctx, subset, "score")
        stored = ctx.workspace.store.read(f"{subset.ref}/subset.parquet", kind="other")
        picks.append(pq.read_table(io.BytesIO(stored)))
        outputs = sum(block.files["outputs-0.safetensors"].num_bytes for block in blocks)
        (index,) = tmp_path.glob("**/train.index.parquet")  # read for the names of the images
        read.append((ctx.workspace.cost(subset).read["other"] - index.stat().st_size) / outputs)
    assert len(blocks) == 3
    assert picks[0].equals(picks[1])
    for ratio in read:  # labels and forgetting counts besides
        assert ratio == pytest.approx(2 if algorithm == "moderate" else 1, abs=0.1)


def test_a_block_that_is_no_list_of_outputs_is_refused() -> None:
    whole = make(20, 3)
    for given in (whole.outputs[0], None, [torch.zeros(20, 3)]):
        stored = StoredOutputs(models=1, sizes=[20], read=lambda _, given=given: given)
        with pytest.raises(UsageError, match=r"StoredOutputs.read gives .*, not a list of Outputs"):
            select("el2n", replace(whole, outputs=(), stored=stored), k=4)
