"""The pipeline in one table: its stages in order, the box that runs each, and how each spreads over worker pods.

A box is a step of the pipeline and one pod. Everything that lists stages or boxes reads this table.
"""

from dataclasses import dataclass
from typing import Literal

#: What runs a pipeline on a cluster.
ClusterEngine = Literal["kubeflow", "argo"]
#: The same, or this machine.
Engine = Literal["local", ClusterEngine]


@dataclass(frozen=True)
class StageRow:
    """One stage; its function lies in `lipt/stages/NAME.py` under the same name."""

    name: str
    box: str
    """The box that runs it, or that starts the worker pods which do."""
    network: Literal["trains", "forwards", ""] = ""
    """What it does with a network; "" = nothing."""
    spreads: bool = False
    """Whether the box gives parts of it to worker pods."""
    before_selection: bool = False
    """Whether it counts as pre-training."""


STAGES = (
    StageRow("ingest", "dispatch"),
    StageRow("initialise", "dispatch", "trains", spreads=True, before_selection=True),
    StageRow("dispatch", "dispatch", before_selection=True),
    StageRow("pretrain", "pretrain", "trains", spreads=True, before_selection=True),
    StageRow("group", "merge", "forwards", spreads=True, before_selection=True),
    StageRow("merge", "merge", "forwards", before_selection=True),
    StageRow("score", "select", "forwards", spreads=True),
    StageRow("select", "select"),
    StageRow("race", "select", "trains", spreads=True),
    StageRow("train", "train", "trains"),
    StageRow("evaluate", "train", "forwards"),
)
STAGE_NAMES = tuple(stage.name for stage in STAGES)
#: The boxes, in the order in which they run.
BOXES = tuple(dict.fromkeys(stage.box for stage in STAGES))
SPREAD = tuple(stage.name for stage in STAGES if stage.spreads)
PRETRAINING = tuple(stage.name for stage in STAGES if stage.before_selection)
FORWARDING = tuple(stage.name for stage in STAGES if stage.network == "forwards")
