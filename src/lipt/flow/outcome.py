"""What a run of one configuration made."""

from __future__ import annotations

from dataclasses import dataclass, field

from lipt.config import Config
from lipt.flow.prepared import Prepared
from lipt.runtime import Artifact


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Artifacts of the train box."""

    model: Artifact
    evaluation: Artifact


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All artifacts of one configuration."""

    config: Config
    prepared: Prepared
    jigsaws: tuple[Artifact, ...] = ()
    groups: tuple[Artifact, ...] = ()
    """Soups of the groups; empty without groups."""
    merged: Artifact | None = None
    scores: tuple[Artifact, ...] = ()
    """All that were computed; with a race the winner may read none of them."""
    race: dict[int, Artifact] = field(default_factory=dict)
    """The trainings of the race, by index of `stages.race`."""
    losers: tuple[Artifact, ...] = ()
    """The subsets that lost the race."""
    subset: Artifact
    trained: Trained
    failures: dict[int, str] = field(default_factory=dict)
    """Error message of each lost jigsaw, by index."""

    @property
    def algorithm(self) -> str | None:
        """The selection algorithm that ran; None on a dry run that found no subset."""
        return self.subset.summary.get("algorithm")

    @property
    def num_validation_images(self) -> int:
        """Training images that are held out, so that nothing is chosen from them."""
        return int(self.prepared.dataset.summary["train"]) - int(self.subset.summary["candidates"])

    def choice(self) -> list[Artifact]:
        """All artifacts between the data set and the main training, in the order in which they were made."""
        optional = [self.prepared.shards, *self.jigsaws, *self.groups, self.merged, *self.scores]
        made = [*self.prepared.initial, *(artifact for artifact in optional if artifact is not None)]
        return [*made, *self.losers, self.subset, *self.race.values()]

    def artifacts(self) -> list[Artifact]:
        """All artifacts except the data set, in the order in which they were made."""
        return [*self.choice(), self.trained.model, self.trained.evaluation]
