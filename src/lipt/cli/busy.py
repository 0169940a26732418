"""The warning that a measured speed is too low."""

import torch

from lipt.cli.verbose import complain
from lipt.forecast.speed import is_busy


def warn_if_busy(device: torch.device) -> None:
    """Say on stderr that this machine is too busy for a prediction."""
    if is_busy(device):
        complain(
            "lipt: this machine is busy: the predicted times are not those of an idle one, and a run now takes longer\n"
            "  -> plan again when it is idle; beside other work, OMP_NUM_THREADS=1 for plan and run takes least"
        )
