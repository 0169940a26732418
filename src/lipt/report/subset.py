"""The selected samples as plain data: by class, by score, and some examples."""

from typing import Self

from pydantic import BaseModel, Field, model_validator

from lipt.report.fields import STRICT, Count, Measured, require


class Histogram(BaseModel):
    """Counts of kept and dropped candidates by score, between len(counts) + 1 ascending edges."""

    model_config = STRICT

    edges: list[float] = Field(min_length=2)
    """Scores, ascending."""
    kept: list[Count]
    """Kept candidates between two edges."""
    dropped: list[Count]
    """Dropped candidates between two edges."""

    @model_validator(mode="after")
    def _one_count_per_bin(self) -> Self:
        num_bins = len(self.edges) - 1
        require(len(self.kept) == num_bins and len(self.dropped) == num_bins, "one count per bin")
        require(all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False)), "edges must ascend")
        return self


class Example(BaseModel):
    """One training image, as it was stored, for the montage."""

    model_config = STRICT

    png_base64: str = Field(pattern=r"^[A-Za-z0-9+/]+={0,2}$")
    """The image as PNG."""
    label: str
    """Name of its class."""
    score: Measured = None
    """Its score, if it has one."""
    source: str = ""
    """The image's name in its source; empty if unknown."""


class Subset(BaseModel):
    """The selected samples: by class, by score, and some examples."""

    model_config = STRICT

    count: Count
    """Kept images."""
    class_names: list[str]
    """The classes, in the order of their numbers."""
    kept_per_class: list[Count]
    """In the order of `class_names`."""
    candidates_per_class: list[Count]
    """In the order of `class_names`."""
    score_name: str = ""
    """The score by which the algorithm chose; empty if it has none."""
    score_histogram: Histogram | None = None
    """All candidates by score."""
    kept_examples: list[Example] = []
    """Some kept images."""
    dropped_examples: list[Example] = []
    """Some images that were not kept."""
    weights_used: bool = False
    """Whether kept images have different weights in the loss."""
    digest: str = ""
    """SHA-256 of the selection."""
    ref: str = ""
    """Reference of the complete selection in the workspace."""

    @model_validator(mode="after")
    def _one_count_per_class(self) -> Self:
        num_classes = len(self.class_names)
        require(len(self.kept_per_class) == num_classes, "kept_per_class: one count per class")
        require(len(self.candidates_per_class) == num_classes, "candidates_per_class: one count per class")
        return self
