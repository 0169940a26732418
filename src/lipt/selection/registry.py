"""A selection problem, split into groups with exact budgets, and the registry of algorithms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from lipt.errors import UsageError, did_you_mean
from lipt.selection.auto import AUTO
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.needs import Requirements
from lipt.selection.numerics.blocks import as_slice
from lipt.selection.numerics.maxima import highest
from lipt.selection.ties import lowest_first


@dataclass(frozen=True, kw_only=True)
class Group:
    """Candidates that share one budget: a class if the selection is balanced, else all candidates."""

    label: int | None
    members_M: Tensor
    """Int64 (M,), ascending positions into the candidates."""
    budget: int
    """1 <= budget <= M - I."""
    initial_I: Tensor
    """Int64 (I,), positions in `members_M` of already selected samples, which are not picked again."""

    @cached_property
    def rows(self) -> Tensor | slice:
        """`members_M`; as a slice if they are consecutive."""
        return slice(0, len(self.members_M)) if self.label is None else as_slice(self.members_M)


@dataclass(frozen=True, kw_only=True)
class Task:
    """The input of an algorithm."""

    candidates: Candidates
    validation: Candidates | None
    budget: int
    """Total number of samples to pick, shared by the groups."""
    fraction: float
    """The budget as a share of the candidates."""
    balanced: bool
    initial_I: Tensor
    """Int64 (I,), ascending positions of already selected samples."""
    seed: int
    """Of the draws."""

    @cached_property
    def generator(self) -> torch.Generator:
        """On the CPU, so that draws do not depend on the device."""
        return torch.Generator().manual_seed(self.seed)

    @cached_property
    def groups(self) -> list[Group]:
        """The groups, whose budgets are proportional to their samples not yet selected; without groups of budget 0."""
        labels_N, initial_I = self.candidates.labels_N, self.initial_I
        if not self.balanced:
            everyone_N = torch.arange(len(labels_N), device=labels_N.device)
            return [Group(label=None, members_M=everyone_N, budget=self.budget, initial_I=initial_I)]
        members, free = self.candidates.members, self.candidates.class_sizes
        initial = [initial_I] * len(members)
        if initial_I.numel():
            barred_N = torch.zeros_like(labels_N, dtype=torch.bool)
            barred_N[initial_I] = True
            initial = [barred_N[members_M].nonzero().flatten() for members_M in members]
            free = [size - each.numel() for size, each in zip(free, initial, strict=True)]
        return [
            Group(label=label, members_M=members[label], budget=share, initial_I=initial[label])
            for label, share in enumerate(shares(self.budget, free))
            if share
        ]


@dataclass(frozen=True, kw_only=True)
class Picks:
    """The result of an algorithm; fields as in `Selection`."""

    indices_K: Tensor
    weights_K: Tensor | None = None
    scores_N: Tensor | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """What the algorithm chose for options that were None."""


Algorithm = Callable[..., Picks]


@dataclass(frozen=True, kw_only=True)
class Registered:
    """An algorithm and its requirements."""

    function: Algorithm
    needs: Requirements
    memory: Callable[..., int]
    """Bytes for a problem of a `Size` with these options, besides the outputs and a float32 copy of them."""
    option: str = ""
    """The option whose value can change the requirements."""
    by_value: Mapping[str, Requirements] = field(default_factory=dict)

    def needs_with(self, options: Mapping[str, Any]) -> Requirements:
        """The requirements with these options."""
        value = options.get(self.option)
        return self.by_value.get(value, self.needs) if isinstance(value, str) else self.needs


_REGISTRY: dict[str, Registered] = {}


def register(
    name: str,
    *,
    models: int = 0,
    logits: bool = True,
    features: bool = True,
    trajectory: bool = False,
    scores: bool = False,
    initial: bool = False,
    validation: bool = False,
    passes: int = 0,
    memory: Callable[..., int] = lambda _size, **_options: 0,
    option: str = "",
    by_value: Mapping[str, Requirements] | None = None,
) -> Callable[[Algorithm], Algorithm]:
    """Make `function(task, *, option=default, ...) -> Picks` available under `name`; its keywords are its options.

    Its docstring becomes a row of docs/reference/algorithms.md; CONTRIBUTING.md shows the form. The other arguments are
    its `Requirements`; `logits` and `features` only count if `models` is above 0. `memory` is as in `Registered`, for
    algorithms that hold more than the outputs. `by_value` maps values of the option `option` to other requirements.
    """
    needs = Requirements(
        models=models,
        logits=models > 0 and logits,
        features=models > 0 and features,
        trajectory=trajectory,
        scores=scores,
        initial=initial,
        validation=validation,
        passes=passes,
    )

    def add(function: Algorithm) -> Algorithm:
        _REGISTRY[name] = Registered(
            function=function, needs=needs, memory=memory, option=option, by_value=by_value or {}
        )
        return function

    return add


def names() -> tuple[str, ...]:
    """All registered algorithms, in order of registration."""
    return tuple(_REGISTRY)


def lookup(name: str) -> Registered:
    """The algorithm called `name`.

    Raises:
        UsageError: there is none; the message names the most similar one.
    """
    if not isinstance(name, str) or name not in _REGISTRY:
        raise UsageError(f"unknown selection algorithm {name!r}", did_you_mean(str(name), [AUTO, *sorted(_REGISTRY)]))
    return _REGISTRY[name]


def shares(total: int, sizes: Sequence[int]) -> list[int]:
    """`total` split exactly in proportion to the sizes, by largest remainder; on a tie the first gets more. No share
    exceeds its size, unless the total exceeds the sum of the sizes."""
    whole = sum(sizes)
    parts = [total * size // whole for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda index: -(total * sizes[index] % whole))
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return parts


def require(condition: bool, message: str, remedy: str) -> None:
    """Raise UsageError with this message and remedy unless the condition holds."""
    if not condition:
        raise UsageError(message, remedy)


def require_outputs(candidates: Candidates, algorithm: str, *, logits: bool, features: bool) -> None:
    """Raise UsageError if the candidates lack outputs that the algorithm needs."""
    known: list[tuple[object, object]] = [(each.num_classes, each.num_features) for each in candidates.outputs]
    if candidates.stored is not None:
        known = [(candidates.stored.logits, candidates.stored.features)]
    for index, (has_logits, has_features) in enumerate(known):
        for what, needed, there in (("logits", logits, has_logits), ("features", features, has_features)):
            if needed and not there:
                served = ", ".join(_that_read_only("features" if what == "logits" else "logits"))
                raise UsageError(
                    f"{algorithm} needs the {what} of model {index}",
                    f"hand over the {what}, or name an algorithm that needs none: {served}",
                )


def _that_read_only(output: str) -> list[str]:
    """The algorithms that need either logits or features, and only these, of one model."""
    wanted = (1, output == "logits", output == "features")
    needs = {name: each.needs for name, each in sorted(_REGISTRY.items())}
    return [name for name, each in needs.items() if (each.models, each.logits, each.features) == wanted]


def top(task: Task, scores_N: Tensor) -> Picks:
    """The highest scores of every group; equal scores by lowest index."""
    if not task.balanced:
        return Picks(indices_K=highest(scores_N, task.budget), scores_N=scores_N)
    return per_group(task, lambda group: (highest(scores_N[group.rows], group.budget), None), scores_N)


def stochastic_size(n: int, k: int, epsilon: float) -> int:
    """Candidates per step of the stochastic greedy, (n / k) ln(1 / epsilon) (Mirzasoleiman et al. 2015). Its value is
    expected to reach the share 1 - 1/e - epsilon of the largest one; that of the exact greedy reaches 1 - 1/e.

    Raises:
        UsageError: epsilon outside (0, 1).
    """
    require(
        0 < epsilon < 1,
        f"epsilon must be in (0, 1), not {epsilon}",
        "pass a small number above 0, such as epsilon=0.01",
    )
    return max(1, math.ceil(n / k * math.log(1 / epsilon)))


def per_group(
    task: Task,
    pick: Callable[[Group], tuple[Tensor, Tensor | None]],
    scores_N: Tensor | None = None,
    *,
    compares: Literal["features", "gradients"] | None = None,
) -> Picks:
    """Solve each group separately. `pick` returns positions in `group.members_M` and their weights or None.

    Args:
        compares: what the greedy compares; samples that are equal in it are picked in their order.
    """
    indices, weights = [], []
    for group in task.groups:
        local_K, weights_K = pick(group)
        if compares:
            local_K = lowest_first(
                task.candidates, group.members_M, local_K, gradients=compares == "gradients", barred_I=group.initial_I
            )
        indices.append(local_K if group.label is None else group.members_M.index_select(0, local_K))
        if weights_K is not None:
            weights.append(weights_K)
    return Picks(indices_K=joined(indices), weights_K=joined(weights) if weights else None, scores_N=scores_N)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """One after the other; a single part itself, without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
