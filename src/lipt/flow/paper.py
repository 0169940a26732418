"""The tables and figures of the paper (Ro et al., ICML 2023) as sweeps: `paper_sweeps/NAME.yaml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from lipt.config import Sweep, make_sweep, overlay, read_settings, with_overrides
from lipt.report.sweep import LEGEND, Claim, Result, claims_table, table

Profile = Literal["cpu", "full"]
#: In the order in which they run.
NAMES = ("table1", "table2", "table3", "b1", "b2", "c", "d", "fig2", "fig3")
_FOLDER = Path(__file__).parent / "paper_sweeps"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Numbers(_Strict):
    """Numbers of the paper along one axis."""

    at: dict[str, Any] = {}
    """The values of the other axes. One that a point does not have fits every value."""
    along: str
    values: dict[Any, float | str]
    """Value of that axis -> accuracy in %, or a text."""

    def find(self, point: Mapping[str, Any]) -> float | str | None:
        """The number at a point."""
        fits = all(point.get(axis, value) == value for axis, value in self.at.items())
        return self.values.get(point.get(self.along)) if fits else None


class Variation(_Strict):
    """The changes of a profile."""

    base: dict[str, Any] = {}
    grid: Any = None


class PaperSweep(_Strict):
    """A table or figure of the paper, as a sweep."""

    title: str
    note: str = ""
    base: dict[str, Any]
    grid: Any = None
    cpu: Variation = Variation()
    full: Variation = Variation()
    paper: list[Numbers] = []
    claims: list[Claim] = []
    figure: Literal["", "data_bytes"] = ""
    """The quantity on the horizontal axis of the figure, in place of the first axis of the grid."""

    @classmethod
    def load(cls, name: str) -> PaperSweep:
        """The table or figure of this name."""
        return cls.model_validate(read_settings(str(_FOLDER / f"{name}.yaml"))[0])

    def sweep(self, profile: Profile, overrides: Sequence[str] = ()) -> Sweep:
        """Its points.

        Args:
            overrides: `a.b=value`, applied to the base.

        Raises:
            UsageError: an override is invalid.
        """
        own = {"cpu": self.cpu, "full": self.full}[profile]
        settings, _ = read_settings(str(_FOLDER / f"{profile}.yaml"))
        for changes in (self.base, own.base):
            settings = overlay(settings, changes)
        settings, places = with_overrides(settings, {}, list(overrides))
        return make_sweep(settings, own.grid or self.grid, origin=self.title, places=places)

    def number(self, point: Mapping[str, Any]) -> float | str | None:
        """The paper's number at a point."""
        found = (numbers.find(point) for numbers in self.paper)
        return next((number for number in found if number is not None), None)

    def page(self, results: Sequence[Result]) -> str:
        """Its table and its claims, as Markdown."""
        head = f"## {self.title}\n\n" + (f"{self.note}\n\n" if self.note else "")
        return f"{head}{table(results, self.number)}\n{LEGEND}\n\n{claims_table(self.claims, results)}"
