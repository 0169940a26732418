"""Difficulty without labels: the cosine distance of each sample to the nearest centre of a clustering.

Shape legend: N samples, D features, P prototypes, B samples of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lipt.selection.arrays import of_view, view
from lipt.selection.inputs.gradients import joint_features
from lipt.selection.inputs.outputs import Outputs
from lipt.selection.numerics.norms import lengths
from lipt.selection.registry import Picks, Task, register, require, top

#: Samples per block: few enough for the cache.
BLOCK = 256
#: Steps after which k-means ends in any case.
STEPS = 100
#: Distances below this multiple of the rounding error count as 0.
ROUNDINGS = 32


@register("prototypes", models=1, logits=False)
def prototypes(task: Task, *, keep: Literal["hard", "easy"] = "hard", clusters: int | None = None) -> Picks:
    """Samples farthest from the nearest centre of a k-means clustering (their prototype), or closest to it.

    Source: Sorscher et al. 2022, Section 5. Time: O(tnCd), t steps of k-means. Use: mild pruning without labels.

    All candidates are clustered together, without their labels; if `balanced`, labels only split the budget. The
    distance is 1 - cos; features that are all 0 have distance 1. The paper leaves the variant of k-means open. Ours is
    spherical: features and centres are scaled to length 1, so samples are assigned by the same distance. It starts from
    k-means++, whose draws follow the seed. It ends when no sample changes its cluster, or after 100 steps.

    Args:
        keep: `hard` keeps the farthest samples, as the paper does when data are plentiful; `easy` keeps the closest
            ones, as it does when data are scarce.
        clusters: number of prototypes; None = the number of classes (2 or more). In the paper, the results differ
            little within a factor of ten. There are never more prototypes than samples with different directions.
    """
    count = task.candidates.num_classes if clusters is None else clusters
    require(
        clusters is not None or count > 1,
        "prototypes: there is one class, and clusters is None: all samples would be one cluster",
        "without labels, pass the number of clusters, such as clusters=10",
    )
    require(
        count >= 1,
        f"prototypes: clusters must be at least 1, not {clusters}",
        "pass 1 or more, or None for the number of classes",
    )
    directions = Directions.of(task.candidates.outputs)
    distances_N = distances(directions, *k_means(directions, count, task.generator))
    return top(task, distances_N if keep == "hard" else -distances_N)


@dataclass(frozen=True, kw_only=True)
class Directions:
    """Features scaled to length 1. Only one block of them is held at a time."""

    outputs: Sequence[Outputs]
    lengths_N: Tensor
    """Of the features; 1 where they are all 0, so that they stay 0."""
    zero_N: Tensor
    """Bool, whether the features are all 0."""

    @classmethod
    def of(cls, outputs: Sequence[Outputs]) -> Directions:
        """The directions of the features of all models, concatenated."""
        parts = [lengths(joint_features(outputs, rows)) for rows in _blocks(len(outputs[0].features_ND))]
        lengths_N = torch.cat(parts)
        zero_N = lengths_N < torch.finfo(lengths_N.dtype).tiny
        return cls(outputs=outputs, lengths_N=lengths_N.masked_fill_(zero_N, 1.0), zero_N=zero_N)

    def rows(self, rows: slice) -> Tensor:
        """The directions (B, D) of these samples."""
        return joint_features(self.outputs, rows) / self.lengths_N[rows, None]

    def cosines(self, centre_D: Tensor) -> Tensor:
        """The cosine (N,) between each direction and the centre."""
        centre, blocks = view(centre_D), _blocks(len(self.lengths_N))
        products = [of_view(view(joint_features(self.outputs, rows)) @ centre) for rows in blocks]
        return torch.cat(products) / self.lengths_N

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """All directions, block by block, with their rows."""
        return ((rows, self.rows(rows)) for rows in _blocks(len(self.lengths_N)))


def k_means(directions: Directions, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The centres (P, D) of at most `count` clusters, of length 1, and the nearest one (N,) of each sample."""
    centres_PD = first_centres(directions, count, generator)
    owners_N = torch.full_like(directions.zero_N, -1, dtype=torch.int64)
    for step in range(STEPS + 1):
        before_N, sums_PD = owners_N.clone(), torch.zeros_like(centres_PD, dtype=torch.float64)
        for rows, unit_BD in directions.blocks():
            owners_N[rows] = (unit_BD @ centres_PD.T).argmax(1)
            sums_PD += torch.zeros_like(centres_PD).index_add_(0, owners_N[rows], unit_BD)
        if step == STEPS or torch.equal(owners_N, before_N):
            break
        lengths_P1 = sums_PD.norm(dim=1, keepdim=True)
        # A cluster without samples keeps its centre.
        centres_PD = (sums_PD / lengths_P1).to(centres_PD.dtype).where(lengths_P1 > 0, centres_PD)
    return centres_PD, owners_N


def first_centres(directions: Directions, count: int, generator: torch.Generator) -> Tensor:
    """The centres (P, D) of k-means++ (Arthur & Vassilvitskii 2007): each is a sample, drawn in proportion to its
    distance from the nearest centre before it. There are fewer than `count` if all samples coincide with a centre."""
    weights_N = torch.where(directions.zero_N, 0.0, 2.0).double().cpu()  # no distance exceeds 2
    floor = ROUNDINGS * torch.finfo(directions.lengths_N.dtype).eps
    centres: list[Tensor] = []
    while len(centres) < count and (weights_N.any() or not centres):
        sums_N = weights_N.cumsum(0)
        drawn_1 = torch.rand(1, generator=generator, dtype=torch.float64) * sums_N[-1]
        at = min(int(torch.searchsorted(sums_N, drawn_1, right=True)), len(sums_N) - 1)
        centres.append(directions.rows(slice(at, at + 1))[0])
        distances_N = (1 - directions.cosines(centres[-1])).double().cpu()
        weights_N = torch.minimum(weights_N, distances_N.where(distances_N >= floor, 0.0))
    return torch.stack(centres)


def distances(directions: Directions, centres_PD: Tensor, owners_N: Tensor) -> Tensor:
    """The distance (N,) of each sample to its centre; bitwise equal for equal samples."""
    distances_N = torch.empty_like(directions.lengths_N)
    for rows, unit_BD in directions.blocks():  # 1 - cos = |u - c|^2 / 2, which keeps its digits where it is small
        distances_N[rows] = lengths(unit_BD.sub_(centres_PD[owners_N[rows]])).square_().div_(2)
    floor = ROUNDINGS * torch.finfo(distances_N.dtype).eps
    return distances_N.where(distances_N >= floor, 0.0).masked_fill_(directions.zero_N, 1.0)


def _blocks(n: int) -> list[slice]:
    """Of a fixed size, so that sums do not depend on `blocks.BLOCK_BYTES`."""
    return [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]
