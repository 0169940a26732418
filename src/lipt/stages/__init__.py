"""The stages: each one a function of (configuration, finished artifacts, seed) that leaves one artifact.

`workspace` explains artifacts, `graph` how stages feed each other.
"""

from __future__ import annotations

from collections.abc import Callable

from lipt.run.workspace import Artifact
from lipt.stages.ingest import ingest
from lipt.stages.merge import group, merge
from lipt.stages.pretrain import dispatch, initialise, pretrain
from lipt.stages.select import score, select
from lipt.stages.train import evaluate, train

#: name -> function, for `lipt stage`.
STAGES: dict[str, Callable[..., Artifact]] = {
    function.__name__: function
    for function in (ingest, initialise, dispatch, pretrain, group, merge, score, select, train, evaluate)
}
