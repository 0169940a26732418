"""The work of one stage: `forecast.stages` predicts it, `forecast.time` predicts how long it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lipt.pipeline import SPREAD


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a stage. All fields but `stage` and `parts` are per part; worker pods share parts if it `spreads`."""

    stage: str
    parts: int = 1
    flops: float = 0
    steps: float = 0
    """Number of batches that go through the network."""
    items: float = 0
    """Items that a stage without FLOPs processes: images, index rows, numbers."""
    decoded: float = 0
    """Number of decoded images."""
    read: Mapping[str, float] = field(default_factory=dict)
    """Bytes by kind: data, model, other."""
    written: Mapping[str, float] = field(default_factory=dict)
    once: Mapping[str, float] = field(default_factory=dict)
    """Bytes that a process reads once and caches: theta_* for all parts, the index also for later stages."""
    requests: float = 0
    memory_bytes: float = 0
    streams: bool = False
    """Whether images are read from the store and decoded at each use, during the computation."""
    crops: bool = False
    """Whether images are decoded at each use, even if their files are held in memory."""
    member_bytes: float = 0
    """Memory of each further process if several share each batch; otherwise 0."""
    gradient_bytes: float = 0
    """Bytes of the gradients, which pods that share each batch add up in each step."""
    checkpoints: int = 0
    """Largest number of checkpoints; one is written every `train.checkpoint_s`."""
    checkpoint_bytes: float = 0

    worth_pods: bool = True
    """False: its parts take so little that pods do not share them (`select_box`)."""

    @property
    def spreads(self) -> bool:
        """Whether worker pods can share its parts."""
        return self.stage in SPREAD and self.worth_pods
