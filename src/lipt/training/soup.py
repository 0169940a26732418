"""Merging jigsaws: the greedy interpolation soup of the paper (Ro et al. 2023) and its ablations.

Greedy soups: Wortsman et al. 2022, recipe 1. BatchNorm statistics after averaging: Jordan et al. 2023 (REPAIR).
The functions work on state dicts, and on an `Evaluator` that evaluates them. Data and devices stay outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from lipt.training.evaluator import Evaluator, Judged, Statistics, accuracy, lead
from lipt.training.tensor_files import State

Winner = Literal["soup", "best_single", "theta_star", "uniform"]


@dataclass(frozen=True, kw_only=True)
class MergeStep:
    """One ingredient that was tried. The field names are those of the `merge` artifact."""

    index: int
    accuracy: float
    """Accuracy of the ingredient alone, on the search images that it was evaluated on."""
    alpha: float | None = None
    """Its weight in the best interpolation with the soup so far."""
    kept: bool = False
    """Whether this interpolation became the new soup."""
    batchnorm: str | None = None
    """Running statistics of the interpolations: averaged or recalibrated."""
    accuracy_after: float | None = None
    """Accuracy of the soup after this step."""


@dataclass(kw_only=True)
class Soup:
    """The merged state, and the ingredients in the order in which they were tried."""

    state: State
    chosen: Winner
    """Whether `state` is the soup or, as a fallback, the best jigsaw, theta_* or the average of all."""
    accuracy: float
    """Of `state`, like the next three on the images of the last comparison."""
    theta_star_accuracy: float
    best_single_accuracy: float
    best_single: int
    uniform_accuracy: float
    steps: list[MergeStep] = field(default_factory=list)


def interpolate(a: Mapping[str, Tensor], b: Mapping[str, Tensor], alpha: float) -> State:
    """(1 - alpha) a + alpha b. Integer tensors (`num_batches_tracked`) are copied from `a`.

    So is what is equal in both: an infinity would become NaN.
    """
    return {
        name: tensor.lerp(b[name], alpha).where(tensor != b[name], tensor)
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in a.items()
    }


def uniform(count: int, load: Callable[[int], State]) -> State:
    """The average of ingredients 0..count-1, with one of them in memory at a time."""
    mean = load(0)
    for position in range(1, count):
        mean = interpolate(mean, load(position), 1 / (position + 1))
    return mean


def merge(
    star: State,
    present: list[int],
    load: Callable[[int], State],
    evaluator: Evaluator,
    *,
    method: Literal["greedy_interpolation", "greedy", "uniform", "best_single"],
    search: Literal["coarse_to_fine", "grid"],
    batchnorm: Literal["best", "averaged", "recalibrated"],
    fallback: bool,
) -> Soup:
    """Merge the ingredients `present`: jigsaws, or soups of groups of them. Their order does not matter.

    Args:
        star: theta_*.
        present: indices of the ingredients that arrived, at least one.
        load: returns the state of an ingredient. It is called again when a state is needed later, so that few
            ingredients are in memory.
        search: `coarse_to_fine` evaluates everything with an early stop, `grid` nothing.
        batchnorm: `best` takes the statistics with which the uniform average is better, for all interpolations.
        fallback: theta_* may be the first ingredient; theta_*, the best ingredient or the average of all may replace
            the soup.
    """
    everyone, early = sorted(present), search != "grid"
    singles, best = judge_singles(everyone, load, evaluator, early=early)
    order = sorted(everyone, key=lambda index: (index != best, -lead(singles[index], singles[best]), index))
    single = Judged(load(best), singles[best])
    average, statistics = _average(uniform(len(everyone), lambda i: load(everyone[i])), evaluator, batchnorm)
    theta = Judged(star, singles[best][:0])
    falls_back = fallback and method == "greedy_interpolation"
    if method == "uniform":
        soup, share = average, 1 / len(everyone)
        steps = [MergeStep(index=index, accuracy=accuracy(singles[index]), alpha=share, kept=True) for index in order]
    elif method == "best_single":
        soup = single
        steps = [MergeStep(index=index, accuracy=accuracy(singles[index]), kept=index == best) for index in order]
    else:
        first, rest = single, order[1:]
        steps = [MergeStep(index=best, accuracy=single.accuracy, alpha=1.0, kept=True, accuracy_after=single.accuracy)]
        if falls_back:
            theta = Judged(star, evaluator.judge(star, single.correct_N if early else None))
            if len(theta.correct_N) == evaluator.search and theta.lead(single) >= 0:
                first, rest, steps = theta, order, []
        trial = _Trial(evaluator=evaluator, method=method, search=search, statistics=statistics)
        soup, tried = _greedy(first, rest, singles, load, trial)
        steps += tried
    made: Winner = "soup"
    if soup is theta or (soup is single and method != "best_single"):  # nothing was added to the first ingredient
        made = "theta_star" if soup is theta else "best_single"
    rivals: dict[Winner, Judged] = {"best_single": single, "theta_star": theta, "uniform": average}
    return _last_comparison(made, soup, rivals, evaluator, best=best, steps=steps, may_replace=falls_back)


def _last_comparison(
    made: Winner,
    soup: Judged,
    rivals: Mapping[Winner, Judged],
    evaluator: Evaluator,
    *,
    best: int,
    steps: list[MergeStep],
    may_replace: bool,
) -> Soup:
    """Evaluate the soup and its rivals on the images of the last comparison.

    Args:
        made: what the soup is.
        rivals: the best ingredient, theta_* and the average of all.
        best: index of the best ingredient.
        may_replace: whether a rival with a higher accuracy becomes the result; on a tie the soup does.
    """
    *rated, reached = evaluator.confirmed([*rivals.values(), soup])
    accuracies = dict(zip(rivals, rated, strict=True))
    finalists = [(reached, made, soup)]
    if may_replace:
        finalists += [(accuracies[name], name, rival) for name, rival in rivals.items()]
    reached, chosen, winner = max(finalists, key=lambda finalist: finalist[0])
    return Soup(
        state=winner.state,
        chosen=chosen,
        accuracy=reached,
        theta_star_accuracy=accuracies["theta_star"],
        best_single_accuracy=accuracies["best_single"],
        best_single=best,
        uniform_accuracy=accuracies["uniform"],
        steps=steps,
    )


def judge_singles(
    indices: Sequence[int], load: Callable[[int], State], evaluator: Evaluator, *, early: bool
) -> tuple[dict[int, Tensor], int]:
    """(which search images each ingredient classifies correctly, the index of the best ingredient).

    Args:
        early: stop with an ingredient that is behind the best one so far.
    """
    best = indices[0]
    found = {best: evaluator.judge(load(best))}
    for index in indices[1:]:
        found[index] = evaluator.judge(load(index), found[best] if early else None)
        if len(found[index]) == evaluator.search and lead(found[index], found[best]) > 0:
            best = index
    return found, best


def _average(state: State, evaluator: Evaluator, batchnorm: str) -> tuple[Judged, Statistics]:
    """The uniform average with averaged or recalibrated statistics; `best` tries both and takes averaged on a tie."""
    if batchnorm == "recalibrated":
        fresh = evaluator.recalibrate(state)
        return Judged(fresh, evaluator.judge(fresh)), "recalibrated"
    averaged = Judged(state, evaluator.judge(state))
    if batchnorm == "best":
        fresh = evaluator.recalibrate(state)
        recalibrated = Judged(fresh, evaluator.judge(fresh, averaged.correct_N))
        if recalibrated.lead(averaged) > 0:
            return Judged(fresh, evaluator.extend(fresh, recalibrated.correct_N, evaluator.search)), "recalibrated"
    return averaged, "averaged"


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """How an ingredient is tried."""

    evaluator: Evaluator
    method: str
    search: str
    statistics: Statistics

    def best(self, soup: Judged, ingredient: State, kept: int) -> Judged:
        """The best interpolation of the soup so far, of `kept` ingredients, with one more."""
        share = 1 / (kept + 1)
        if self.method == "greedy":
            return self._best_of([share], soup, ingredient)
        return self.grid(soup, ingredient) if self.search == "grid" else self.coarse_to_fine(soup, ingredient, share)

    def grid(self, soup: Judged, ingredient: State) -> Judged:
        """The best of the paper's alpha = 0, .1, ..., 1. Alpha = 0 is the soup so far, which is already evaluated."""
        return self._best_of([step / 10 for step in range(1, 11)], soup, ingredient)

    def coarse_to_fine(self, soup: Judged, ingredient: State, share: float) -> Judged:
        """The best of alpha = `share`, half of it and twice it: 1 or 3 alphas instead of 10.

        The others are skipped if the first is behind the soup: if an equal share of the ingredient makes the soup
        worse, another share seldom makes it better.
        """
        first = self._best_of([share], soup, ingredient)
        if first.lead(soup) < 0:
            return first
        others = self._best_of([share / 2, min(2 * share, 0.75)], soup, ingredient)
        return max(first, others, key=lambda tried: _rank(tried, soup))

    def _best_of(self, alphas: Sequence[float], soup: Judged, ingredient: State) -> Judged:
        # The first on a tie. The generator keeps two states in memory, not all.
        return max((self._judged(soup, ingredient, alpha) for alpha in alphas), key=lambda tried: _rank(tried, soup))

    def _judged(self, soup: Judged, ingredient: State, alpha: float) -> Judged:
        state = interpolate(soup.state, ingredient, alpha)
        if self.statistics == "recalibrated":
            state = self.evaluator.recalibrate(state)
        return Judged(state, self.evaluator.judge(state, None if self.search == "grid" else soup.correct_N), alpha)


def _rank(tried: Judged, soup: Judged) -> tuple[int, float]:
    """Models that were not stopped early rank higher."""
    return len(tried.correct_N), tried.lead(soup)


def _greedy(
    first: Judged, order: Sequence[int], singles: dict[int, Tensor], load: Callable[[int], State], trial: _Trial
) -> tuple[Judged, list[MergeStep]]:
    """Try the ingredients in this order, and keep each interpolation that raises the accuracy of the soup.

    `greedy` (Wortsman et al.) tries only the running average, alpha = 1 / (kept + 1).
    """
    soup, kept, steps = first, 1, []
    for index in order:
        found = trial.best(soup, load(index), kept)
        better = len(found.correct_N) == trial.evaluator.search and found.lead(soup) > 0
        if better:
            soup, kept = found, kept + 1
        steps.append(
            MergeStep(
                index=index,
                accuracy=accuracy(singles[index]),
                alpha=found.alpha,
                kept=better,
                batchnorm=trial.statistics,
                accuracy_after=soup.accuracy,
            )
        )
    return soup, steps
