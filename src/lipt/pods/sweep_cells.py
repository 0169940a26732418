"""The cells of a sweep on a cluster: what one run makes, and the rows of a comparison from the reports of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lipt.config import Config, Point, override
from lipt.errors import LiptError
from lipt.flow.address import run_id
from lipt.flow.checks.validation import misnamed, raise_all
from lipt.flow.compare import longer_steps
from lipt.flow.dag import trains_models
from lipt.flow.reporting.rows import join_seeds, role_of
from lipt.flow.variants import Variant, variants
from lipt.report.document import Document, Row
from lipt.report.names import LONGER
from lipt.report.sweep import Result
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


#: A cell: number of the point, row, seed.
Place = tuple[int, str, int]


class Cells:
    """All cells of a sweep, and the reports of their runs. A key is the name of a run; equal cells share one."""

    def __init__(self, points: Sequence[Point], make_parameters: Callable[[Config], dict[str, Any]]) -> None:
        """
        Args:
            make_parameters: the pipeline's parameters for a configuration; raises if it could not run.

        Raises:
            LiptError: a configuration cannot run; names the point.
        """
        self._points, self._make_parameters = points, make_parameters
        self._cells: dict[Place, Cell] = {}
        for number, point in enumerate(points):
            raise_all(misnamed(point.config))
            known = variants(point.config)
            for name in (name for name in point.config.compare.variants if name in known):
                for seed in point.config.compare.seeds:
                    self._cells[number, name, seed] = Cell(point=point, variant=known[name], seed=seed)
        self._keys: dict[Place, str] = {}
        """Cell -> its key; without cells whose number of steps is not known yet."""
        self.parameters: dict[str, dict[str, Any]] = {}
        """Key -> the parameters with which the run starts."""
        self.reports: dict[str, Document] = {}
        """Key -> the report of a finished run."""
        self.name_runs()

    @property
    def keys(self) -> list[str]:
        """The keys that are known."""
        return list(self.parameters)

    def of(self, key: str) -> Cell:
        """The first of the cells whose run this is."""
        return next(self._cells[place] for place, own in self._keys.items() if own == key)

    def counts(self) -> tuple[int, int]:
        """The numbers of (all, finished) runs. A random subset that is trained longer counts for each choice as long as
        the cost of the choice is unknown."""
        return len(self.keys) + len(self._cells) - len(self._keys), len(self.reports)

    def results(self) -> list[Result]:
        """The results of all points whose runs are finished."""
        found = []
        for number, point in enumerate(self._points):
            places = [place for place in self._cells if place[0] == number]
            if any(self._keys.get(place) not in self.reports for place in places):
                continue
            rows: dict[str, list[Row]] = {}
            for place in places:
                rows.setdefault(place[1], []).append(self.reports[self._keys[place]].rows[0])
            merged = [over_seeds(self._cells[number, name, own[0].seeds[0]], own) for name, own in rows.items()]
            found.append(Result(point=dict(point.values), rows=merged))
        return found

    def name_runs(self) -> None:
        """Name the runs of cells whose configuration has become known."""
        for place, cell in self._cells.items():
            if place in self._keys:
                continue
            steps = None
            if cell.variant.name == LONGER:
                number, _, seed = place
                chosen = self.reports.get(self._keys.get((number, "lipt", seed), ""))
                if chosen is None:
                    continue
                assert chosen.subset is not None
                candidates, kept = sum(chosen.subset.candidates_per_class), chosen.subset.count
                steps = longer_steps(chosen.rows[0], cell.point.config.train, candidates=candidates, kept=kept)
            config = cell.config(steps)
            key = self._keys[place] = run_id(config)
            if key not in self.parameters:
                try:
                    self.parameters[key] = self._make_parameters(config)
                except LiptError as error:
                    raise type(error)(f"{cell}: {error.message}", error.remedy) from error


def over_seeds(cell: Cell, rows: Sequence[Row]) -> Row:
    """The row of a comparison, from the rows of its runs, one per seed.

    Args:
        cell: that of one of the seeds.
    """
    variant = cell.variant
    label = variant.label_with(algorithm_label(cell.point.config, row.algorithm) for row in rows)
    return join_seeds(rows, name=variant.name, label=label, role=role_of(variant))
