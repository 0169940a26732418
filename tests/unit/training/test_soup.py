"""The merge against naive references. Models are vectors here, validation accuracy is a known function of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from lipt.training.soup import Evaluator, Soup, coarse_to_fine, grid, interpolate, merge, uniform
from lipt.training.tensor_files import State

TARGET = torch.tensor([1.0, -2.0, 0.5])


def state(*weights: float, mean: float = 0.0) -> State:
    return {
        "weight": torch.tensor(weights, dtype=torch.float32),
        "norm.running_mean": torch.tensor([mean]),
        "norm.num_batches_tracked": torch.tensor(7),
    }


def closeness(candidate: State) -> float:
    """Plays validation accuracy: 1 at TARGET, falling with distance and with a wrong BatchNorm statistic."""
    return float(1 / (1 + (candidate["weight"] - TARGET).norm() + candidate["norm.running_mean"].abs().sum()))


def each_closeness(candidates: Sequence[State]) -> list[float]:
    return [closeness(candidate) for candidate in candidates]


def evaluator(recalibrate: Callable[[State], State] = dict) -> Evaluator:
    return Evaluator(search=closeness, confirm=each_closeness, recalibrate=recalibrate)


def make_ingredients(count: int = 6, seed: int = 0) -> dict[int, State]:
    rng = torch.Generator().manual_seed(seed)
    return {index: state(*(TARGET + torch.randn(3, generator=rng)).tolist()) for index in range(count)}


def run(
    ingredients: dict[int, State],
    star: State,
    present: list[int] | None = None,
    *,
    evaluator_: Evaluator | None = None,
    **options: object,
) -> Soup:
    settings: dict[str, object] = {
        "method": "greedy_interpolation",
        "search": "grid",
        "batchnorm": "averaged",
        "fallback": False,
    }
    chosen = settings | options
    return merge(
        star,
        list(ingredients) if present is None else present,
        ingredients.__getitem__,
        evaluator_ or evaluator(),
        **chosen,
    )  # type: ignore[arg-type]


def naive_greedy_interpolation(ingredients: dict[int, State]) -> tuple[Tensor, list[tuple[int, float, bool]]]:
    """The greedy interpolation soup of Ro et al., ICML 2023, straight from the text, on plain weights."""
    order = sorted(ingredients, key=lambda index: closeness(ingredients[index]), reverse=True)
    soup = ingredients[order[0]]["weight"]
    history = [(order[0], 1.0, True)]
    for index in order[1:]:
        candidates = [(1 - step / 10) * soup + step / 10 * ingredients[index]["weight"] for step in range(11)]
        scores = [closeness(state(*candidate.tolist())) for candidate in candidates]
        best = max(range(11), key=scores.__getitem__)
        better = scores[best] > closeness(state(*soup.tolist())) + 1e-9
        if better:
            soup = candidates[best]
        history.append((index, best / 10, better))
    return soup, history


@pytest.mark.parametrize("seed", range(5))
def test_grid_equals_the_naive_loop(seed: int) -> None:
    ingredients = make_ingredients(seed=seed)
    soup = run(ingredients, state(9, 9, 9))
    weights, history = naive_greedy_interpolation(ingredients)
    torch.testing.assert_close(soup.state["weight"], weights)
    kept = [(step.index, step.alpha, step.kept) for step in soup.steps if step.kept]
    assert [(i, pytest.approx(a), k) for i, a, k in history if k] == kept


@pytest.mark.parametrize("method", ["greedy_interpolation", "greedy", "uniform", "best_single"])
def test_order_of_arrival_does_not_matter(method: str) -> None:
    ingredients = make_ingredients()
    first = run(ingredients, state(0, 0, 0), method=method)
    shuffled = list(ingredients)
    random.Random(3).shuffle(shuffled)
    again = run(ingredients, state(0, 0, 0), present=shuffled, method=method)
    assert torch.equal(first.state["weight"], again.state["weight"])
    assert first.steps == again.steps


def test_never_worse_than_the_best_ingredient_and_history_rises() -> None:
    soup = run(make_ingredients(seed=4), state(0, 0, 0))
    after = [step.accuracy_after for step in soup.steps if step.accuracy_after is not None]
    assert after == sorted(after)
    assert soup.accuracy >= soup.best_single_accuracy


def test_an_ingredient_that_does_not_help_is_discarded() -> None:
    good = state(*TARGET.tolist())
    soup = run({0: good, 1: state(5, 5, 5)}, state(0, 0, 0))
    assert [step.kept for step in soup.steps] == [True, False]
    assert torch.equal(soup.state["weight"], good["weight"])


def test_equal_is_not_better() -> None:
    same = state(1, 1, 1)
    soup = run({0: same, 1: {name: tensor.clone() for name, tensor in same.items()}}, state(0, 0, 0))
    assert [step.kept for step in soup.steps] == [True, False]


def test_theta_star_is_the_fallback() -> None:
    star = state(*TARGET.tolist())
    with_fallback = run(make_ingredients(), star, fallback=True)
    assert torch.equal(with_fallback.state["weight"], TARGET)
    assert run(make_ingredients(), star, fallback=False).accuracy < 1


def test_pruned_zeros_take_part_and_counters_do_not() -> None:
    merged = interpolate(
        {"w": torch.tensor([0.0, 2.0]), "n": torch.tensor(3)},
        {"w": torch.tensor([4.0, 0.0]), "n": torch.tensor(9)},
        0.5,
    )
    assert torch.equal(merged["w"], torch.tensor([2.0, 1.0]))
    assert int(merged["n"]) == 3
    assert merged["n"].dtype == torch.int64


def test_uniform_is_the_mean() -> None:
    ingredients = make_ingredients(5)
    expected = torch.stack([part["weight"] for part in ingredients.values()]).mean(0)
    torch.testing.assert_close(uniform(5, ingredients.__getitem__)["weight"], expected)


def test_batchnorm_is_chosen_on_validation() -> None:
    off = {0: state(1, -2, 0.4, mean=3.0), 1: state(1, -2, 0.6, mean=3.0)}

    def recalibrate(candidate: State) -> State:
        return candidate | {"norm.running_mean": torch.zeros(1)}

    best = run(off, state(0, 0, 0), evaluator_=evaluator(recalibrate), batchnorm="best")
    averaged = run(off, state(0, 0, 0), evaluator_=evaluator(recalibrate), batchnorm="averaged")
    assert best.steps[1].batchnorm == "recalibrated"
    assert best.accuracy > averaged.accuracy
    worse = run(
        off,
        state(0, 0, 0),
        evaluator_=evaluator(lambda candidate: candidate | {"norm.running_mean": torch.full((1,), 50.0)}),
        batchnorm="best",
    )
    assert all(step.batchnorm != "recalibrated" for step in worse.steps)


def test_coarse_to_fine_needs_fewer_evaluations_for_about_the_same_alpha() -> None:
    soup, ingredient = state(1, -2, 0), state(1, -2, 1.6)  # the optimum lies at alpha = .3125
    calls = 0

    def counted(candidate: State) -> float:
        nonlocal calls
        calls += 1
        return closeness(candidate)

    counting = Evaluator(search=counted, confirm=each_closeness, recalibrate=dict)
    full = grid(soup, ingredient, counting, "averaged", current=0.0)
    grid_calls, calls = calls, 0
    quick = coarse_to_fine(soup, ingredient, counting, "averaged", current=0.0)
    assert (grid_calls, calls) == (10, 4)
    assert quick[0] >= full[0] - 0.1
    assert abs(quick[2] - 0.3125) <= 0.0625
    calls = 0
    coarse_to_fine(soup, ingredient, counting, "averaged", current=1.0)
    assert calls == 2  # too far behind: given up after the coarse points


def test_merging_one_ingredient_is_that_ingredient() -> None:
    ingredients = make_ingredients(1)
    assert torch.equal(run(ingredients, state(0, 0, 0)).state["weight"], ingredients[0]["weight"])
