"""One run on one workspace: artifacts, the context and the attempt of a stage, checkpoints, processes."""

from lipt.runtime.artifact import Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.stage import Stage

__all__ = ["Artifact", "Attempt", "Context", "Stage"]
