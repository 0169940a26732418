"""What a plan knows of a stage: the unit in which `costs` says what there is to do and `forecast` how long it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lipt.pipeline import SPREAD


@dataclass(frozen=True, kw_only=True)
class Work:
    """A stage: `parts`, one after the other or, where it `spreads`, side by side; the rest is of one part."""

    stage: str
    parts: int = 1
    flops: float = 0
    steps: float = 0
    """Batches that go through the network."""
    items: float = 0
    """What a stage without FLOPs handles: images, index rows, numbers."""
    decoded: float = 0
    """Images."""
    read: Mapping[str, float] = field(default_factory=dict)
    """Bytes by kind: data, model, other."""
    written: Mapping[str, float] = field(default_factory=dict)
    once: Mapping[str, float] = field(default_factory=dict)
    """Bytes of theta_* and of the index, which a process keeps from part to part, and the index for later stages."""
    requests: float = 0
    memory_bytes: float = 0
    streams: bool = False
    member_bytes: float = 0
    """Memory of each further process where several share each batch; 0 where they do not."""
    checkpoints: int = 0
    """At most so many, of `checkpoint_bytes`, one every `train.checkpoint_s`."""
    checkpoint_bytes: float = 0

    @property
    def spreads(self) -> bool:
        """Whether worker pods share its parts."""
        return self.stage in SPREAD
