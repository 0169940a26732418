"""Which rows may be compared, and by how much they differ.

Differences are taken seed by seed, because rows with the same seed share its split and all rows share the test images.
A row counts as better or worse only if zero lies outside the 95 % t interval of these differences over three seeds or
more. Fewer seeds prove nothing: the sampling error of the test set is known, but not the effect of the seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from lipt.report.document import Row

#: With two seeds the interval is 12.7 standard errors of a spread that is itself unknown: useless.
MIN_SEEDS = 3
# Two-sided 95 % quantiles of Student's t by degrees of freedom. Between entries the smaller number of degrees is
# used, which widens the interval by 4 % at most. A table, because the import of scipy takes longer than rendering.
_T_95 = ((2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365), (8, 2.306), (9, 2.262),
         (10, 2.228), (12, 2.179), (15, 2.131), (20, 2.086), (30, 2.042), (60, 2.000), (120, 1.980))  # fmt: skip
_NORMAL_95 = 1.960
_ROLE_ORDER = ("selected", "random", "longer", "continued", "classic", "other", "full")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Accuracy of one row minus that of another, as shares."""

    mean: float
    """Over the common seeds; over all seeds if there is no common one."""
    num_seeds: int
    """Number of common seeds."""
    half_width: float | None
    """Half width of the 95 % interval over the common seeds; None below `MIN_SEEDS`."""
    test_half_width: float
    """Upper bound of the 95 % error from the test set alone: both rows see the same images."""
    at_chance: bool
    """Neither row is better than always predicting the most frequent class."""

    @property
    def level(self) -> Literal["wins", "loses", "tie", "unknown"]:
        """ "wins" or "loses" if the interval excludes zero; "unknown" without an interval, or at chance."""
        if self.half_width is None or self.at_chance:
            return "unknown"
        if abs(self.mean) <= self.half_width:
            return "tie"
        return "wins" if self.mean > 0 else "loses"


def mean_accuracy(row: Row) -> float:
    """Mean over seeds."""
    return fmean(row.accuracy)


def deviation(row: Row) -> float | None:
    """Sample standard deviation over seeds; None for a single seed."""
    return stdev(row.accuracy) if len(row.accuracy) > 1 else None


def accuracy_interval(row: Row) -> tuple[float, float]:
    """The 95 % interval of the mean over seeds; with fewer than `MIN_SEEDS`, the interval of the test set."""
    mean, count = mean_accuracy(row), len(row.accuracy)
    half_width = sampling_error(mean, row.num_test_images)
    if count >= MIN_SEEDS:
        half_width = _t_95(count - 1) * stdev(row.accuracy) / math.sqrt(count)
    return max(0.0, mean - half_width), min(1.0, mean + half_width)


def at_chance(row: Row, accuracy: float | None = None) -> bool:
    """Whether the accuracy is at most the most frequent class's share of the test images plus its 95 % error.

    Args:
        accuracy: of another model on such images; None: that of the row.
    """
    error = math.sqrt(row.chance * (1 - row.chance) / row.num_test_images)
    return (mean_accuracy(row) if accuracy is None else accuracy) <= row.chance + _NORMAL_95 * error


def difference(row: Row, reference: Row) -> Difference:
    """`row` minus `reference`, with the interval over their common seeds."""
    deltas = [value - other for value, other in _pairs(row, reference)]
    half_width = None
    if len(deltas) >= MIN_SEEDS:
        # If seeds agree to the last test image, the difference is still not exact: one image is the resolution.
        image = 1 / min(row.num_test_images, reference.num_test_images)
        half_width = _t_95(len(deltas) - 1) * max(stdev(deltas), image) / math.sqrt(len(deltas))
    variances = [_variance(mean_accuracy(each), each.num_test_images) for each in (row, reference)]
    return Difference(
        mean=fmean(deltas) if deltas else mean_accuracy(row) - mean_accuracy(reference),
        num_seeds=len(deltas),
        half_width=half_width,
        test_half_width=_NORMAL_95 * math.sqrt(sum(variances)),
        at_chance=at_chance(row) and at_chance(reference),
    )


def compared_means(row: Row, reference: Row) -> tuple[float, float]:
    """The two accuracies whose difference `difference` gives: means over the common seeds, or over all without any."""
    pairs = _pairs(row, reference)
    if not pairs:
        return mean_accuracy(row), mean_accuracy(reference)
    return fmean(value for value, _ in pairs), fmean(other for _, other in pairs)


def common_seeds(row: Row, reference: Row) -> list[int]:
    """The seeds of both rows."""
    return [seed for seed in row.seeds if seed in reference.seeds]


def _pairs(row: Row, reference: Row) -> list[tuple[float, float]]:
    """The two accuracies of each common seed."""
    ours, theirs = (dict(zip(each.seeds, each.accuracy, strict=True)) for each in (row, reference))
    return [(ours[seed], theirs[seed]) for seed in common_seeds(row, reference)]


def _variance(share: float, images: int) -> float:
    """Variance of an accuracy measured on finitely many images; (k+1)/(n+2), because 0 % and 100 % are not certain."""
    smoothed = (share * images + 1) / (images + 2)
    return smoothed * (1 - smoothed) / images


def sampling_error(share: float, images: int) -> float:
    """Half width of the 95 % interval of an accuracy from the images on which it was measured."""
    return _NORMAL_95 * math.sqrt(_variance(share, images))


def _t_95(degrees: int) -> float:
    return max(entry for entry in _T_95 if entry[0] <= degrees)[1]


def same_epoch_budget(row: Row, other: Row) -> bool:
    """Both draw as many samples per epoch, and take as many steps on as many images.

    Rounding per class is allowed for: 1 %. Images may differ by 5 %, because draws that are led by losses end more
    epochs, each with a smaller batch. Where steps or images are unknown, the epochs must be equal.
    """
    if row.data != other.data or not math.isclose(row.epoch_fraction, other.epoch_fraction, rel_tol=0.01):
        return False
    if None in (row.steps, other.steps, row.images, other.images):
        return row.epochs == other.epochs
    same_steps = math.isclose(row.steps or 0, other.steps or 0, rel_tol=0.01)
    return same_steps and math.isclose(row.images or 0, other.images or 0, rel_tol=0.05)


def same_budgets(row: Row, other: Row) -> bool:
    """Both keep equally much data and train on equally many samples. Only such rows may be ranked."""
    return same_epoch_budget(row, other) and math.isclose(row.kept_fraction, other.kept_fraction, rel_tol=0.01)


def random_rivals(row: Row, rows: Sequence[Row]) -> list[Row]:
    """The random rows of the same recipe, of any budgets."""
    fresh = "rs2" if row.role == "selected" else ""
    return [other for other in rows if (other.role == "random" or other.name == fresh) and other.recipe == row.recipe]


def strongest_random(row: Row, rows: Sequence[Row]) -> Row | None:
    """The best random baseline at the budgets of `row`: a subset, or RS2 for a selected row.

    A method must beat this one, not only a weaker one. Of runs side by side, those with the same recipe count. A row of
    the same run comes first, so that the run has the same numbers as in its own report; then the most common seeds.
    """
    candidates = [other for other in random_rivals(row, rows) if same_budgets(row, other)]

    def rank(other: Row) -> tuple[bool, int, float]:
        return not set(row.runs).isdisjoint(other.runs), len(_pairs(row, other)), mean_accuracy(other)

    return max(candidates, key=rank, default=None)


def in_groups(rows: Sequence[Row]) -> list[Row]:
    """The rows in the order of `group_by_budgets`."""
    return [row for group in group_by_budgets(rows) for row in group]


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
