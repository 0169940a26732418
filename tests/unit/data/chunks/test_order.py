"""The order of a data set and its test split: part of every result. And other data under the same address."""

from __future__ import annotations

import hashlib

import pytest

from lipt.data.chunks import Dataset, num_test_samples
from lipt.errors import UsageError
from tests.unit.data.chunks.helpers import Memory, Noise, write


def names(source: Noise, split: str) -> list[str]:
    """The names of the images in the order of the data set."""
    memory = Memory()
    write(memory, source)
    found = Dataset(memory.read).names(split)
    assert found is not None
    return [str(name) for name in found.to_pylist()]


def test_order_and_test_split_never_change() -> None:
    """Another version of lipt must not draw others from the same images and the same seed."""
    order = names(Noise({"train": [20, 30]}), "train") + names(Noise({"train": [20, 30]}), "test")
    order += names(Noise({"train": [20, 30], "test": [5, 8]}), "test")
    assert hashlib.sha256("\n".join(order).encode()).hexdigest()[:16] == "bdf94d8c645cfbec"


def test_the_test_split_is_a_random_one() -> None:
    """Images of one scene often follow each other in a source: the first ones would be no fair test."""
    rows = sorted(int(name.partition("/")[2]) for name in names(Noise({"train": [100, 100]}), "test"))
    first, second = rows[:20], rows[20:]
    assert len(rows) == 40
    assert max(first) >= 80
    assert 100 <= min(second) <= 120
    assert max(second) >= 180


@pytest.mark.parametrize(("count", "fraction", "test"), [(2, 0.9, 1), (10, 0.96, 9), (10, 0.01, 1), (10, 0.25, 2)])
def test_each_class_keeps_images_for_both_splits(count: int, fraction: float, test: int) -> None:
    assert num_test_samples(count, fraction, "cat") == test


def test_a_data_set_of_other_images_is_not_taken_for_that_of_the_source() -> None:
    memory = Memory()
    write(memory, Noise({"train": [20, 30], "test": [5, 5]}))
    with pytest.raises(UsageError, match="already holds a data set of other data"):
        write(memory, Noise({"train": [20, 31], "test": [5, 5]}))
