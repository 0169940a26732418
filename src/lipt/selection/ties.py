"""Replace rounding's choice among equal samples by their order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lipt.selection.inputs.candidates import Candidates
from lipt.selection.numerics.blocks import per_row

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

    def compared(rows_B: Tensor) -> list[Tensor]:
        parts = [each.features_ND[rows_B] for each in candidates.outputs]
        if gradients:
            parts += [each.logits(rows_B) for each in candidates.outputs] + [candidates.labels_N[rows_B, None]]
        return parts

    prints_S = per_row(len(rows_S), width, lambda block: _prints(compared(rows_S[block])))
    groups_S = prints_S.unique(return_inverse=True)[1]
    firsts_S = rows_S[_firsts(groups_S)]

    def equal(block: slice) -> Tensor:  # two different samples may have one hash
        pairs = zip(compared(rows_S[block]), compared(firsts_S[block]), strict=True)
        return torch.stack([(ours_BX == first_BX).all(1) for ours_BX, first_BX in pairs]).all(0)

    groups_M = torch.full_like(members_M, -1)
    groups_M[maybe_S] = groups_S.where(per_row(len(rows_S), width, equal), -1)
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


def _firsts(groups_S: Tensor) -> Tensor:
    """The position (S,) of the first member of each one's group."""
    order_S = torch.arange(len(groups_S), device=groups_S.device)
    return torch.full_like(groups_S, len(groups_S)).scatter_reduce_(0, groups_S, order_S, "amin")[groups_S]


def _prints(parts: Sequence[Tensor]) -> Tensor:
    """A hash (B,) of each row over all parts: the sum of bits times odd numbers, modulo 2^64."""
    generator = torch.Generator().manual_seed(0)
    prints_B = torch.zeros(len(parts[0]), dtype=torch.int64, device=parts[0].device)
    for values_BX in parts:
        bits_BX = (values_BX + 0).view(_BITS[values_BX.element_size()]).long()  # -0.0 + 0 = 0.0
        if values_BX.element_size() == 8:  # the last bits of a short number are 0, and would remain 0 in the product
            bits_BX = bits_BX ^ (bits_BX >> 32 & 0xFFFFFFFF)
        factors_X = 2 * torch.randint(2**61, (values_BX.shape[1],), generator=generator) + 1
        prints_B += (bits_BX * factors_X.to(bits_BX.device)).sum(1)
    return prints_B
