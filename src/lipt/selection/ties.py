"""Replace rounding's choice among equal samples by their order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lipt.selection.rows import per_row
from lipt.selection.types import Candidates

#: Feature columns that are compared first. Only samples that agree in them are compared in full.
FEW = 16
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def lowest_first(
    candidates: Candidates, members_M: Tensor, picked_K: Tensor, *, gradients: bool, barred_I: Tensor | None = None
) -> Tensor:
    """The picks (K,), positions in `members_M`, with equal samples in ascending order.

    A greedy may exchange equal samples, since all their values are equal. But matrix products round differently from
    row to row, so the greedy itself picks any of them.

    Args:
        gradients: True = samples are equal if their features, labels and logits are; False = if their features are.
        barred_I: positions in `members_M` that cannot be picked.
    """
    if not candidates.outputs:
        return picked_K
    features = [each.features_ND[:, :: max(1, each.num_features // FEW)] for each in candidates.outputs]
    prints_M = _prints([few[members_M] for few in features])
    ordered_M = prints_M.sort().values
    if not bool((ordered_M[1:] == ordered_M[:-1]).any()):  # no two samples are equal
        return picked_K
    maybe_S = _shared(prints_M).nonzero().flatten()
    rows_S = members_M[maybe_S]
    width = 2 * sum(each.num_features + each.num_classes for each in candidates.outputs)

    def prints_B(block: slice) -> Tensor:
        rows_B = rows_S[block]
        parts = [each.features_ND[rows_B] for each in candidates.outputs]
        if gradients:
            parts += [each.logits(rows_B) for each in candidates.outputs] + [candidates.labels_N[rows_B, None]]
        return _prints(parts)

    groups_M = torch.full_like(members_M, -1)
    groups_M[maybe_S] = per_row(len(rows_S), width, prints_B).unique(return_inverse=True)[1]
    if barred_I is not None:
        groups_M[barred_I] = -1
    return _relabel(picked_K, groups_M)


def _relabel(picked_K: Tensor, groups_M: Tensor) -> Tensor:
    """Replace the t-th pick of a group by the t-th member of the group; -1 = no group."""
    groups, picks = groups_M.tolist(), picked_K.tolist()
    touched: dict[int, list[int]] = {groups[pick]: [] for pick in picks if groups[pick] >= 0}
    for position, group in enumerate(groups):
        if group in touched:
            touched[group].append(position)
    turns = {group: iter(positions) for group, positions in touched.items()}
    return picked_K.new_tensor([next(turns[groups[pick]]) if groups[pick] >= 0 else pick for pick in picks])


def _shared(prints_M: Tensor) -> Tensor:
    """True where a value occurs more than once."""
    _, inverse_M, counts_U = prints_M.unique(return_inverse=True, return_counts=True)
    shared_M: Tensor = counts_U[inverse_M] > 1
    return shared_M


def _prints(parts: Sequence[Tensor]) -> Tensor:
    """A hash (B,) of each row over all parts: the sum of bits times odd numbers, modulo 2^64."""
    generator = torch.Generator().manual_seed(0)
    prints_B = torch.zeros(len(parts[0]), dtype=torch.int64, device=parts[0].device)
    for values_BX in parts:
        bits_BX = (values_BX + 0).view(_BITS[values_BX.element_size()]).long()  # -0.0 + 0 = 0.0
        factors_X = 2 * torch.randint(2**61, (values_BX.shape[1],), generator=generator) + 1
        prints_B += (bits_BX * factors_X.to(bits_BX.device)).sum(1)
    return prints_B
