"""Merging jigsaws: the greedy interpolation soup of the paper (Ro et al. 2023) and its ablations.

Greedy soups: Wortsman et al. 2022, recipe 1. BatchNorm statistics after averaging: Jordan et al. 2023 (REPAIR).
The functions work on state dicts, and on an `Evaluator` that measures their accuracy. Data and devices stay outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torch import Tensor

from lipt.training.tensor_files import State

BatchNorm = Literal["best", "averaged", "recalibrated"]
Winner = Literal["soup", "best_single", "theta_star"]


@dataclass(frozen=True)
class Evaluator:
    """Measures how good merged weights are."""

    search: Callable[[State], float]
    """Validation accuracy during the search; it may use a part of the validation images."""
    confirm: Callable[[Sequence[State]], list[float]]
    """Accuracy of each state on all validation images; called once, because it may be expensive."""
    recalibrate: Callable[[State], State]
    """The same weights, with running statistics from a forward pass over training images."""


@dataclass(frozen=True, kw_only=True)
class MergeStep:
    """One ingredient that was tried. The field names are those of the `merge` artifact."""

    index: int
    accuracy: float
    """Accuracy of the ingredient alone."""
    alpha: float | None = None
    """Its weight in the best interpolation with the soup so far."""
    kept: bool = False
    """Whether this interpolation became the new soup."""
    batchnorm: str | None = None
    """Running statistics of this interpolation: averaged or recalibrated."""
    accuracy_after: float | None = None
    """Accuracy of the soup after this step."""


@dataclass(kw_only=True)
class Soup:
    """The merged state, and the ingredients in the order in which they were tried."""

    state: State
    chosen: Winner
    """Whether `state` is the soup or, as a fallback, the best jigsaw or theta_*."""
    accuracy: float
    """Of `state` on all validation images; up to 2 points too high, because `state` was chosen on these images."""
    theta_star_accuracy: float
    best_single_accuracy: float
    best_single: int
    uniform_accuracy: float
    steps: list[MergeStep] = field(default_factory=list)


def interpolate(a: Mapping[str, Tensor], b: Mapping[str, Tensor], alpha: float) -> State:
    """(1 - alpha) a + alpha b. Integer tensors (`num_batches_tracked`) are copied from `a`."""
    return {
        name: tensor.lerp(b[name], alpha) if tensor.is_floating_point() else tensor.clone()
        for name, tensor in a.items()
    }


def uniform(count: int, load: Callable[[int], State]) -> State:
    """The average of ingredients 0..count-1, with one of them in memory at a time."""
    mean = load(0)
    for position in range(1, count):
        mean = interpolate(mean, load(position), 1 / (position + 1))
    return mean


class Interpolation(NamedTuple):
    """The soup so far, interpolated with one ingredient, and its accuracy in the search."""

    accuracy: float
    state: State
    alpha: float
    batchnorm: Literal["averaged", "recalibrated"]


def _evaluate(state: State, alpha: float, evaluator: Evaluator, batchnorm: BatchNorm) -> Interpolation:
    """`state` with averaged or recalibrated statistics; `best` tries both and takes averaged ones on a tie."""
    options: list[Interpolation] = []
    if batchnorm != "recalibrated":
        options.append(Interpolation(evaluator.search(state), state, alpha, "averaged"))
    if batchnorm != "averaged":
        fresh = evaluator.recalibrate(state)
        options.append(Interpolation(evaluator.search(fresh), fresh, alpha, "recalibrated"))
    return max(options, key=_accuracy)


def merge(
    star: State,
    present: list[int],
    load: Callable[[int], State],
    evaluator: Evaluator,
    *,
    method: Literal["greedy_interpolation", "greedy", "uniform", "best_single"],
    search: Literal["coarse_to_fine", "grid"],
    batchnorm: BatchNorm,
    fallback: bool,
) -> Soup:
    """Merge the ingredients `present`: jigsaws, or soups of groups of them. Their order does not matter.

    Args:
        star: theta_*.
        present: indices of the ingredients that arrived, at least one.
        load: returns the state of an ingredient. It is called again whenever a state is needed, so that only one
            ingredient is in memory.
        fallback: theta_* may be the first ingredient, and theta_* or the best ingredient may replace the soup.
    """
    singles = {index: evaluator.search(load(index)) for index in present}
    order = sorted(present, key=lambda index: (-singles[index], index))
    best = order[0]
    everyone = sorted(present)
    share = 1 / len(everyone)
    average = _evaluate(uniform(len(everyone), lambda i: load(everyone[i])), share, evaluator, batchnorm).state
    if method == "uniform":
        state = average
        steps = [MergeStep(index=index, accuracy=singles[index], alpha=share, kept=True) for index in order]
    elif method == "best_single":
        state = load(best)
        steps = [MergeStep(index=index, accuracy=singles[index], kept=index == best) for index in order]
    else:
        state, steps = _greedy(star, order, singles, load, evaluator, method, search, batchnorm, fallback)
    single = load(best)
    single_accuracy, star_accuracy, average_accuracy, accuracy = evaluator.confirm([single, star, average, state])
    finalists: list[tuple[float, Winner, State]] = [(accuracy, "soup", state)]
    if method == "greedy_interpolation" and fallback:
        finalists += [(single_accuracy, "best_single", single), (star_accuracy, "theta_star", star)]
    accuracy, chosen, state = max(finalists, key=lambda finalist: finalist[0])
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
    evaluator: Evaluator,
    method: str,
    search: str,
    batchnorm: BatchNorm,
    fallback: bool,
) -> tuple[State, list[MergeStep]]:
    """Try the ingredients by falling accuracy, and keep each interpolation that raises the accuracy of the soup.

    `greedy` (Wortsman et al.) tries only the running average, alpha = 1 / (kept + 1).
    """
    interpolated = method == "greedy_interpolation"
    star_search = evaluator.search(star) if interpolated and fallback else -1.0
    if star_search >= singles[order[0]]:
        soup, current, steps, rest = star, star_search, [], order
    else:
        soup, current, rest = load(order[0]), singles[order[0]], order[1:]
        steps = [MergeStep(index=order[0], accuracy=current, alpha=1.0, kept=True, accuracy_after=current)]
    kept = 1
    for index in rest:
        ingredient = load(index)
        if not interpolated:
            found = _best_of([1 / (kept + 1)], soup, ingredient, evaluator, batchnorm)
        else:
            found = (grid if search == "grid" else coarse_to_fine)(
                soup, ingredient, evaluator, batchnorm, current=current
            )
        better = found.accuracy > current
        if better:
            soup, current, kept = found.state, found.accuracy, kept + 1
        steps.append(
            MergeStep(
                index=index,
                accuracy=singles[index],
                alpha=found.alpha,
                kept=better,
                batchnorm=found.batchnorm,
                accuracy_after=current,
            )
        )
    return soup, steps


def grid(
    soup: State, ingredient: State, evaluator: Evaluator, batchnorm: BatchNorm, *, current: float
) -> Interpolation:
    """The best of the paper's alpha = 0, .1, ..., 1. Alpha = 0 is the soup so far, which is already evaluated."""
    return _best_of([step / 10 for step in range(1, 11)], soup, ingredient, evaluator, batchnorm)


def coarse_to_fine(
    soup: State, ingredient: State, evaluator: Evaluator, batchnorm: BatchNorm, *, current: float
) -> Interpolation:
    """The best of alpha = 1/2 and 1/4, then of two neighbours of the better one: 2 to 4 alphas instead of 10.

    The first two use averaged statistics, unless `recalibrated` is asked for. With `best`, the better one is evaluated
    again with recalibrated statistics, and the neighbours use the better statistics. If the result is more than two
    points of accuracy below the soup, the neighbours are skipped: neighbouring alphas differ by less.
    """
    best = _best_of([0.5, 0.25], soup, ingredient, evaluator, "averaged" if batchnorm == "best" else batchnorm)
    if batchnorm == "best":
        best = max(best, _best_of([best.alpha], soup, ingredient, evaluator, "recalibrated"), key=_accuracy)
    if best.accuracy < current - 0.02:
        return best
    neighbours = [0.375, 0.75] if best.alpha == 0.5 else [0.375, 0.125]
    return max(best, _best_of(neighbours, soup, ingredient, evaluator, best.batchnorm), key=_accuracy)


def _accuracy(interpolation: Interpolation) -> float:
    return interpolation.accuracy


def _best_of(
    alphas: list[float], soup: State, ingredient: State, evaluator: Evaluator, batchnorm: BatchNorm
) -> Interpolation:
    tried = (_evaluate(interpolate(soup, ingredient, alpha), alpha, evaluator, batchnorm) for alpha in alphas)
    return max(tried, key=_accuracy)  # the first on a tie; the generator keeps two states in memory, not all
