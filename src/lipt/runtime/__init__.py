"""One run on one workspace: artifacts, what a stage is given, checkpoints, processes."""

from lipt.runtime.artifact import Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.stage import Stage

__all__ = ["Artifact", "Attempt", "Context", "Stage"]
