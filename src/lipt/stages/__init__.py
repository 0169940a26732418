"""The stages: each file one, each a function of (context, finished artifacts) that gives a `Stage`, which makes one
artifact."""

from __future__ import annotations

from collections.abc import Callable

from lipt.run.stage import Stage
from lipt.stages.dispatch import dispatch
from lipt.stages.evaluate import evaluate
from lipt.stages.ingest import Ingest, ingest
from lipt.stages.initialise import initialise
from lipt.stages.merge import group, merge
from lipt.stages.pretrain import pretrain
from lipt.stages.score import score
from lipt.stages.select import select
from lipt.stages.train import train

#: name -> function, for `lipt stage`.
STAGES: dict[str, Callable[..., Stage | Ingest]] = {
    function.__name__: function
    for function in (ingest, initialise, dispatch, pretrain, group, merge, score, select, train, evaluate)
}
