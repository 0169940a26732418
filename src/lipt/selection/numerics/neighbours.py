"""Greedy medoids on a graph of nearest neighbours, for data too large for all n^2 distances."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Memory of one block of distances in the search for neighbours.
BLOCK_BYTES = 64 << 20


def nearest(rows: Callable[[Tensor], Tensor], n: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The `count` nearest samples of each sample, itself included, and their distances; both (n, count).

    Args:
        rows: maps samples (B,) to their distances (B, n) to all samples.
    """
    size = max(1, BLOCK_BYTES // (4 * n))
    found = [rows(block_B).topk(count, largest=False) for block_B in torch.arange(n, device=device).split(size)]
    return torch.cat([each.indices for each in found]), torch.cat([each.values for each in found])


def sparse_medoids(neighbours_NJ: Tensor, distances_NJ: Tensor, k: int, tie: float, initial_I: Tensor) -> Tensor:
    """Positions (k,) that greedily minimise sum_i min(L, min_{j in S} d_ij).

    L is the largest distance to any neighbour; d_ij = L unless j is a neighbour of i. O(n + J deg) time per pick,
    O(n J) memory.

    Args:
        neighbours_NJ: each row holds distinct samples.
        tie: gains whose relative difference is at most this are equal; the lowest index wins.
        initial_I: earlier picks.
    """
    n, width = neighbours_NJ.shape
    distances_NJ = distances_NJ.double()  # gains are updated by differences, which add up rounding errors
    nearest_N = distances_NJ.max().expand(n).clone()
    gains_N = torch.zeros_like(nearest_N)
    gains_N.index_add_(0, neighbours_NJ.flatten(), (nearest_N[:, None] - distances_NJ).flatten())
    nothing = tie * float(gains_N.max())  # smaller gains are rounding errors of zero
    # The edges sorted by target: the samples that have j as a neighbour.
    by_target = neighbours_NJ.flatten().argsort(stable=True)
    ends_N = torch.bincount(neighbours_NJ.flatten(), minlength=n).cumsum(0).tolist()
    taken_N = torch.zeros(n, dtype=torch.bool, device=gains_N.device)
    given: list[int] = initial_I.tolist()
    picked: list[int] = []
    for step in range(len(given) + k):
        if step < len(given):
            best = given[step]
        else:
            free_N = gains_N.masked_fill(taken_N, -torch.inf)
            most = float(free_N.max())
            equals_N = free_N >= most * (1 - tie) if most > nothing else ~taken_N  # nothing left to gain: any free one
            best = int(equals_N.int().argmax())
            picked.append(best)
        taken_N[best] = True
        edges_P = by_target[(ends_N[best - 1] if best else 0) : ends_N[best]]
        served_P, distance_P = edges_P // width, distances_NJ.flatten()[edges_P]
        closer_P = distance_P < nearest_N[served_P]
        served_S, new_S = served_P[closer_P], distance_P[closer_P]
        lost_SJ = (nearest_N[served_S, None] - distances_NJ[served_S]).clamp_min_(0)
        lost_SJ -= (new_S[:, None] - distances_NJ[served_S]).clamp_min_(0)
        gains_N.index_add_(0, neighbours_NJ[served_S].flatten(), -lost_SJ.flatten())
        nearest_N[served_S] = new_S
    return torch.tensor(picked, device=gains_N.device)
