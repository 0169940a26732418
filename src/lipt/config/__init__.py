"""The configuration of a run: frozen, validated."""

from lipt.config.config import Config
from lipt.config.loading import PROFILES, as_settings, load_config, override, parse_config
from lipt.config.race import Contestant
from lipt.config.raptr import Raptr
from lipt.config.safe_yaml import read_yaml
from lipt.config.sections import Data, Merge, Model, Select, Train

__all__ = [
    "PROFILES", "Config", "Contestant", "Data", "Merge", "Model", "Raptr", "Select", "Train", "as_settings",
    "load_config", "override", "parse_config", "read_yaml",
]  # fmt: skip
