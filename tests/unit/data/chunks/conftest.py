"""A small dataset in memory."""

from __future__ import annotations

import pytest

from lipt.data.chunks import Dataset
from tests.unit.data.chunks.helpers import Memory, Noise, write


@pytest.fixture
def source() -> Noise:
    return Noise({"train": [50, 30, 20], "test": [5, 3, 2]})


@pytest.fixture
def memory(source: Noise) -> Memory:
    memory = Memory()
    write(memory, source)
    return memory


@pytest.fixture
def dataset(memory: Memory) -> Dataset:
    return Dataset(memory.read)
