"""Merging jigsaws: the greedy interpolation soup (method.md section 3) and its ablations.

Greedy soups: Wortsman et al. 2022, recipe 1. BatchNorm statistics after averaging: Jordan et al. 2023 (REPAIR).
All functions work on state dicts and on an `Arena` that can judge one, so they do not know about data or devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from lipt.training.tensor_files import State

BatchNorm = Literal["best", "averaged", "recalibrated"]
Outcome = Literal["soup", "best_single", "theta_star"]


@dataclass(frozen=True)
class Arena:
    """Where candidates are judged."""

    search: Callable[[State], float]
    """Validation accuracy used while searching (may look at part of the validation set)."""
    confirm: Callable[[Sequence[State]], list[float]]
    """Validation accuracy of each on all of it; called once, since looking at all of it may be expensive."""
    recalibrate: Callable[[State], State]
    """The same weights with running statistics from a forward pass over training images."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What happened to one ingredient."""

    index: int
    accuracy: float
    alpha: float | None = None
    kept: bool = False
    batchnorm: str | None = None
    accuracy_after: float | None = None


@dataclass(kw_only=True)
class Soup:
    """The merged state and its history, in the order in which ingredients were tried."""

    state: State
    chosen: Outcome
    """What `state` is; the other two only as fallback."""
    accuracy: float
    """Of `state`, on all validation images; optimistic by up to 2 points, since it was chosen on them."""
    theta_star_accuracy: float
    best_single_accuracy: float
    best_single: int
    uniform_accuracy: float
    steps: list[Step] = field(default_factory=list)


def interpolate(a: Mapping[str, Tensor], b: Mapping[str, Tensor], alpha: float) -> State:
    """(1 - alpha) a + alpha b; integer tensors (`num_batches_tracked`) are copied from `a`."""
    return {
        name: tensor.lerp(b[name], alpha) if tensor.is_floating_point() else tensor.clone()
        for name, tensor in a.items()
    }


def uniform(count: int, load: Callable[[int], State]) -> State:
    """Plain average of ingredients 0..count-1, one resident at a time."""
    mean = load(0)
    for position in range(1, count):
        mean = interpolate(mean, load(position), 1 / (position + 1))
    return mean


def with_batchnorm(
    state: State, arena: Arena, policy: BatchNorm, judge: Callable[[State], float]
) -> tuple[float, State, str]:
    """Judge `state` with averaged and/or recalibrated statistics; (accuracy, state, policy that won)."""
    options: list[tuple[float, State, str]] = []
    if policy != "recalibrated":
        options.append((judge(state), state, "averaged"))
    if policy != "averaged":
        fresh = arena.recalibrate(state)
        options.append((judge(fresh), fresh, "recalibrated"))
    return max(options, key=lambda option: option[0])  # the first, averaged, on a tie


def merge(
    star: State,
    present: list[int],
    load: Callable[[int], State],
    arena: Arena,
    *,
    method: Literal["greedy_interpolation", "greedy", "uniform", "best_single"],
    search: Literal["coarse_to_fine", "grid"],
    batchnorm: BatchNorm,
    fallback: bool,
) -> Soup:
    """Merge the ingredients `present`, jigsaws or soups of some; the order in which they arrived does not matter.

    Args:
        star: theta_*.
        present: indices of the ingredients that arrived, at least one.
        load: state of the ingredient with that index; called again rather than kept, one ingredient is resident.
        fallback: theta_* takes part as the first ingredient and as the outcome.
    """
    singles = {index: arena.search(load(index)) for index in present}
    order = sorted(present, key=lambda index: (-singles[index], index))
    best = order[0]
    everyone = sorted(present)
    average = with_batchnorm(
        uniform(len(everyone), lambda position: load(everyone[position])), arena, batchnorm, arena.search
    )[1]
    if method == "uniform":
        state, steps = (
            average,
            [Step(index=index, accuracy=singles[index], alpha=1 / len(order), kept=True) for index in order],
        )
    elif method == "best_single":
        state, steps = load(best), [Step(index=index, accuracy=singles[index], kept=index == best) for index in order]
    else:
        state, steps = _greedy(star, order, singles, load, arena, method, search, batchnorm, fallback)
    single = load(best)
    single_accuracy, star_accuracy, average_accuracy, accuracy = arena.confirm([single, star, average, state])
    outcomes: list[tuple[float, Outcome, State]] = [(accuracy, "soup", state)]
    if method == "greedy_interpolation" and fallback:
        outcomes += [(single_accuracy, "best_single", single), (star_accuracy, "theta_star", star)]
    accuracy, chosen, state = max(outcomes, key=lambda outcome: outcome[0])
    return Soup(
        state=state,
        chosen=chosen,
        accuracy=accuracy,
        theta_star_accuracy=star_accuracy,
        best_single_accuracy=single_accuracy,
        best_single=best,
        uniform_accuracy=average_accuracy,
        steps=steps,
    )


def _greedy(
    star: State,
    order: list[int],
    singles: dict[int, float],
    load: Callable[[int], State],
    arena: Arena,
    method: str,
    search: str,
    batchnorm: BatchNorm,
    fallback: bool,
) -> tuple[State, list[Step]]:
    """Section 3, points 2 and 3. `greedy` (Wortsman et al.) tries only the running average, alpha = 1 / (kept + 1)."""
    interpolated = method == "greedy_interpolation"
    star_search = arena.search(star) if interpolated and fallback else -1.0
    if star_search >= singles[order[0]]:
        soup, current, steps, rest = star, star_search, [], order
    else:
        soup, current, rest = load(order[0]), singles[order[0]], order[1:]
        steps = [Step(index=order[0], accuracy=current, alpha=1.0, kept=True, accuracy_after=current)]
    kept = 1
    for index in rest:
        ingredient = load(index)
        if not interpolated:
            found = _best_of([1 / (kept + 1)], soup, ingredient, arena, batchnorm)
        else:
            found = (grid if search == "grid" else coarse_to_fine)(soup, ingredient, arena, batchnorm, current=current)
        accuracy, state, alpha, norm = found
        better = accuracy > current
        if better:
            soup, current, kept = state, accuracy, kept + 1
        steps.append(
            Step(index=index, accuracy=singles[index], alpha=alpha, kept=better, batchnorm=norm, accuracy_after=current)
        )
    return soup, steps


#: (accuracy, state, alpha, BatchNorm used) of the best candidate of one ingredient.
Found = tuple[float, State, float, str]


def grid(soup: State, ingredient: State, arena: Arena, batchnorm: BatchNorm, *, current: float) -> Found:
    """The paper's alpha = 0, .1, ..., 1; alpha = 0 is the soup itself and needs no evaluation."""
    return _best_of([step / 10 for step in range(1, 11)], soup, ingredient, arena, batchnorm)


def coarse_to_fine(soup: State, ingredient: State, arena: Arena, batchnorm: BatchNorm, *, current: float) -> Found:
    """1/2 and 1/4, then up to two neighbours: 2 to 4 alphas instead of 10, and one recalibration.

    The coarse points are judged with averaged statistics (unless `recalibrated` is asked for); under `best` the winner
    is judged again with recalibrated ones and the fine points use whichever won. An ingredient that is then more than
    two points of accuracy behind the soup is given up: neighbouring alphas differ by less.
    """
    best = _best_of([0.5, 0.25], soup, ingredient, arena, "averaged" if batchnorm == "best" else batchnorm)
    if batchnorm == "best":
        best = max(best, _best_of([best[2]], soup, ingredient, arena, "recalibrated"), key=_accuracy)
    if best[0] < current - 0.02:
        return best
    mode: BatchNorm = "recalibrated" if best[3] == "recalibrated" else "averaged"
    neighbours = [0.375, 0.75] if best[2] == 0.5 else [0.375, 0.125]
    return max(best, _best_of(neighbours, soup, ingredient, arena, mode), key=_accuracy)


def _accuracy(found: Found) -> float:
    return found[0]


def _best_of(alphas: list[float], soup: State, ingredient: State, arena: Arena, batchnorm: BatchNorm) -> Found:
    best: Found | None = None
    for alpha in alphas:
        accuracy, state, norm = with_batchnorm(interpolate(soup, ingredient, alpha), arena, batchnorm, arena.search)
        if best is None or accuracy > best[0]:
            best = (accuracy, state, alpha, norm)
    assert best is not None
    return best
