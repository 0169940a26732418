"""The configuration of a run: frozen, validated."""

from lipt.config.config import Config
from lipt.config.loading import (
    PROFILES,
    as_settings,
    load_config,
    overlay,
    override,
    parse_config,
    read_settings,
    with_overrides,
    without,
)
from lipt.config.race import Contestant
from lipt.config.raptr import Raptr
from lipt.config.safe_yaml import read_yaml
from lipt.config.sections import Data, Merge, Model, Network, Pretrain, Select
from lipt.config.sweep import Point, Sweep, load_sweep, make_sweep
from lipt.config.train import Train

__all__ = [
    "PROFILES", "Config", "Contestant", "Data", "Merge", "Model", "Network", "Point", "Pretrain", "Raptr", "Select",
    "Sweep", "Train", "as_settings", "load_config", "load_sweep", "make_sweep", "overlay", "override", "parse_config",
    "read_settings", "read_yaml", "with_overrides", "without",
]  # fmt: skip
