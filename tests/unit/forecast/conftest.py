"""A finished run, whose ledger the predictions are compared with."""

from __future__ import annotations

import shutil
from pathlib import Path

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


@pytest.fixture(autouse=True)
def forget_speeds(request: pytest.FixtureRequest) -> None:
    """Each test measures its own speeds: another one may have replaced what measures."""
    if "ran" in request.fixturenames:
        ctx: Context = request.getfixturevalue("ran")
        shutil.rmtree(Path(ctx.config.workspace) / "speeds", ignore_errors=True)
