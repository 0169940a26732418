"""The warning that a measured speed is too low."""

import torch

from lipt.cli.verbose import complain
from lipt.forecast.speed import is_busy


def warn_if_busy(device: torch.device) -> None:
    """Say on stderr that this machine is too busy for a prediction."""
    if is_busy(device):
        complain(
            "lipt: this machine is busy, so the predicted times are unreliable\n"
            "  -> plan again when it is idle; if it stays busy, set OMP_NUM_THREADS=1 for plan and run"
        )
