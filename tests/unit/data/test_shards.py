"""Validation split and dispatch."""

from __future__ import annotations

import numpy as np
import pytest

from lipt.data.chunks import stratified_order
from lipt.data.shards import shards, split, with_each_class
from lipt.errors import UsageError


def test_split_is_a_partition_that_the_seed_moves() -> None:
    validation, candidates = split(1000, 0.1, seed=1)
    assert len(validation) == 100
    assert sorted([*validation, *candidates]) == list(range(1000))
    assert set(validation) != set(split(1000, 0.1, seed=2)[0])
    assert np.array_equal(validation, split(1000, 0.1, seed=1)[0])


def test_a_class_of_one_image_is_always_a_candidate() -> None:
    labels = np.repeat(np.arange(6), [1, 1, 2, 30, 1, 65])
    order = stratified_order(labels, np.random.Generator(np.random.PCG64(0)))
    plain = 0
    for seed in range(20):
        parts = split(100, 0.3, seed=seed)
        validation, candidates = with_each_class(labels[order], *parts)
        assert (len(validation), sorted([*validation, *candidates])) == (30, list(range(100)))
        assert set(labels[order][candidates]) == set(range(6))
        lacking = 6 - len(set(labels[order][parts[1]]))
        plain += lacking
        assert np.sum(validation != parts[0]) == np.sum(candidates != parts[1]) == lacking
    assert plain  # without the exchange a class would be missing


def test_an_exchange_never_takes_the_last_candidate_of_a_class() -> None:
    """Two classes need a candidate. The class that is found first has two, so it gives one and another class gives."""
    labels = np.array([0, 1, 2, 2, 3, 3])
    _, candidates = with_each_class(labels, np.array([0, 1]), np.array([2, 3, 4, 5]))
    assert set(labels[candidates]) == {0, 1, 2, 3}


def test_there_may_be_fewer_candidates_than_classes() -> None:
    labels = np.arange(5)
    validation, candidates = with_each_class(labels, *split(5, 0.4, seed=0))
    assert sorted([*validation, *candidates]) == list(range(5))


@pytest.mark.parametrize("stratified", [True, False])
def test_shards_are_disjoint_and_from_the_candidates(stratified: bool) -> None:
    _, candidates = split(1000, 0.1, seed=1)
    parts = shards(candidates, count=6, size=64, stratified=stratified, seed=3)
    together = np.concatenate(parts)
    assert [len(part) for part in parts] == [64] * 6
    assert len(set(together.tolist())) == 6 * 64
    assert set(together) <= set(candidates)
    assert not np.array_equal(
        together, np.concatenate(shards(candidates, count=6, size=64, stratified=stratified, seed=4))
    )


def test_stratified_shards_come_from_all_candidates() -> None:
    drawn = [shards(np.arange(100), count=2, size=10, stratified=True, seed=seed) for seed in range(40)]
    assert {int(part[0]) for parts in drawn for part in parts} == set(range(0, 100, 10))


def test_stratified_shards_hold_every_class_in_proportion() -> None:
    labels = np.repeat(np.arange(10), [50, 50, 100, 100, 100, 100, 100, 100, 150, 150])
    order = stratified_order(labels, np.random.Generator(np.random.PCG64(0)))
    _, candidates = split(1000, 0.1, seed=5)
    for part in shards(candidates, count=9, size=100, stratified=True, seed=0):
        counts = np.bincount(labels[order][part], minlength=10)
        assert np.abs(counts - np.array([5, 5, 10, 10, 10, 10, 10, 10, 15, 15])).max() <= 2


def test_too_few_candidates_is_one_error_with_the_numbers() -> None:
    with pytest.raises(UsageError, match=r"10 jigsaws of 100 images need 1,000 candidates, the data set has 900"):
        shards(np.arange(900), count=10, size=100, stratified=True, seed=0)


def test_no_validation_images_is_an_error() -> None:
    with pytest.raises(UsageError, match="cannot be set aside for validation"):
        split(4, 0.1, seed=0)
