"""Warnings that other work on this machine makes a run slow, or a measured speed too low."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from lipt.cli.verbose import complain

if TYPE_CHECKING:
    from lipt.forecast.kept_speeds import Speeds


def warn_if_slow() -> None:
    """Say on stderr that a run may take many times longer here: its threads would wait for those of other programs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if "OMP_NUM_THREADS" in os.environ or cores == 1 or os.getloadavg()[0] < cores / 2:
        return
    complain(
        "lipt: this machine is busy: on a CPU this run may take many times longer\n"
        "  -> stop this run, and start it with OMP_NUM_THREADS=1. The accuracies will differ a little: threads change "
        "the rounding"
    )


def warn_if_busy(speeds: Collection[Speeds]) -> None:
    """Say on stderr that this machine is too busy for a prediction with these speeds."""
    if any(each.busy for each in speeds):
        complain(
            "lipt: this machine is busy, so the predicted times are unreliable\n"
            "  -> plan again when it is idle; if it stays busy, set OMP_NUM_THREADS=1 for plan and run"
        )
