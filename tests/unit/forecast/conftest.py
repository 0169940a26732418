"""A finished run, whose ledger the predictions are compared with."""

from __future__ import annotations

import pytest

from lipt.flow.compare import run_with_baseline
from lipt.runtime.context import Context
from tests.tiny import tiny_context


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """The smallest complete run, with its random baseline."""
    ctx = tiny_context(tmp_path_factory.mktemp("costs") / "runs")
    run_with_baseline(ctx)
    return ctx
