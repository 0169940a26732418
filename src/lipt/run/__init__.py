"""One run on one workspace: artifacts, what a stage is given, checkpoints, processes."""

from lipt.run.artifact import Artifact
from lipt.run.attempt import Attempt
from lipt.run.context import Context
from lipt.run.stage import Stage

__all__ = ["Artifact", "Attempt", "Context", "Stage"]
