"""Stages for `lipt.run.processes.parent` that fail, each in its way."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch

from lipt.errors import TransientError
from lipt.run.artifact import Artifact
from lipt.run.context import Context
from lipt.run.processes.child import Team


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


def _piece(index: int) -> Artifact:
    return Artifact(stage="piece", key=str(index), inputs=(), settings={}, files={}, summary={})


def misshapen(ctx: Context, *, index: int) -> Artifact:
    """A stage; piece 1 multiplies what does not fit."""
    if index == 1 and not ctx.dry_run:
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    return _piece(index)


def immense(ctx: Context, *, index: int) -> Artifact:
    """A stage; piece 1 needs more memory than there is."""
    if index == 1 and not ctx.dry_run:
        torch.empty(10**15)
    return _piece(index)
