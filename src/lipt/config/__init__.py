"""The configuration of a run: frozen, validated."""

from lipt.config.reading import PROFILES, load_config, override, parse_config
from lipt.config.sections import Config, Data, Merge, Select

__all__ = ["PROFILES", "Config", "Data", "Merge", "Select", "load_config", "override", "parse_config"]
