"""Which rows may be compared, and by how much they differ.

A difference counts when zero lies outside its 95 % interval. The interval comes from the spread over seeds, paired
when both rows ran the same seeds (their splits and test sets are then shared) and Welch's otherwise. With one seed
only the sampling error of the test set is known, which says nothing about the luck of the seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance
from typing import Literal

from lipt.report.document import Row

# Two-sided 95 % quantiles of Student's t by degrees of freedom. Between entries the smaller number of degrees is
# used, which widens the interval by 4 % at most. A table, because scipy would take longer to import than to render.
_T_95 = ((1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365), (8, 2.306), (9, 2.262),
         (10, 2.228), (12, 2.179), (15, 2.131), (20, 2.086), (30, 2.042), (60, 2.000), (120, 1.980))  # fmt: skip
_NORMAL_95 = 1.960
_ROLE_ORDER = ("selected", "random", "classic", "other", "full")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Accuracy of one row minus that of another, as shares, with the half-width of its 95 % interval."""

    mean: float
    half_width: float
    kind: Literal["paired", "welch", "binomial"]
    num_seeds: int
    """Seeds of the row that has fewer."""

    @property
    def level(self) -> Literal["wins", "loses", "tie"]:
        """ "wins" or "loses" when the interval excludes zero."""
        if abs(self.mean) <= self.half_width:
            return "tie"
        return "wins" if self.mean > 0 else "loses"


def mean_accuracy(row: Row) -> float:
    """Mean over seeds."""
    return fmean(row.accuracy)


def deviation(row: Row) -> float | None:
    """Sample standard deviation over seeds; None for a single seed."""
    return stdev(row.accuracy) if len(row.accuracy) > 1 else None


def difference(row: Row, reference: Row) -> Difference:
    """`row` minus `reference`, with the interval that their seeds allow."""
    mean = mean_accuracy(row) - mean_accuracy(reference)
    num_seeds = min(len(row.seeds), len(reference.seeds))
    if num_seeds == 1:
        half_width = _NORMAL_95 * math.sqrt(_binomial_variance(row) + _binomial_variance(reference))
        return Difference(mean=mean, half_width=half_width, kind="binomial", num_seeds=1)
    paired = set(row.seeds) == set(reference.seeds)
    error, degrees = _paired_error(row, reference) if paired else _welch_error(row, reference)
    # Seeds that agree to the last test image do not make the difference exact: one image is the resolution.
    error = max(error, 1 / (min(row.num_test_images, reference.num_test_images) * math.sqrt(num_seeds)))
    kind: Literal["paired", "welch"] = "paired" if paired else "welch"
    return Difference(mean=mean, half_width=_t_95(degrees) * error, kind=kind, num_seeds=num_seeds)


def _binomial_variance(row: Row) -> float:
    """Variance of an accuracy measured on finitely many images; (k+1)/(n+2) so that 0 % and 100 % are not certain."""
    smoothed = (mean_accuracy(row) * row.num_test_images + 1) / (row.num_test_images + 2)
    return smoothed * (1 - smoothed) / row.num_test_images


def _paired_error(row: Row, reference: Row) -> tuple[float, float]:
    """Standard error and degrees of freedom of the mean of the per-seed differences."""
    reference_by_seed = dict(zip(reference.seeds, reference.accuracy, strict=True))
    deltas = [value - reference_by_seed[seed] for seed, value in zip(row.seeds, row.accuracy, strict=True)]
    return stdev(deltas) / math.sqrt(len(deltas)), len(deltas) - 1


def _welch_error(row: Row, reference: Row) -> tuple[float, float]:
    """Standard error and Welch-Satterthwaite degrees of freedom for unequal variances."""
    sizes = len(row.accuracy), len(reference.accuracy)
    parts = [variance(side.accuracy) / size for side, size in zip((row, reference), sizes, strict=True)]
    if sum(parts) == 0:
        return 0.0, min(sizes) - 1
    degrees = sum(parts) ** 2 / sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    return math.sqrt(sum(parts)), degrees


def _t_95(degrees: float) -> float:
    # Rounding may leave the degrees of freedom a hair below the smallest possible number, which is 1.
    return max((entry for entry in _T_95 if entry[0] <= max(degrees, 1.0)), key=lambda entry: entry[0])[1]


def same_epoch_budget(row: Row, other: Row) -> bool:
    """Both train on as many samples; 1 % of slack for per-class rounding."""
    return row.epochs == other.epochs and math.isclose(row.epoch_fraction, other.epoch_fraction, rel_tol=0.01)


def same_budgets(row: Row, other: Row) -> bool:
    """Both keep as much data and train on as many samples: the only rows that may be ranked."""
    return same_epoch_budget(row, other) and math.isclose(row.kept_fraction, other.kept_fraction, rel_tol=0.01)


def strongest_random(row: Row, rows: Sequence[Row]) -> Row | None:
    """The best random baseline at the budgets of `row`: a method that beats only the weaker one has beaten neither."""
    candidates = [other for other in rows if other.role == "random" and same_budgets(row, other)]
    return max(candidates, key=mean_accuracy, default=None)


def group_by_budgets(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that may be ranked together; the groups of selected rows first, then by growing budgets."""
    groups: list[list[Row]] = []
    for row in rows:
        home = next((group for group in groups if same_budgets(group[0], row)), None)
        if home is None:
            groups.append([row])
        else:
            home.append(row)
    for group in groups:
        group.sort(key=lambda row: _ROLE_ORDER.index(row.role))
    groups.sort(key=lambda group: (group[0].role != "selected", group[0].epoch_fraction, group[0].kept_fraction))
    return groups
