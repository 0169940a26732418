"""Stages for `lipt.run.processes.parent` that fail, each in its way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch

from lipt.errors import TransientError
from lipt.run.attempt import Attempt
from lipt.run.context import Context
from lipt.run.processes.child import Team
from lipt.run.stage import Stage


def unreachable(_ctx: Context, team: Team) -> dict[str, Any]:
    if team.ranks.rank == 1:
        raise TransientError("s3://bucket: out of reach", "check that the store is up")
    team.ranks.sum(torch.zeros(1))  # never comes back
    return {}


def mistaken(_ctx: Context, team: Team) -> dict[str, Any]:
    if team.ranks.rank == 1:
        raise ZeroDivisionError("by zero")
    team.ranks.sum(torch.zeros(1))
    return {}


def mistaken_alone(_ctx: Context, team: Team) -> dict[str, Any]:
    """The other process notices nothing, until the launcher ends it."""
    if team.ranks.rank == 1:
        raise ZeroDivisionError("by zero")
    time.sleep(600)
    return {}


def killed(_ctx: Context, team: Team) -> dict[str, Any]:
    if team.ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    team.ranks.sum(torch.zeros(1))
    return {}


def misshapen(ctx: Context, *, index: int) -> Stage:
    """Piece 1 multiplies what does not fit."""
    return _piece(ctx, index, lambda: torch.zeros(2, 3) @ torch.zeros(2, 3))


def immense(ctx: Context, *, index: int) -> Stage:
    """Piece 1 needs more memory than there is."""
    return _piece(ctx, index, lambda: torch.empty(10**15))


def _piece(ctx: Context, index: int, fail: Callable[[], object]) -> Stage:
    def body(_attempt: Attempt) -> dict[str, Any]:
        if index == 1:
            fail()
        return {}

    return Stage(ctx=ctx, name="piece", settings={"index": index}, inputs=[], body=body, label=f"piece[{index}]")
