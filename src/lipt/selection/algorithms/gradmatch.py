"""GradMatch: a weighted subset whose gradients add up to those of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection.algorithms.pursuit import matching_pursuit
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.gradients import LastLayer, last_layers, precision
from lipt.selection.needs import Size
from lipt.selection.numerics.blocks import per_row
from lipt.selection.numerics.memory import memory_bytes
from lipt.selection.numerics.norms import sum_of
from lipt.selection.registry import Group, Picks, Task, per_group, register, require

#: The default ridge, relative to the squared gradients. The published code's absolute .5 is about this share for an
#: untrained model. For a trained model, whose gradients are small, .5 would dominate the problem.
LAM = 0.03
#: The largest memory of the dense gradients of mini-batches.
DENSE_BYTES = 4 << 30


def gradmatch_bytes(size: Size, *, per: str = "class", batch_size: int = 128, **_: Any) -> int:
    """Bytes that GradMatch takes besides the outputs and a float32 copy of them."""
    # Gradients in float64 and, with the samples last, in float32, which are copied once more to turn them.
    n, k, width = size.n, size.k, size.numbers + size.models
    members = 0
    if per == "batch":  # the same for the sums, while the gradients of all members are held
        members, (n, k) = 16 * n * width, _batches(n, k, batch_size)
        width = size.models * (size.classes * (size.features + 1) + 1)
    # Those of the picks again; a Gram row per pick; the least squares of all picks, which keep their system, its
    # inverse and a scratch copy in float64.
    return members + (16 * n + 8 * k) * width + 4 * n * k + 24 * k * k


@register("gradmatch", models=1, memory=gradmatch_bytes)
def gradmatch(
    task: Task,
    *,
    lam: float = LAM,
    target: Literal["sum", "mean"] = "sum",
    per: Literal["class", "class_gradient", "batch"] = "class",
    batch_size: int = 128,
) -> Picks:
    """Samples whose weighted gradients add up to the gradient of their group.

    Source: Killamsetty et al. ICML 2021, eq. 5, Algorithm 2. Time: O(kn(C + d) + nk²/2). Use: you select again
    during training.

    Greedily minimises |sum_S w_i g_i - b|^2 + lam u |w|^2 over w >= 0, where u is the mean |g_i|^2 of the group, so
    picks and weights do not depend on the gradients' scale. There are always k distinct samples: one whose best weight
    is zero stays chosen with weight 0. The picks of a group without any gradient get weights n / k, with
    `target: mean` 1 / k.
    It runs on the CPU, to which outputs on a GPU are copied one group at a time.

    Args:
        lam: ridge on the weights, relative to the mean squared norm of the gradients g_i that `per` names.
        target: b is the `sum` of the group's gradients (weights near n / k) or, for `mean`, this sum divided by the
            number of all candidates (weights add up to about 1).
        per: `class` matches whole gradients within each group. `class_gradient` matches only the classifier row of the
            sample's own class, which is C times smaller (section 4.1). `batch` chooses whole random mini-batches by
            their summed gradients (GradMatchPB); the samples of a batch share a weight.
        batch_size: samples per mini-batch, `per: batch` only.

    Raises:
        UsageError: an option out of range, mini-batch gradients beyond 4 GiB, or a problem larger than the memory.
    """
    require(lam >= 0, f"gradmatch: lam must not be negative, not {lam}", "pass 0 or more")
    require(batch_size >= 1, f"gradmatch: batch_size must be at least 1, not {batch_size}", "pass 1 or more")
    batch, outputs = batch_size if per == "batch" else None, task.candidates.outputs
    _check_memory(task, per, batch_size)
    # One scale for all groups: a scale of its own would weigh small classes more.
    goal_scale = 1.0 if target == "sum" else 1 / len(task.candidates)

    def pick(group: Group) -> tuple[Tensor, Tensor]:
        atoms, k = len(group.members_M), group.budget
        if batch is not None:
            atoms, k = _batches(atoms, k, batch)
        parts = None if batch is None else _mini_batches(task, group, atoms)
        order_T, w_T = matching_pursuit(
            _atoms(task.candidates, group, parts, own_row=per == "class_gradient"),
            k,
            goal_scale=goal_scale,
            lam=lam,
            dtype=precision(outputs),
        )
        w_T = w_T.float()
        if not bool(w_T.any()):
            w_T = torch.full_like(w_T, goal_scale * atoms / k)
        if parts is not None:
            w_T = torch.cat([w.expand(len(parts[t])) for t, w in zip(order_T.tolist(), w_T, strict=True)])
            order_T = torch.cat([parts[t] for t in order_T.tolist()])
        device = group.members_M.device
        return order_T[: group.budget].to(device), w_T[: group.budget].to(device)

    return per_group(task, pick, compares="gradients" if batch is None else None)


def _mini_batches(task: Task, group: Group, batches: int) -> Sequence[Tensor]:
    """Random batches of positions in the group. Sizes differ by at most 1, larger ones first."""
    return torch.randperm(len(group.members_M), generator=task.generator).tensor_split(batches)


def _check_memory(task: Task, per: str, batch_size: int) -> None:
    """Raise UsageError if the largest problem cannot fit."""
    outputs, has = task.candidates.outputs, memory_bytes()
    features = math.ceil(sum(each.num_features for each in outputs) / len(outputs))
    for group in task.groups:
        size = Size(len(group.members_M), group.budget, len(outputs), task.candidates.num_classes, features)
        needed = gradmatch_bytes(size, per=per, batch_size=batch_size) + 4 * size.n * size.numbers
        if needed > has:
            raise UsageError(
                f"gradmatch: {size.k:,} picks out of {size.n:,} as one problem take about {needed / 2**30:,.0f} GiB, "
                f"there are {has / 2**30:,.0f}",
                "select class by class (balanced), set per: batch, or keep fewer",
            )


def _batches(n: int, k: int, batch_size: int) -> tuple[int, int]:
    """The number of batches of about `batch_size` samples to choose from, and the number of picks that always fills
    the budget k."""
    batches = max(1, round(n / batch_size))
    return batches, min(batches, -(-k // (n // batches)))


def _atoms(
    candidates: Candidates, group: Group, parts: Sequence[Tensor] | None, *, own_row: bool
) -> Sequence[LastLayer]:
    """The gradients to choose from: of samples, of their classifier row, or of batches. Float64, on a CPU, scaled to
    mean squared norm 1."""
    layers = last_layers(candidates, group.members_M, torch.float64, torch.device("cpu"))
    if own_row:
        own_M1 = candidates.labels_N[group.members_M][:, None].cpu()
        own = [layer.delta_NC.gather(1, own_M1) for layer in layers]
        if group.label is None:  # rows of different classes are different coordinates: their product is 0
            nowhere = [torch.zeros_like(layer.delta_NC) for layer in layers]
            own = [zeros_NC.scatter_(1, own_M1, own_N1) for zeros_NC, own_N1 in zip(nowhere, own, strict=True)]
        return _of_norm_1([LastLayer(row, layer.features_NE) for row, layer in zip(own, layers, strict=True)])
    if parts is None:
        return _of_norm_1(layers)
    numbers = sum(layer.delta_NC.shape[1] * layer.features_NE.shape[1] for layer in layers)
    require(
        8 * len(parts) * numbers <= DENSE_BYTES,
        f"gradmatch: {len(parts):,} mini-batch gradients of {numbers:,} numbers do not fit into {DENSE_BYTES >> 30} "
        "GiB",
        "choose a larger batch_size, or per: class",
    )
    dense = []
    for layer in layers:
        sums_BP = torch.stack([(layer.delta_NC[part].T @ layer.features_NE[part]).flatten() for part in parts])
        dense.append(LastLayer(sums_BP.new_ones(len(parts), 1), sums_BP))  # <G_a, G_b> = 1 * <G_a, G_b>
    return _of_norm_1(dense)


def _of_norm_1(layers: Sequence[LastLayer]) -> Sequence[LastLayer]:
    """The gradients, scaled in place to mean squared norm 1 over all models; unchanged if all are zero.

    The largest entries are scaled to 1 first. Otherwise the squared gradients of a confident model underflow even in
    float64, and products underflow in float32.
    """
    tall = [_largest(layer.features_NE) for layer in layers]
    tall = [each.where(each > 0, 1.0) for each in tall]
    peak = torch.stack([_largest(layer.delta_NC) * each for layer, each in zip(layers, tall, strict=True)]).max()
    peak = peak.where(peak > 0, 1.0)
    for layer, each in zip(layers, tall, strict=True):
        layer.delta_NC.mul_(each / peak)
        layer.features_NE.div_(each)
    norm = sum_of([_square_norms(layer) for layer in layers]).mean().sqrt()
    for layer in layers:
        layer.delta_NC.div_(norm.where(norm > 0, 1.0))
    return layers


def _largest(x_NX: Tensor) -> Tensor:
    """The largest magnitude, without a copy of all."""
    return torch.stack(x_NX.aminmax()).abs().amax()


def _square_norms(layer: LastLayer) -> Tensor:
    """|g_i|^2 (N,), block by block."""
    n, width = layer.features_NE.shape

    def of(rows: slice) -> Tensor:
        return LastLayer(layer.delta_NC[rows], layer.features_NE[rows]).square_norms_N()

    return per_row(n, 2 * (width + layer.delta_NC.shape[1]), of)
