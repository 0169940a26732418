"""Intervals, chance and pairing: the numbers behind the verdict are the textbook ones."""

import math

import numpy as np
import pytest
from report_samples import row

from lipt.report.significance import accuracy_interval, at_chance, difference, strongest_random


def test_the_bound_of_chance_is_the_textbook_one():
    edge = 0.1 + 1.96 * math.sqrt(0.1 * 0.9 / 10_000)
    assert at_chance(row("a", [edge - 1e-4]))
    assert not at_chance(row("a", [edge + 1e-4]))
    assert at_chance(row("a", [0.91], chance=0.91))  # of a test set of which nine tenths are one class


@pytest.mark.parametrize("num_random", [1, 2])
@pytest.mark.parametrize("num_seeds", [1, 2, 3, 5])
def test_equal_random_subsets_are_rarely_called_different(num_seeds, num_random):
    """Three or more rows of one distribution, as a run and its random baselines would be if selection did nothing."""
    generator = np.random.default_rng(0)
    called, rounds = 0, 1000
    for _ in range(rounds):
        accuracies = generator.normal(0.6, 0.02, (1 + num_random, num_seeds)).tolist()
        ours, *others = (row(str(at), values, "random") for at, values in enumerate(accuracies))
        reference = strongest_random(ours, others)
        called += difference(ours, reference).level in ("wins", "loses")
    assert called == 0 if num_seeds < 3 else called / rounds < 0.06


def test_the_binomial_interval_is_the_textbook_one():
    delta = difference(row("a", [0.6], num_test_images=10_000), row("b", [0.5], num_test_images=10_000))
    assert delta.test_half_width == pytest.approx(1.96 * math.sqrt(0.24 / 1e4 + 0.25 / 1e4), rel=1e-3)
    assert delta.half_width is None


def test_perfect_accuracy_on_few_images_is_not_certainty():
    low, high = accuracy_interval(row("a", [1.0], num_test_images=20))
    assert low < 0.96
    assert high == 1


def test_the_interval_over_seeds_is_the_textbook_one():
    low, high = accuracy_interval(row("a", [0.5, 0.6, 0.7]))
    assert (low, high) == pytest.approx((0.6 - 4.303 * 0.1 / math.sqrt(3), 0.6 + 4.303 * 0.1 / math.sqrt(3)))


def test_other_seeds_are_not_compared():
    left, right = row("a", [0.70, 0.80, 0.90]), row("b", [0.69, 0.79, 0.89])
    elsewhere = right.model_copy(update={"seeds": [7, 8, 9]})
    assert difference(left, right).level == "wins"
    assert (difference(left, elsewhere).level, difference(left, elsewhere).num_seeds) == ("unknown", 0)
    partly = row("b", [0.69, 0.79, 0.2, 0.2], seeds=[0, 1, 8, 9])
    assert difference(left, partly).num_seeds == 2
    assert difference(left, partly).mean == pytest.approx(0.01)


def test_pairing_is_by_seed_and_not_by_position():
    left, right = row("a", [0.7, 0.8, 0.9]), row("b", [0.89, 0.69, 0.79], seeds=[2, 0, 1])
    assert difference(left, right).level == "wins"


def test_seeds_that_agree_exactly_do_not_make_one_image_significant():
    delta = difference(row("a", [0.7601] * 3), row("b", [0.76] * 3))
    assert delta.half_width > 0
    assert delta.level == "tie"


@pytest.mark.parametrize(
    ("budget", "same", "other", "rounded"),
    [("kept_fraction", 0.3, 0.32, 0.302), ("epoch_fraction", 0.3, 0.32, 0.302), ("steps", 1000, 1020, 1005)],
)
def test_only_rows_of_equal_budgets_are_ranked(budget, same, other, rounded):
    """Rounding per class is allowed for: 1 %."""
    ours = row("a", [0.7], "selected", **{budget: same})
    apart, close = (row("b", [0.6], "random", **{budget: value}) for value in (other, rounded))
    assert strongest_random(ours, [apart]) is None
    assert strongest_random(ours, [close]) is close
