"""The address of a configuration's report."""

import hashlib
from typing import Literal

from lipt.config import Config
from lipt.runtime.artifact import canonical_json


def run_id(config: Config) -> str:
    """The name of a configuration, with its digest."""
    return f"{config.name}-{hashlib.sha256(canonical_json(config.model_dump(mode='json'))).hexdigest()[:8]}"


def report_folder(config: Config) -> str:
    """Where a configuration's report lies in the workspace, with the files beside it."""
    return f"reports/{run_id(config)}"


def report_key(config: Config, kind: Literal["html", "json"]) -> str:
    """The key of a configuration's report in the workspace."""
    return f"{report_folder(config)}/report.{kind}"
