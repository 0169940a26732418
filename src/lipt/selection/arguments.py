"""The arguments of `select`: checked, and in the form in which an algorithm gets them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection.arrays import ArrayLike, as_integers, as_tensor
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.passes import in_memory
from lipt.selection.needs import Requirements
from lipt.selection.registry import require


def check_samples(candidates: Candidates, validation: Candidates | None) -> None:
    """
    Raises:
        UsageError: they are of another type, or there are no candidates.
    """
    for what, samples in (
        ("candidates", candidates),
        ("validation samples", candidates if validation is None else validation),
    ):
        require(
            isinstance(samples, Candidates),
            f"{what} are a {type(samples).__name__}, not lipt.Candidates",
            "hand over lipt.Candidates.of(labels, logits=..., features=...)",
        )
    require(len(candidates) > 0, "there are no candidates to select from", "hand over at least one sample")


def initial_of(
    initial: ArrayLike | None, candidates: Candidates, budget: int, algorithm: str, needs: Requirements
) -> Tensor:
    """Initial samples, int64 (I,), ascending; empty if there are none."""
    n, device = len(candidates), candidates.labels_N.device
    remedy = "hand over positions in the candidates, such as selection.indices_K"
    if initial is None or not as_tensor(initial, "initial", remedy).numel():
        return torch.empty(0, dtype=torch.int64, device=device)
    require(needs.initial, f"algorithm {algorithm} takes no initial samples", "leave them out of the candidates")
    initial_I = as_integers(initial, "initial", remedy).to(device)
    require(
        initial_I.ndim == 1,
        f"initial must be positions (I,), not {tuple(initial_I.shape)}",
        "hand over one list of positions",
    )
    outside_K = initial_I[(initial_I < 0) | (initial_I >= n)]
    require(
        not len(outside_K),
        f"initial: position {int(outside_K[0]) if len(outside_K) else ''} is outside 0..{n - 1}",
        "positions count the candidates from 0",
    )
    distinct_I: Tensor = initial_I.unique()
    free = n - len(distinct_I)
    require(
        budget <= free,
        f"{budget:,} samples cannot be picked: {free:,} candidates are not in initial",
        "lower the budget, or shorten initial",
    )
    return distinct_I


def budget_of(fraction: Any, k: Any, n: int) -> tuple[int, float]:
    """The number of samples to keep, and its share of n."""
    if fraction is None and k is None:
        raise UsageError("no budget", "give fraction, such as fraction=0.05, or k, the number of samples")
    if fraction is not None and k is not None:
        raise UsageError("both fraction and k are given", "give one of them")
    if k is None:
        return max(1, round(share_of(fraction) * n)), float(fraction)
    require(
        _is(k, int) and 1 <= k <= n,
        f"k must be an integer from 1 to the number of candidates, {n:,}, not {k!r}",
        f"pass a number in that range, such as k={min(n, 100)}; a share is fraction",
    )
    return k, k / n


def share_of(fraction: Any) -> float:
    """The share of the candidates to keep."""
    require(
        _is(fraction, (int, float)) and 0 < fraction <= 1,
        f"fraction must be in (0, 1], not {fraction!r}",
        "pass a share, such as fraction=0.05; a number of samples is k",
    )
    return float(fraction)


def seed_of(seed: Any) -> int:
    """The seed of every random draw."""
    require(
        _is(seed, int) and -(2**63) <= seed < 2**64,
        f"seed must be an integer of 64 bits, not {seed!r}",
        "pass a whole number, such as seed=0",
    )
    return int(seed)


def balanced_of(balanced: Any) -> bool:
    """Whether each class gets a budget of its own."""
    require(isinstance(balanced, bool), f"balanced must be True or False, not {balanced!r}", "pass one of the two")
    return bool(balanced)


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def judges_of(candidates: Candidates, validation: Candidates) -> Candidates:
    """The validation samples with all their outputs in memory."""
    require(
        len(validation) > 0,
        "the validation set is empty",
        "hand over at least one validation sample, or none at all: validation=None",
    )
    devices = candidates.labels_N.device, validation.labels_N.device
    require(
        devices[0] == devices[1],
        f"the candidates are on {devices[0]}, the validation samples on {devices[1]}",
        "move them to one device",
    )
    validation = in_memory(validation.looked_at(logits=True, features=True), "validation")
    shapes = [
        [(o.logits_NC.shape[1], o.features_ND.shape[1]) for o in each.outputs] for each in (candidates, validation)
    ]
    require(
        shapes[0] == shapes[1],
        "validation and candidates must be scored by the same models",
        "score both with the same models, and hand over the same outputs of both",
    )
    return validation
