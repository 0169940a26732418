"""The cells of a sweep on a cluster: what one run makes, and the rows of a comparison from the reports of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lipt.config import Config, Point, Train, override
from lipt.flow.compare import Spent
from lipt.flow.graph import trains_models
from lipt.flow.rows import join_seeds, role_of
from lipt.flow.variants import Variant
from lipt.report.document import Document, Row
from lipt.runtime.algorithm import algorithm_label


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A row of a point under one seed: what one run makes."""

    point: Point
    variant: Variant
    seed: int

    def __str__(self) -> str:
        return f"{self.point}, {self.variant.name}, seed {self.seed}"

    def config(self, steps: int | None = None) -> Config:
        """The configuration of its run. Of two cells with equal outcomes it is often the same.

        Args:
            steps: of the main training; None: as configured.
        """
        changed = override(self.point.config, self.variant.changes)
        alone: dict[str, Any] = {"seed": self.seed, "train": {"random_baseline": False}}
        if steps is not None:
            alone["train"]["steps"] = steps
        config, default = override(changed, alone), Config()
        # A row writes all its settings. Without the profile, equal rows of two profiles are one run.
        unused = ["compare", "profile"]
        if not trains_models(config):
            unused += ["initialise", "dispatch", "pretrain", "merge", "score"]
        return config.model_copy(update={name: getattr(default, name) for name in unused})


def steps_for_its_cost(chosen: Document, settings: Train) -> int:
    """The steps of `random-longer`, from the report of the run that chose.

    Args:
        settings: of its main training.
    """
    row, subset = chosen.rows[0], chosen.subset
    assert row.steps is not None
    assert row.images is not None
    assert subset is not None
    flops = dict.fromkeys(("choice", "train", "evaluate"), 0)
    for each in chosen.ledger:
        flops[each.stage if each.stage in flops else "choice"] += each.flops
    spent = Spent(
        settings=settings,
        steps=int(row.steps),
        images=row.images,
        candidates=sum(subset.candidates_per_class),
        kept=subset.count,
        choice_flops=flops["choice"],
        train_flops=flops["train"],
        reselection_flops=sum(each.reselection_flops for each in chosen.ledger),
    )
    return spent.longer_steps


def over_seeds(cell: Cell, rows: Sequence[Row]) -> Row:
    """The row of a comparison, from the rows of its runs, one per seed.

    Args:
        cell: that of one of the seeds.
    """
    variant = cell.variant
    label = variant.label_with(algorithm_label(cell.point.config, row.algorithm) for row in rows)
    return join_seeds(rows, name=variant.name, label=label, role=role_of(variant))
