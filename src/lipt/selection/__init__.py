"""Subset selection: which samples to keep, given one scoring pass over the candidates."""

from typing import cast

from lipt.selection import algorithms  # noqa: F401  (they register themselves)
from lipt.selection.api import requirements, resolve, select
from lipt.selection.auto import AUTO
from lipt.selection.describe import Description, describe
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.dataset import score_dataset
from lipt.selection.inputs.outputs import Outputs, StoredOutputs
from lipt.selection.inputs.trajectory import Trajectory
from lipt.selection.needs import Requirements
from lipt.selection.registry import names
from lipt.selection.result import Selection
from lipt.selection.signatures import AlgorithmName

#: All names that `select` understands.
ALGORITHMS: tuple[AlgorithmName, ...] = cast(tuple[AlgorithmName, ...], (AUTO, *sorted(names())))

__all__ = [
    "ALGORITHMS", "AlgorithmName", "Candidates", "Description", "Outputs", "Requirements", "Selection",
    "StoredOutputs", "Trajectory", "describe", "requirements", "resolve", "score_dataset", "select",
]  # fmt: skip
