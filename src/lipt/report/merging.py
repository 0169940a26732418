"""The merge as plain data: a row per jigsaw, and what the soup reached."""

from pydantic import BaseModel

from lipt.report.fields import STRICT, Count, Share


class JigsawRow(BaseModel):
    """A jigsaw in the merge, or the soup of a group. Accuracies are on validation images; None if it did not arrive."""

    model_config = STRICT

    index: Count
    """Number of the jigsaw or of the group."""
    accuracy: Share | None = None
    """Its own."""
    alpha: Share | None = None
    """Its best interpolation weight; 1 for the first ingredient, None if it was not tried."""
    kept: bool = False
    """Whether it went into the soup."""
    batchnorm: str | None = None
    """Source of the kept model's statistics, such as "averaged" or "recalibrated"."""
    validation_after: Share | None = None
    """Of the soup after this step."""
    density: Share | None = None
    """Share of the weights that pruning kept."""
    group: Count | None = None
    """The group of a jigsaw, if there are groups."""
    missing: bool = False
    """Whether it did not arrive."""
    note: str = ""
    """Why it is missing or was left out."""


class MergeTable(BaseModel):
    """The soup: a row per jigsaw in the order of the merge, a row per group if there are any, reference accuracies."""

    model_config = STRICT

    method: str
    """How the jigsaws were merged (`merge.method`), and what theta_p is."""
    theta_star_accuracy: Share | None = None
    """Validation accuracy of the start model."""
    best_single_accuracy: Share | None = None
    """Of the best jigsaw, or of the best group if there are groups."""
    uniform_accuracy: Share | None = None
    """Of the average of all of them."""
    soup_accuracy: Share | None = None
    """Of the merged model, theta_p."""
    num_workers: Count
    """Jigsaws that were asked for."""
    num_arrived: Count
    """Jigsaws that arrived."""
    quorum: Count
    """Jigsaws that had to arrive."""
    groups: list[JigsawRow] = []
    """The groups, if there are any."""
    steps: list[JigsawRow] = []
    """The ingredients in the order of the merge."""
