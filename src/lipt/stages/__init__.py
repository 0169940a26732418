"""The stages: each one a function of (configuration, finished artifacts, seed) that leaves one artifact.

`workspace` explains artifacts, `graph` how stages feed each other.
"""

from __future__ import annotations

from collections.abc import Callable

from lipt.stages.choose import score, select
from lipt.stages.ingest import ingest
from lipt.stages.soup import group, merge
from lipt.stages.swarm import dispatch, initialise, pretrain
from lipt.stages.train import evaluate, train
from lipt.stages.workspace import Artifact

#: name -> function, for `lipt stage`.
STAGES: dict[str, Callable[..., Artifact]] = {
    function.__name__: function
    for function in (ingest, initialise, dispatch, pretrain, group, merge, score, select, train, evaluate)
}
