"""Stages for `lipt.stages.launch` that fail, each in its way."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch

from lipt.errors import TransientError
from lipt.stages.context import Context
from lipt.stages.team import Team


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
