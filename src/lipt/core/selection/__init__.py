"""Subset selection: which samples to keep, given one scoring pass over the candidates."""

# The algorithms register themselves when they are imported.
from lipt.core.selection import geometry, glister, gradmatch, ranking, sampling, submodular  # noqa: F401
from lipt.core.selection.api import requirements, resolve, select
from lipt.core.selection.auto import AUTO
from lipt.core.selection.dataset import score_dataset
from lipt.core.selection.result import Selection
from lipt.core.selection.task import names
from lipt.core.selection.types import Candidates, Outputs, Requirements, StoredOutputs

#: All names that `select` understands.
ALGORITHMS: tuple[str, ...] = (AUTO, *sorted(names()))

__all__ = [
    "ALGORITHMS", "Candidates", "Outputs", "Requirements", "Selection", "StoredOutputs", "requirements", "resolve",
    "score_dataset", "select"
]  # fmt: skip
