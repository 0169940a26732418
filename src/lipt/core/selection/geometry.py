"""Algorithms on penultimate features: herding, k-center, moderate."""

from __future__ import annotations

import torch
from torch import Tensor

from lipt.core.selection.gradients import joint_features
from lipt.core.selection.passes import each_block, per_sample
from lipt.core.selection.rows import members_by_class, per_row, row_blocks
from lipt.core.selection.task import Picks, Task, per_group, register, top
from lipt.core.selection.types import Candidates


@register("herding", models=1)
def herding(task: Task) -> Picks:
    """Greedy subset whose mean feature vector stays closest to the mean of its group (Welling 2009, eq. 4)."""
    return per_group(
        task, lambda group: (herd(joint_features(task.candidates.outputs, group.members_M), group.budget), None)
    )


@register("k_center", models=1)
def k_center(task: Task) -> Picks:
    """Farthest-first traversal: each pick is the candidate farthest from all picks (Sener & Savarese 2018, Algorithm
    1).

    The first is the one closest to the mean of its group.
    """
    return per_group(
        task,
        lambda group: (farthest_first(joint_features(task.candidates.outputs, group.members_M), group.budget), None),
    )


@register("moderate", models=1, passes=2)
def moderate(task: Task) -> Picks:
    """Closest to the median distance from the class centre (Xia et al. ICLR 2023)."""
    candidates = task.candidates
    means_CD = class_means(candidates)
    distances_N = per_sample(candidates, lambda block: _distances_from(block, means_CD))
    scores_N = torch.empty_like(distances_N)
    for rows_M in members_by_class(candidates.labels_N, candidates.num_classes):
        if len(rows_M):
            distances_M = distances_N[rows_M]
            scores_N[rows_M] = -(distances_M - _median(distances_M)).abs()
    return top(task, scores_N)


def class_means(candidates: Candidates) -> Tensor:
    """Mean features (C, R D) of every class in float64; 0 of a class without members."""
    labels_N, num_classes = candidates.labels_N, candidates.num_classes
    sums: list[Tensor] = []

    def add(_start: int, block: Candidates) -> None:
        width = sum(each.num_features for each in block.outputs)
        if not sums:
            sums.append(torch.zeros(num_classes, width, dtype=torch.float64, device=labels_N.device))
        for rows in row_blocks(len(block), width):  # sample by sample: the sum must not depend on the blocks
            sums[0].index_add_(0, block.labels_N[rows], joint_features(block.outputs, rows).double())

    each_block(candidates, add)
    return sums[0] / torch.bincount(labels_N, minlength=num_classes).clamp_min(1)[:, None]


def _distances_from(block: Candidates, means_CD: Tensor) -> Tensor:
    """Distances (N,) of the samples from the mean of their class."""
    centres_CD = means_CD.to(joint_features(block.outputs, slice(0)).dtype)

    def distances_B(rows: slice) -> Tensor:
        offsets_BD = joint_features(block.outputs, rows) - centres_CD[block.labels_N[rows]]
        distances_B: Tensor = offsets_BD.norm(dim=1)
        return distances_B

    return per_row(len(block), means_CD.shape[1], distances_B)


def herd(features_MD: Tensor, k: int) -> Tensor:
    """Positions (k,): pick t minimises |mean of the first t picks - mean of all|; O(k M D) time, O(M D) memory."""
    # Centred, the error after one more pick is |sum + x_i| / t, so |x_i|^2 + 2 x_i . sum decides.
    x_MD = features_MD - features_MD.mean(0)
    norms_M = x_MD.square().sum(1)
    total_D = torch.zeros_like(x_MD[0])
    picked_K = torch.empty(k, dtype=torch.int64, device=x_MD.device)
    for t in range(k):
        best = torch.addmv(norms_M, x_MD, total_D, alpha=2).argmin()
        picked_K[t] = best
        total_D += x_MD[best]
        norms_M[best] = torch.inf
    return picked_K


def farthest_first(features_MD: Tensor, k: int) -> Tensor:
    """Positions (k,) of the farthest-first traversal; O(k M D) time, O(M D) memory."""
    x_MD = features_MD - features_MD.mean(0)  # distances do not change, rounding does
    norms_M = x_MD.square().sum(1)
    nearest_M = torch.full_like(norms_M, torch.inf)  # squared distance to the nearest pick, -1 for picks
    picked_K = torch.empty(k, dtype=torch.int64, device=x_MD.device)
    best = norms_M.argmin()
    for t in range(k):
        picked_K[t] = best
        distances_M = torch.addmv(norms_M, x_MD, x_MD[best], alpha=-2).add_(norms_M[best]).clamp_min_(0)
        nearest_M = torch.minimum(nearest_M, distances_M)
        nearest_M[best] = -1
        best = nearest_M.argmax()
    return picked_K


def _median(values_M: Tensor) -> Tensor:
    """The median, the mean of the middle two for an even number (torch.median takes the lower one)."""
    ordered_M = values_M.sort().values
    return (ordered_M[(len(ordered_M) - 1) // 2] + ordered_M[len(ordered_M) // 2]) / 2
