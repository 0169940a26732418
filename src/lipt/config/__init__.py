"""The configuration of a run: frozen, validated."""

from lipt.config.config import Config
from lipt.config.loading import PROFILES, as_settings, load_config, override, parse_config
from lipt.config.raptr import Raptr
from lipt.config.safe_yaml import read_yaml
from lipt.config.sections import Data, Merge, Model, Select

__all__ = [
    "PROFILES", "Config", "Data", "Merge", "Model", "Raptr", "Select", "as_settings", "load_config", "override",
    "parse_config", "read_yaml",
]  # fmt: skip
