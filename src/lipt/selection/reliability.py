"""How sure are scores? Their split-half reliability, and the overlap of subsets that several seeds selected.

Two halves of the scorers (models of an ensemble, or epochs of one trajectory) score the same samples. The rank
correlation r of the two scores (Spearman 1904: Pearson's correlation of the ranks) is the reliability of half as many
scorers. That of all of them is 2 r / (1 + r) (Spearman 1910; Brown 1910). A balanced selection compares samples within
their class only. So r is then the mean over the classes: if all scores of one class are higher than those of another,
halves agree on that, but it decides nothing.

Models of an ensemble are independent trainings or jigsaws. The epochs of one trajectory are not. In our measurements
two seeds agree about as well as the reliability says, and with `dual` on few epochs better (docs/results).

Shape legend: N samples, K and L kept by two seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.outputs import StoredOutputs
from lipt.selection.needs import Requirements


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """The reliability of scores, in 0..1, and what was halved."""

    value: float
    halved: Literal["models", "epochs"]


def reliability(
    candidates: Candidates,
    needs: Requirements,
    score: Callable[[Candidates], Tensor | None],
    *,
    balanced: bool,
) -> Reliability | None:
    """The split-half reliability of the scores that `score` gives; None if the scorers cannot be halved.

    With an odd number of scorers the last one is left out. Of stored outputs only the first block is read, since the
    blocks of a run are stratified samples.

    Args:
        needs: the algorithm's requirements; they say whether it reads trajectories or outputs.
        score: scores (N,) of candidates; None, or a UsageError, if half of the scorers are too few for it.
        balanced: whether samples are compared within their class only.
    """
    parts = _halves(candidates, needs)
    if parts is None:
        return None
    first, second, halved = parts
    try:
        first_N, second_N = score(first), score(second)
    except UsageError:
        return None
    if first_N is None or second_N is None:
        return None
    r = class_correlation(first_N, second_N, first.labels_N) if balanced else rank_correlation(first_N, second_N)
    return Reliability(value=spearman_brown(r), halved=halved)


def _halves(
    candidates: Candidates, needs: Requirements
) -> tuple[Candidates, Candidates, Literal["models", "epochs"]] | None:
    recorded, stored = candidates.trajectories if needs.trajectory else (), candidates.stored
    single = len(recorded) == 1
    count = recorded[0].epochs if single else len(recorded) or candidates.num_models
    if count < 2:
        return None

    def half(start: int) -> Candidates:
        part = slice(start, count // 2 * 2, 2)
        if recorded:
            own = [recorded[0].epochs_of(part)] if single else recorded[part]
            return replace(candidates, outputs=(), stored=None, trajectories=own)
        if stored is not None:
            return _of_first_block(candidates, stored, part)
        return replace(candidates, outputs=candidates.outputs[part])

    return half(0), half(1), "epochs" if single else "models"


def _of_first_block(candidates: Candidates, stored: StoredOutputs, part: slice) -> Candidates:
    size = stored.sizes[0]
    few = replace(stored, models=stored.models // 2, sizes=[size], read=lambda block: stored.read(block)[part])
    return Candidates(labels_N=candidates.labels_N[:size], num_classes=candidates.num_classes, stored=few)


def rank_correlation(a_N: Tensor, b_N: Tensor) -> float:
    """Spearman's rank correlation; equal values have their mean rank. 0 if either holds only one value."""
    a, b = (ranks - ranks.mean() for ranks in map(_ranks, (a_N, b_N)))
    lengths = a.square().sum().sqrt() * b.square().sum().sqrt()
    return float((a * b).sum() / lengths) if lengths > 0 else 0.0


def class_correlation(a_N: Tensor, b_N: Tensor, labels_N: Tensor) -> float:
    """The mean over the samples of the rank correlation within their class. A class of one sample, which has no order,
    is left out; 0 if there is no other."""
    sizes = labels_N.unique(return_counts=True)[1].tolist()
    found = [
        (len(rows_M), rank_correlation(a_N[rows_M], b_N[rows_M]))
        for rows_M in labels_N.argsort().split(sizes)
        if len(rows_M) > 1
    ]
    return sum(size * r for size, r in found) / max(1, sum(size for size, _ in found))


def _ranks(x_N: Tensor) -> Tensor:
    _, inverse_N, counts = x_N.unique(return_inverse=True, return_counts=True)
    ranks_N: Tensor = (counts.cumsum(0) - (counts - 1) / 2).double()[inverse_N]
    return ranks_N


def spearman_brown(r: float) -> float:
    """The reliability of twice as many scorers, if that of each half is r; 0 where the halves disagree (r < 0)."""
    return 2 * r / (1 + r) if r > 0 else 0.0


Positions = npt.NDArray[np.int64]


def overlap(subsets: Sequence[tuple[Positions, Positions]]) -> tuple[float, float] | None:
    """The share of a subset that another has too, mean over all pairs, and that of random subsets of the same sizes.

    Each pair is compared on the candidates that both have, because seeds set aside other validation images. With m of
    them, of which the seeds kept K and L, chance shares K L / m. It is divided by (K + L) / 2. None with fewer than two
    subsets, or if no pair kept common candidates.

    Args:
        subsets: for each seed the positions of its candidates and of those that it kept, without duplicates.
    """
    found = []
    for (of_one, kept_K), (of_other, kept_L) in combinations(subsets, 2):
        common = np.intersect1d(of_one, of_other, assume_unique=True)
        one, other = (np.intersect1d(kept, common, assume_unique=True) for kept in (kept_K, kept_L))
        if len(one) and len(other):
            shared, expected = len(np.intersect1d(one, other, assume_unique=True)), len(one) * len(other) / len(common)
            found.append([2 * both / (len(one) + len(other)) for both in (shared, expected)])
    return (fmean(pair[0] for pair in found), fmean(pair[1] for pair in found)) if found else None
