"""These tests compare a GPU with the CPU. Without a GPU they are skipped."""

import pytest
import torch


def pytest_runtest_setup() -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
