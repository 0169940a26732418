"""The smallest run as the parameters of the pipeline, and the rest of its configuration."""

from __future__ import annotations

from typing import Any

import yaml

from tests.tiny import TINY

PARAMETERS: dict[str, Any] = {
    "width": 4,
    "fraction": 0.05,
    "epoch_fraction": 0.025,
    "jigsaws": 3,
    "passes": 2,
    "epochs": 3,
    "seed": 7,
}
#: Everything else of the smallest run.
CONFIG = yaml.safe_dump(
    {
        "name": "tiny",
        "device": "cpu",
        "data": {"flip": False, "crop_padding": 1},
        "initialise": TINY["initialise"],
        "dispatch": {"batch_size": 32},
        "merge": TINY["merge"],
        "train": {"batch_size": 32},
    }
)
