"""The merge against naive references. Models are vectors here; which images they classify correctly is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from lipt.training.evaluator import Evaluator, Judged, looks
from lipt.training.soup import Soup, interpolate, merge, uniform
from lipt.training.tensor_files import State

TARGET = torch.tensor([1.0, -2.0, 0.5])


def state(*weights: float, mean: float = 0.0) -> State:
    return {
        "weight": torch.tensor(weights, dtype=torch.float32),
        "norm.running_mean": torch.tensor([mean]),
        "norm.num_batches_tracked": torch.tensor(7),
    }


def closeness(candidate: State) -> float:
    """1 at TARGET, falling with distance and with a wrong BatchNorm statistic."""
    return float(1 / (1 + (candidate["weight"] - TARGET).norm() + candidate["norm.running_mean"].abs().sum()))


#: Models that are closer than this classify the image correctly. Any window of the images holds all difficulties.
DIFFICULTY = torch.arange(40_000, dtype=torch.float64).mul(0.6180339887).remainder(1)


def correct(candidate: State, start: int, stop: int) -> Tensor:
    return closeness(candidate) > DIFFICULTY[start:stop]


def accuracy(candidate: State, images: int = 20_000) -> float:
    return float(correct(candidate, 0, images).double().mean())


@dataclass
class Seen:
    """Counts the images that are evaluated."""

    images: int = 0

    def correct(self, candidates: Sequence[State], start: int, stop: int) -> list[Tensor]:
        self.images += len(candidates) * (stop - start)
        return [correct(candidate, start, stop) for candidate in candidates]

    def evaluator(
        self,
        search: int = 20_000,
        confirm: range = range(20_000),
        recalibrate: Callable[[State], State] = dict,
    ) -> Evaluator:
        return Evaluator(correct=self.correct, recalibrate=recalibrate, search=search, confirm=confirm)


def evaluator(recalibrate: Callable[[State], State] = dict) -> Evaluator:
    return Seen().evaluator(recalibrate=recalibrate)


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
    order = sorted(ingredients, key=lambda index: accuracy(ingredients[index]), reverse=True)
    soup = ingredients[order[0]]["weight"]
    history = [(order[0], 1.0, True)]
    for index in order[1:]:
        candidates = [(1 - step / 10) * soup + step / 10 * ingredients[index]["weight"] for step in range(11)]
        scores = [accuracy(state(*candidate.tolist())) for candidate in candidates]
        best = max(range(11), key=scores.__getitem__)
        better = scores[best] > accuracy(state(*soup.tolist()))
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
    assert soup.accuracy == accuracy(soup.state)


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


def test_theta_star_comes_first_if_it_is_as_good_as_the_best_ingredient() -> None:
    """Both are equally far from TARGET, which lies half-way between them."""
    soup = run({0: state(1, -2, 1.5)}, state(1, -2, -0.5), fallback=True)
    assert soup.theta_star_accuracy == soup.best_single_accuracy
    assert soup.chosen == "soup"
    assert torch.equal(soup.state["weight"], TARGET)


def test_pruned_zeros_take_part_and_counters_do_not() -> None:
    merged = interpolate(
        {"w": torch.tensor([0.0, 2.0]), "n": torch.tensor(3)},
        {"w": torch.tensor([4.0, 0.0]), "n": torch.tensor(9)},
        0.5,
    )
    assert torch.equal(merged["w"], torch.tensor([2.0, 1.0]))
    assert int(merged["n"]) == 3
    assert merged["n"].dtype == torch.int64


def test_infinities_that_are_equal_stay() -> None:
    """A mask of attention is a buffer; its average with itself would be NaN."""
    mask = {"mask": torch.full((3, 3), -torch.inf).triu(1)}
    assert torch.equal(uniform(3, [mask, mask, mask].__getitem__)["mask"], mask["mask"])


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


class Patient(Evaluator):
    """The naive reference: evaluates everything on all search images, and again at the end."""

    def judge(self, state: State, rival_N: Tensor | None = None) -> Tensor:
        return self.correct([state], 0, self.search)[0]

    def confirmed(self, models: Sequence[Judged]) -> list[float]:
        found = (self.correct([model.state], self.confirm.start, self.confirm.stop)[0] for model in models)
        return [float(correct_N.double().mean()) for correct_N in found]


@pytest.mark.parametrize("confirm", [range(1000), range(1500), range(1000, 3000)], ids=["same", "more", "other"])
@pytest.mark.parametrize("method", ["greedy_interpolation", "greedy", "uniform", "best_single"])
@pytest.mark.parametrize("seed", range(3))
def test_an_early_stop_and_no_second_evaluation_change_no_clear_case(seed: int, method: str, confirm: range) -> None:
    """Nearer models are correct wherever farther ones are, so nobody is stopped who would have won."""
    ingredients, options = make_ingredients(8, seed), {"method": method, "batchnorm": "best", "fallback": True}
    counts, soups = {}, {}
    for search in ("coarse_to_fine", "grid"):
        for kind in (Evaluator, Patient):
            seen = Seen()
            made = seen.evaluator(search=1000, confirm=confirm)
            judge = kind(correct=made.correct, recalibrate=made.recalibrate, search=1000, confirm=confirm)
            soups[kind] = run(ingredients, state(0, 0, 0), evaluator_=judge, search=search, **options)
            counts[kind] = seen.images
        fast, naive = soups[Evaluator], soups[Patient]
        assert torch.equal(fast.state["weight"], naive.state["weight"])
        assert [replace(step, accuracy=0) for step in fast.steps] == [replace(step, accuracy=0) for step in naive.steps]
        assert (fast.accuracy, fast.chosen, fast.uniform_accuracy, fast.theta_star_accuracy) == (
            naive.accuracy,
            naive.chosen,
            naive.uniform_accuracy,
            naive.theta_star_accuracy,
        )
        assert counts[Patient] - counts[Evaluator] >= (1000 if search != "grid" else 0 if confirm.start else 3000)


def test_the_search_gives_up_what_is_behind_after_256_images() -> None:
    seen = Seen()
    judge = seen.evaluator(search=1000)
    rival_N = judge.judge(state(1, -2, 0.6))
    assert looks(1000) == [256, 512, 1000]
    assert looks(256) == [256]
    assert (len(judge.judge(state(1, -2, 0.601), rival_N)), seen.images) == (512, 1000 + 512)  # behind by 1 of 512
    assert len(judge.judge(state(5, 5, 5), rival_N)) == 256
    assert len(judge.judge(state(1, -2, 0.6), rival_N)) == 1000  # level is not behind
    assert len(judge.judge(state(5, 5, 5))) == 1000  # no rival


def test_the_last_comparison_evaluates_nothing_twice() -> None:
    seen = Seen()
    near, far = state(1, -2, 0.6), state(5, 5, 5)
    judged = [Judged(near, correct(near, 0, 1000)), Judged(far, correct(far, 0, 256))]
    expected = [accuracy(near, 1000), accuracy(far, 1000), accuracy(near, 1000)]
    assert seen.evaluator(search=1000, confirm=range(1000)).confirmed([*judged, judged[0]]) == expected
    assert seen.images == 1000 - 256
    seen.images = 0
    other = seen.evaluator(search=1000, confirm=range(1000, 3000)).confirmed([*judged, judged[0]])
    assert other == [float(correct(found, 1000, 3000).double().mean()) for found in (near, far, near)]
    assert seen.images == 2 * 2000


@pytest.mark.parametrize(("fallback", "name"), [(True, "theta_star"), (False, "best_single")])
def test_a_soup_to_which_nothing_was_added_has_the_name_of_its_ingredient(fallback: bool, name: str) -> None:
    ingredients = {0: state(1, -2, 5), 1: state(1, -2, -9)}
    star = state(1, -2, 0.5) if fallback else state(9, 9, 9)

    def no_better(candidates: Sequence[State], start: int, stop: int) -> list[Tensor]:
        """Only the ingredients themselves are right."""
        known = [float(each["weight"][2]) for each in (star, *ingredients.values())]
        share = [1.0 if fallback else 0.1, 0.5, 0.4]
        right = [share[known.index(at)] if (at := float(found["weight"][2])) in known else 0 for found in candidates]
        return [torch.arange(start, stop) < 100 * each for each in right]

    judge = Evaluator(correct=no_better, recalibrate=dict, search=100, confirm=range(100))
    soup = run(ingredients, star, evaluator_=judge, fallback=fallback)
    assert soup.chosen == name
    assert soup.state is (star if fallback else ingredients[0])


def test_the_average_of_all_replaces_a_worse_soup() -> None:
    """Here the search sees none of the images that show that the average is better."""
    ingredients = {0: state(1, -2, 0.5 - 3), 1: state(1, -2, 0.5 + 3)}

    def blind(candidates: Sequence[State], start: int, stop: int) -> list[Tensor]:
        return [correct(found, start, stop) | torch.full((stop - start,), start == 0) for found in candidates]

    judge = Evaluator(correct=blind, recalibrate=dict, search=100, confirm=range(100, 1000))
    soups = {
        fallback: run(ingredients, state(9, 9, 9), evaluator_=judge, fallback=fallback) for fallback in (True, False)
    }
    assert (soups[True].chosen, soups[False].chosen) == ("uniform", "best_single")
    assert torch.equal(soups[True].state["weight"], TARGET)
    assert soups[True].accuracy == soups[True].uniform_accuracy > soups[False].accuracy


def test_coarse_to_fine_needs_fewer_evaluations_for_about_the_same_alpha() -> None:
    two = {0: state(1, -2, 0), 1: state(1, -2, 1.6)}  # the optimum lies at alpha = .3125
    found, images = {}, {}
    for search in ("coarse_to_fine", "grid"):
        seen = Seen()
        soup = run(two, state(9, 9, 9), evaluator_=seen.evaluator(search=1000, confirm=range(1000)), search=search)
        found[search], images[search] = soup.steps[1].alpha, seen.images
    assert found["grid"] == pytest.approx(0.3)
    assert found["coarse_to_fine"] == 0.25
    # Both jigsaws, the average, theta_*, 10 alphas; or 3 alphas, and jigsaw 1 and one alpha are given up.
    assert images == {"grid": 14_000, "coarse_to_fine": 4 * 1000 + 256 + 1000 + 256}


def test_merging_one_ingredient_is_that_ingredient() -> None:
    ingredients = make_ingredients(1)
    assert torch.equal(run(ingredients, state(0, 0, 0)).state["weight"], ingredients[0]["weight"])
