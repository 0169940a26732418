"""Passes over the outputs of all candidates. Each stored block is freed before the next one is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lipt.errors import RunError, UsageError
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.compressed import TopLogits
from lipt.selection.inputs.not_logits import refuse_probabilities
from lipt.selection.inputs.outputs import Outputs
from lipt.selection.numerics.blocks import RowBuffer, row_blocks


def each_block(
    candidates: Candidates, visit: Callable[[int, Candidates], None], name: str = "candidate", *, check: bool = True
) -> None:
    """Call `visit(position of the first sample, samples)` for every block, in order.

    It is no iterator, because a caller's loop variable would keep a block while the next one is read.

    Args:
        check: False = the caller checks outputs in memory, by `check_finite`. Blocks are checked in any case.

    Raises:
        RunError: logits or features are not finite; the message says "`name` sample" and its position.
        UsageError: the stored blocks differ in precision or width.
    """
    if candidates.stored is None:
        if check:
            check_finite(candidates, name)
        visit(0, candidates)
        return
    start, forms = 0, list[str]()
    for index, size in enumerate(candidates.stored.sizes):
        visit(start, _block(candidates, index, slice(start, start + size), name, forms))
        start += size


def per_sample(candidates: Candidates, compute: Callable[[Candidates], Tensor], *, check: bool = True) -> Tensor:
    """The results (N, ...) of `compute`. It maps a block to one row per sample, each independent of the others.

    Args:
        check: as for `each_block`.
    """
    if candidates.stored is None:
        if check:
            check_finite(candidates, "candidate")
        return compute(candidates)
    results = RowBuffer(len(candidates))
    each_block(candidates, lambda start, block: results.put(start, {"": compute(block)}))
    return results.tensors[""]


def in_memory(candidates: Candidates, name: str) -> Candidates:
    """The candidates with all outputs in memory. Reading takes one block more; a single block is not copied.

    Raises:
        RunError, UsageError: as `each_block`.
    """
    if candidates.stored is None:
        check_finite(candidates, name)
        return candidates
    if len(candidates.stored.sizes) == 1:
        return _block(candidates, 0, slice(0, len(candidates)), name, [])
    whole = [RowBuffer(len(candidates)) for _ in range(candidates.num_models)]

    def put(start: int, block: Candidates) -> None:
        for buffer, outputs in zip(whole, block.outputs, strict=True):
            buffer.put(start, outputs.tensors())

    each_block(candidates, put, name)
    outputs = [Outputs.of(buffer.tensors, candidates.num_classes) for buffer in whole]
    return replace(candidates, outputs=outputs, stored=None)


def _block(candidates: Candidates, index: int, rows: slice, name: str, forms: list[str]) -> Candidates:
    """The samples `rows`, whose outputs are block `index`. `forms` are of the blocks before it; its own is appended."""
    assert candidates.stored is not None
    outputs = candidates.stored.read(index)
    own_N = candidates.scores_N
    if len(outputs) != candidates.num_models:
        raise UsageError(
            f"block {index} is of {len(outputs)} model{'s' * (len(outputs) != 1)}, expected {candidates.num_models}",
            "StoredOutputs.models must be the number of outputs that read(i) returns",
        )
    forms.append(", ".join(_form(each) for each in outputs))
    if forms[-1] != forms[0]:  # buffers have the form of the first block, and would round values of another
        raise UsageError(
            f"block {index} of the {name} samples holds {forms[-1]}; block 0 holds {forms[0]}",
            "store all blocks with one precision and one number of columns",
        )
    block = replace(
        candidates,
        labels_N=candidates.labels_N[rows],
        outputs=outputs,
        stored=None,
        trajectories=(),
        forgetting_N=None,
        scores_N=None if own_N is None else own_N[rows],
    )
    check_finite(block, name, rows.start)
    return block


def _form(outputs: Outputs) -> str:
    """Precision and width of all tensors that are known."""
    known = {name: x for name, x in outputs.tensors().items() if 0 not in x.shape[1:]}
    forms = {name: (str(x.dtype).removeprefix("torch."), *x.shape[1:]) for name, x in known.items()}
    return ", ".join(f"{name} {' '.join(map(str, form))}" for name, form in forms.items())


#: Squares of features below this can be summed over dimensions and a million samples without overflow.
LARGEST = {torch.float32: 1e12, torch.float64: 1e140}


def check_finite(candidates: Candidates, name: str, start: int = 0) -> None:
    """Raise RunError if logits or features are not finite, or features too large to be squared in their precision. The
    message names the first such sample, counted from `start`. Raise UsageError if the logits are probabilities."""
    for index, outputs in enumerate(candidates.outputs):
        logits = outputs.logits_NC
        stored_NX = logits.log_p_NT if isinstance(logits, TopLogits) else logits
        if start == 0 and stored_NX is logits:
            refuse_probabilities(logits, f"the {name} samples, model {index},")
        if stored_NX.numel() and not _proves_finite(stored_NX):
            _check_blocks(stored_NX, math.inf, "logits", name, start, index)
        features_ND = outputs.features_ND
        if features_ND.numel() and not float(outputs.lengths_N.max()) < (limit := largest(features_ND.dtype)):
            _check_blocks(features_ND, limit, "features", name, start, index)  # no value exceeds the norm of its row


def _proves_finite(values_NX: Tensor) -> bool:
    """Whether the sum of all squares is finite, and so every value. Twice as fast as aminmax."""
    if values_NX.dtype not in LARGEST or not values_NX.is_cpu or not values_NX.is_contiguous():
        return False
    flat_X = values_NX.numpy(force=True).reshape(-1)
    with np.errstate(all="ignore"):
        return math.isfinite(np.dot(flat_X, flat_X))


def _check_blocks(values_NX: Tensor, limit: float, what: str, name: str, start: int, model: int) -> None:
    """Raise RunError unless all values are finite and below the limit."""
    for block in row_blocks(*values_NX.shape):
        # Twenty times faster than isfinite. A comparison with NaN is false.
        if not float(torch.stack(values_NX[block].aminmax()).abs().amax()) < limit:
            _refuse(values_NX[block], limit, what, name, start + block.start, model)


def largest(dtype: torch.dtype) -> float:
    """The limit of `LARGEST` for features of this type."""
    return LARGEST[torch.float64 if dtype == torch.float64 else torch.float32]


def _refuse(values_BX: Tensor, limit: float, what: str, name: str, start: int, model: int) -> None:
    """Raise RunError naming the first row that is not finite, else the first that reaches the limit."""
    wrong_B = (~values_BX.isfinite()).any(1)
    if bool(wrong_B.any()):
        raise RunError(
            f"{what} of {name} sample {start + int(wrong_B.nonzero()[0])}, model {model}, are not finite",
            "repair or leave out these samples; if the scoring model diverged, lower its learning rate or exclude it",
        )
    row = int((values_BX.abs() >= limit).any(1).nonzero()[0])
    raise RunError(
        f"{what} of {name} sample {start + row}, model {model}, reach {float(values_BX[row].abs().max()):.3g}: from "
        f"{limit:g} on their squares overflow",
        "divide all of them by a constant" + ("" if values_BX.dtype == torch.float64 else ", or use float64"),
    )
