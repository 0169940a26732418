"""Algorithms on penultimate features: herding, k-center, moderate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lipt.selection.arrays import View, view
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.gradients import joint_features
from lipt.selection.inputs.outputs import Outputs
from lipt.selection.inputs.passes import check_finite, each_block, largest, per_sample
from lipt.selection.needs import Requirements
from lipt.selection.numerics.blocks import as_slice, block_rows, per_row, row_blocks
from lipt.selection.numerics.closeness import blurred, squares_between
from lipt.selection.numerics.norms import all_digits, few, lengths, squarable
from lipt.selection.numerics.shrinking import shrinking_greedy
from lipt.selection.numerics.steps import Pick, features_first, leader, minimum, places, positions, product
from lipt.selection.registry import Group, Picks, Task, per_group, register, top

#: Sums over up to this number of samples are in the precision of the features, longer ones in float64.
PART = 512
#: Columns that are sorted at once: few, because sorting takes several times their memory.
COLUMNS = 32


@register("herding", models=1, logits=False, initial=True)
def herding(task: Task) -> Picks:
    """Samples whose running feature mean stays closest to the mean of their group.

    Source: Rebuffi et al. 2017 (iCaRL), alg. 4. Time: O(knd). Use: small budgets; representative samples.

    iCaRL scales features to length 1 first; here they are taken as they are. To do as iCaRL, hand over scaled ones.
    Welling 2009 has the name and another rule: without the length of the features.
    """
    return per_group(
        task,
        lambda group: (herd(_features(task, group), group.budget, group.initial_I), None),
        compares="features",
    )


@register("k_center", models=1, logits=False, initial=True)
def k_center(task: Task) -> Picks:
    """Each time the sample farthest from all earlier picks.

    Source: Sener & Savarese 2018, Algorithm 1. Time: O(knd). Use: outliers matter.
    Without initial samples, the first pick is the sample closest to the mean of its group.
    """
    return per_group(
        task,
        lambda group: (farthest_first(_features(task, group), group.budget, group.initial_I), None),
        compares="features",
    )


@register(
    "moderate",
    models=1,
    passes=2,
    logits=False,
    option="variant",
    by_value={"authors": Requirements(models=1, features=True)},
)
def moderate(task: Task, *, variant: Literal["class", "authors"] = "class") -> Picks:
    """Samples at the median distance from the class centre.

    Source: Xia et al. ICLR 2023. Time: O(nd), of `authors` O(nd log n). Use: around 5 %.

    Args:
        variant: `class` is ours. The centre is the class mean; the samples closest to the median distance of their
            class are kept. It reads the features twice, block by block. `authors` is the published code
            (tmllab/2023_ICLR_Moderate-DS). The centre is the coordinate-wise median of the class; the middle of the
            ranking by distance is kept, from rank (n - k) / 2 on (the code keeps a sample more or less where n - k is
            odd). The ranking is within each class; with
            `balanced=False`, as in the published code, over all classes. It holds all features in memory.
    """
    if variant == "authors":
        return _middle_ranks(task)
    candidates = task.candidates
    means_CD = class_means(candidates)
    distances_N = per_sample(candidates, lambda block: _distances_from(block, means_CD), check=False)
    if candidates.stored is None and not _within(means_CD, distances_N, candidates.outputs):
        check_finite(candidates, "candidate")
    scores_N = torch.empty_like(distances_N)
    for rows_M in candidates.members:
        if len(rows_M):
            rows = as_slice(rows_M)
            rows = rows if isinstance(rows, slice) else view(rows)
            view(scores_N)[rows] = -_offsets(view(distances_N)[rows])
    return top(task, scores_N)


def _middle_ranks(task: Task) -> Picks:
    candidates = task.candidates
    distances_N = torch.empty(len(candidates), dtype=torch.float64, device=candidates.labels_N.device)
    for rows_M in candidates.members:
        if len(rows_M):
            features_MD = joint_features(candidates.outputs, rows_M)
            centre_D = torch.cat([_medians(part_MP) for part_MP in features_MD.split(COLUMNS, dim=1)])
            distances_N[rows_M] = _distances_to(centre_D, features_MD)

    def pick(group: Group) -> tuple[Tensor, None]:
        start = round((len(group.members_M) - group.budget) / 2)
        return distances_N[group.members_M].argsort(stable=True)[start : start + group.budget], None

    return per_group(task, pick)


def _medians(x_MP: Tensor) -> Tensor:
    """The median (P,) of each column, in float64; for an even number, the mean of the middle two."""
    ordered_MP = x_MP.sort(0).values
    return (ordered_MP[(len(x_MP) - 1) // 2].double() + ordered_MP[len(x_MP) // 2].double()) / 2


def _distances_to(centre_D: Tensor, x_MD: Tensor) -> Tensor:
    """The distance (M,) of each sample to the centre, in float64, block by block."""
    return per_row(len(x_MD), 4 * len(centre_D), lambda rows: lengths(x_MD[rows].double() - centre_D))


def _within(means_CD: Tensor, distances_N: Tensor, outputs: Sequence[Outputs]) -> bool:
    """True proves that all features are finite and small enough to be squared, as |h| <= |mean| + |h - mean|; far
    cheaper than to read them all once more. NaN and infinities spread into the means."""
    bound = float(torch.linalg.vector_norm(means_CD, dim=1).max()) + float(distances_N.max())
    return 2 * len(outputs) * bound < min(largest(each.features_ND.dtype) for each in outputs)


def class_means(candidates: Candidates) -> Tensor:
    """Mean features (C, R D) of every class in float64; 0 for a class without members. It does not check outputs that
    are in memory."""
    labels_N, num_classes = candidates.labels_N, candidates.num_classes
    # The sum must not depend on the block size, so samples are added one by one to the sum of their part.
    size = max(PART, num_classes)
    sums: list[Tensor] = []  # of the finished parts (float64) and of the current part (the features' precision)

    def add(start: int, block: Candidates) -> None:
        if not sums:
            none_D = joint_features(block.outputs, slice(0)).sum(0)
            sums.extend(none_D.new_zeros(num_classes, len(none_D), dtype=dtype) for dtype in (torch.float64, None))
        done = 0
        while done < len(block):
            most = min(size - (start + done) % size, block_rows(4 * sums[0].shape[1]))
            rows = slice(done, min(len(block), done + most))
            sums[1].index_add_(0, block.labels_N[rows], joint_features(block.outputs, rows))
            done = rows.stop
            if (start + done) % size == 0 or start + done == len(labels_N):
                sums[0].add_(sums[1])
                sums[1].zero_()

    each_block(candidates, add, check=False)
    return sums[0] / torch.bincount(labels_N, minlength=num_classes).clamp_min(1)[:, None]


def _distances_from(block: Candidates, means_CD: Tensor) -> Tensor:
    """The distance (N,) of each sample to its class mean."""
    centres_CD = means_CD.to(joint_features(block.outputs, slice(0)).dtype)
    labels_N = block.labels_N

    def differences(rows: Tensor | slice) -> Tensor:
        return centres_CD[labels_N[rows]].sub_(joint_features(block.outputs, rows))

    width = 16 * means_CD.shape[1]  # small blocks, which stay in the cache
    if not labels_N.is_cpu or few(centres_CD):
        return per_row(len(block), width, lambda rows: lengths(differences(rows)))
    # As `lengths`, with fewer calls per block.
    centres = centres_CD.numpy(force=True)
    squares_N = np.empty(len(block), centres.dtype)
    apart_BD = np.empty((min(len(block), block_rows(width)), centres.shape[1]), centres.dtype)
    with np.errstate(all="ignore"):
        for rows in row_blocks(len(block), width):
            away_BD = apart_BD[: rows.stop - rows.start]
            np.take(centres, labels_N[rows].numpy(), axis=0, out=away_BD, mode="clip")
            np.subtract(away_BD, joint_features(block.outputs, rows).numpy(force=True), out=away_BD)
            np.matmul(away_BD[:, None], away_BD[:, :, None], out=squares_N[rows, None, None])
        lengths_N = torch.from_numpy(np.sqrt(squares_N, out=squares_N))
    return all_digits(lengths_N, differences)


def _features(task: Task, group: Group) -> Tensor:
    return squarable(joint_features(task.candidates.outputs, group.members_M))


def herd(features_MD: Tensor, k: int, initial_I: Tensor | None = None) -> Tensor:
    """Positions (k,): pick t minimises |mean of the first t picks - mean of all|; O(k M D) time, O(M D) memory.

    Args:
        initial_I: earlier picks.
    """
    # Centred, the error after one more pick is |sum + x_i| / t, so -|x_i|^2 / 2 - x_i . sum decides.
    mean_D = features_MD.mean(0)
    x_DM = features_first(features_MD).sub_(mean_D[:, None])
    norms = torch.linalg.vector_norm(x_DM, dim=0).square_().mul_(-0.5)
    rest = torch.zeros_like(mean_D)  # minus the sum
    if initial_I is not None:
        rest -= x_DM[:, initial_I].sum(1)
        norms[initial_I] = -torch.inf
    rest_D = view(rest)
    x_DM, norms_M, gains_M, features, mean_D = map(view, (x_DM, norms, torch.empty_like(norms), features_MD, mean_D))
    picks = []
    for _ in range(k):
        product(rest_D, x_DM, gains_M)
        gains_M += norms_M
        pick = leader(gains_M, norms_M)
        picks.append(pick)
        rest_D += mean_D
        rest_D -= features[pick].reshape(-1)
        norms_M[pick] = -torch.inf
    return positions(picks, features_MD.device)


def farthest_first(features_MD: Tensor, k: int, initial_I: Tensor | None = None) -> Tensor:
    """Positions (k,) of the farthest-first traversal; O(k M D) time at most, O(M D) memory.

    Args:
        initial_I: earlier picks.
    """
    objective = _Farthest(features_MD)
    first = None
    if initial_I is None or not len(initial_I):
        first = initial_I = positions([leader(view(-objective.norms_M))], features_MD.device)
    everyone_M = torch.arange(len(features_MD), device=features_MD.device)
    values_M = torch.full_like(objective.norms_M, torch.inf)
    for picks_P in initial_I.split(256):
        values_M = objective.values(values_M, everyone_M, picks_P, 0)
    if first is None:
        return shrinking_greedy(objective, values_M, k, initial_I)
    return torch.cat([first, shrinking_greedy(objective, values_M, k - 1, first)])


class _Farthest:
    """Values are squared distances to the nearest pick, from differences where the two are close."""

    def __init__(self, features_MD: Tensor) -> None:
        self._x_MD = features_MD - features_MD.mean(0)  # same distances, smaller rounding errors
        self.norms_M = torch.linalg.vector_norm(self._x_MD, dim=1).square_()
        self._blurred_M = blurred(self.norms_M)

    def values(self, old_B: Tensor, rows_B: Tensor, picks_P: Tensor, seen: int) -> Tensor:
        new_P = picks_P[seen:]
        x_PD, norms_P = self._x_MD[new_P], self.norms_M[new_P]

        def least(block: slice) -> Tensor:  # block by block, because indexing copies rows
            rows = rows_B[block]
            x_BD = self._x_MD[rows]
            least_B = torch.addmm(self.norms_M[rows, None] + norms_P, x_BD, x_PD.T, alpha=-2).amin(1)
            near_B = least_B < self._blurred_M[rows]
            if bool(near_B.any()):
                least_B[near_B] = squares_between(x_BD[near_B], x_PD).amin(1)
            return least_B

        return torch.minimum(old_B, per_row(len(rows_B), self._x_MD.shape[1] + len(new_P), least))

    def focus(self, rows_A: Tensor) -> None:
        self._x_DA = view(features_first(self._x_MD[rows_A]))
        norms_A = self.norms_M[rows_A]
        self._norms_A, self._squares_A = view(norms_A), view(torch.empty_like(norms_A))
        self._blurred_A = view(self._blurred_M[rows_A])
        self._x, self._norms = view(self._x_MD), view(self.norms_M)

    def step(self, values_A: View, pick: Pick) -> None:
        squares_A = self._squares_A
        product(self._x[pick], self._x_DA, squares_A)
        squares_A *= -2
        squares_A += self._norms_A
        squares_A += self._norms[pick]
        near_S = places(squares_A < self._blurred_A)
        if len(near_S) > 1:  # others than the pick itself
            away_DS = self._x_DA[:, near_S] - self._x[pick].reshape(-1, 1)
            squares_A[near_S] = (away_DS * away_DS).sum(0)
        minimum(values_A, squares_A, values_A)

    def least_loss(self, pick: int) -> float:
        del pick
        return 0.0


def _offsets(values_M: View) -> View:
    """Distances to the median (for an even number, the mean of the middle two)."""
    middle = [(len(values_M) - 1) // 2, len(values_M) // 2]
    ordered_M = values_M.sort().values if isinstance(values_M, Tensor) else np.partition(values_M, middle)
    low, high = ordered_M[middle[0]], ordered_M[middle[1]]
    offsets_M = abs(values_M - (low + high) / 2)
    # The middle two are equally far; rounding must not order them.
    offsets_M[(values_M == low) | (values_M == high)] = (high - low) / 2
    return offsets_M
