"""The artifacts of the first box, for the other boxes. Imports no torch, for the sake of boxes that only wait."""

from dataclasses import dataclass, field

from lipt.runtime import Artifact


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Artifacts of the dispatch box. An algorithm that needs no model has only the data set."""

    dataset: Artifact
    initial: tuple[Artifact, ...] = ()
    """theta_*, or those of the R models that only score that arrived, by ascending index."""
    shards: Artifact | None = None
    """None without a swarm."""
    failures: dict[int, str] = field(default_factory=dict)
    """Error message of each lost model of `score.runs`, by index."""

    @property
    def swarm(self) -> tuple[Artifact, Artifact, Artifact]:
        """Data set, theta_* and shards: the inputs of jigsaws and merges."""
        assert self.shards is not None
        return self.dataset, self.initial[0], self.shards
