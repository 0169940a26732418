"""The verdict: does the selected subset beat random, what does it save, and what else would help more.

Rows are ranked only at equal data budget (share of the data kept), equal epoch budget (share trained on per epoch)
and equal epochs. If budgets differ, the sentence says so. "Beats" and "better" need three seeds or more
(`significance`). With fewer seeds, or at chance, the verdict gives the difference and says that it proves nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lipt.report.document import Row
from lipt.report.names import RANDOM
from lipt.report.next_step import ENOUGH_SEEDS, NextStep
from lipt.report.numbers import format_count, format_multiple, format_percent, format_points, format_whole
from lipt.report.price import against_its_price, better_at_its_price
from lipt.report.rivals import (
    against_classic,
    against_full,
    against_its_scorer,
    against_others,
    at_same_epoch_budget,
    price_over_random,
)
from lipt.report.significance import (
    MIN_SEEDS,
    Difference,
    compared_means,
    difference,
    mean_accuracy,
    random_rivals,
    same_budgets,
    same_epoch_budget,
    sampling_error,
    strongest_random,
)
from lipt.report.words import inside, join, length, of_seeds, run_of, shares, too_few

#: A wider interval that contains 0 tells nothing. Most choices that beat random on docs/results do so by 2 to 10
#: points, in intervals of ±0.3 to ±3: one that is wider cannot tell such a gain from a loss.
_MAX_HALF_WIDTH = 0.03
#: With so few test images that their error is larger, nothing is told: choices gain 2 to 10 points.
_MAX_TEST_ERROR = 0.1
#: Leads the reason of `auto` or of a race.
_WHY = "Why this algorithm: "
Level = Literal["wins", "loses", "tie", "mixed", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One headline, and the sentences that qualify it, the most important first."""

    headline: str
    level: Level
    sentences: list[str]
    runs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """With several selected rows: name of the run -> its part of the sentences. The others are about several runs."""

    next_step: NextStep | None = None
    """The comparison that would tell more; None if it would not help."""

    def __str__(self) -> str:
        step = [self.next_step.sentence, *self.next_step.commands({})] if self.next_step else []
        return "\n".join([self.headline, *self.sentences, *step])

    @property
    def common(self) -> list[str]:
        """The sentences that are about several runs."""
        return self.sentences[sum(map(len, self.runs.values())) :]


def judge(rows: Sequence[Row]) -> Verdict:
    """The verdict over all selected rows; "unknown" if nothing was selected or no random row has the same budgets.

    A sentence about several of them, such as the reason for the algorithm, is said once, at the end.
    """
    selected = [row for row in rows if row.role == "selected"]
    if not selected:
        return Verdict(headline="Nothing to judge: no method was selected.", level="unknown", sentences=[])
    if len(selected) == 1:
        return _judge_one(selected[0], rows)
    verdicts = [_judge_one(*_below_heading(row, rows)) for row in selected]
    levels = [verdict.level for verdict in verdicts]
    sayers: dict[str, list[str]] = {}
    for row, verdict in zip(selected, verdicts, strict=True):
        for text in verdict.sentences:
            sayers.setdefault(text, []).append(run_of(row))
    runs: dict[str, list[str]] = {}
    for row, verdict in zip(selected, verdicts, strict=True):
        told = runs.setdefault(run_of(row), [])
        told += [verdict.headline, *(text for text in verdict.sentences if len(sayers[text]) == 1)]
    each = [text for told in runs.values() for text in told]
    common = [_of_several(text, of, len(selected)) for text, of in sayers.items() if len(of) > 1]
    headline = "No comparison with random shows a difference."
    if not {"tie", "unknown"}.issuperset(levels):
        won = levels.count("wins") + levels.count("mixed")
        headline = f"Beats random in {won} of {len(levels)} comparisons at equal budgets."
    level = levels[0] if len(set(levels)) == 1 else "mixed"
    step = NextStep.joined([verdict.next_step for verdict in verdicts if verdict.next_step])
    return Verdict(headline=headline, level=level, sentences=each + common, runs=runs, next_step=step)


def _of_several(text: str, runs: Sequence[str], of: int) -> str:
    """A sentence that several runs share; it names them, unless it is about all."""
    return text if len(runs) == of else f"{join(runs)}: {text.removeprefix(_WHY)}"


def _below_heading(row: Row, rows: Sequence[Row]) -> tuple[Row, list[Row]]:
    """The row and all rows; those of its run without the run's name, which stands above the sentences."""
    short = [
        other.model_copy(update={"label": other.label.partition(" [")[0]}) if run_of(row) in other.runs else other
        for other in rows
    ]
    return short[next(at for at, other in enumerate(rows) if other is row)], short


def _judge_one(row: Row, rows: Sequence[Row]) -> Verdict:
    others = [other for other in rows if other is not row and other.data == row.data]
    random = None if row.algorithm in RANDOM else strongest_random(row, others)
    sentences = [
        *against_others(row, [other for other in others if other is not random]),
        *at_same_epoch_budget(row, others),
        *against_full(row, others),
        *against_classic(row, others),
    ]
    if row.algorithm in RANDOM:
        price = [*against_its_price(row, others), *against_its_scorer(row)]
        told = [*_why(row), *_price_of_race(row), _accuracy(row), *_other_images(row, others), *price]
        sentences = [*told, *sentences, *_instead(row, others)]
        step = NextStep.after_random(row)
        return Verdict(headline=_random_headline(row), level="unknown", sentences=sentences, next_step=step)
    if random is None:
        headline = f"Unknown: no random baseline has the budgets of {row.label}: {shares(row)}, {length(row)}."
        price = [*against_its_price(row, others), *against_its_scorer(row)]
        told = [_accuracy(row), *_other_images(row, others), *price]
        if not random_rivals(row, others):
            told.append("`train.random_baseline: true` also trains on a random subset of the same size.")
        return Verdict(headline=headline, level="unknown", sentences=[*told, *sentences])
    delta = difference(row, random)
    step = NextStep.after(row, random, delta) if _open(delta) and not _few_images(row, delta) else None
    worth = against_its_price(row, others, random, compared_next=step is not None)
    price = [*price_over_random(row, random), *worth, *against_its_scorer(row)]
    sentences = [_evidence(row, random, delta), *price, *sentences, *_why(row)]
    headline = _headline(row, random, delta)
    level: Level = delta.level
    if level == "wins" and (better := better_at_its_price(row, others)):
        headline, level = f"{headline.removesuffix('.')}, but not {' or '.join(better)}.", "mixed"
    return Verdict(headline=headline, level=level, sentences=sentences, next_step=step)


def _other_images(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """The random rows that took as many steps, but on too many or too few images to be ranked."""
    for other in random_rivals(row, others):
        seen_alike = other.model_copy(update={"images": row.images})
        if row.images and other.images and same_budgets(row, seen_alike) and not same_budgets(row, other):
            yield (
                f"{other.label} took as many steps, but saw {format_whole(other.images)} images, not "
                f"{format_whole(row.images)}. A smaller `train.batch_size` brings the two closer: rows are ranked if "
                "they differ by 5 % at most."
            )


def _open(delta: Difference) -> bool:
    """Whether more seeds are needed to tell anything."""
    if delta.half_width is None:
        return not delta.at_chance
    return delta.level == "tie" and delta.half_width > _MAX_HALF_WIDTH


def _few_images(row: Row, delta: Difference) -> bool:
    """Whether the test set is too small to tell anything, so that neither more seeds nor more steps help."""
    error = sampling_error(mean_accuracy(row), row.num_test_images)
    return error > _MAX_TEST_ERROR and abs(delta.mean) <= delta.test_half_width


def _headline(row: Row, random: Row, delta: Difference) -> str:
    points, budgets = format_points(delta.mean), shares(row)
    if (delta.level == "unknown" or _open(delta)) and _few_images(row, delta):
        images = format_count(row.num_test_images, "test image")
        return f"{row.label} against {inside(random)} at {budgets}: {images} cannot tell which is better."
    if delta.at_chance:
        return f"{row.label} and {inside(random)} are both at chance at {budgets}: the comparison says nothing."
    if delta.level == "unknown":
        return (
            f"{row.label}: {points} points against {inside(random)} at {budgets}; "
            f"{too_few(delta)} not enough to tell which is better."
        )
    if delta.half_width is not None and _open(delta):
        low, high = _interval(delta, delta.half_width)
        more = "five or more" if delta.num_seeds < ENOUGH_SEEDS else "more"
        return (
            f"{row.label} against {inside(random)} at {budgets}: {delta.num_seeds} seeds cannot tell; the difference "
            f"lies between {low} and {high} points. Run {more}."
        )
    claim = {
        "wins": f"{row.label} beats {inside(random)}",
        "loses": f"{row.label} does not beat {inside(random)}: it is worse",
        "tie": f"{row.label} does not measurably beat {inside(random)}",
    }[delta.level]
    return f"{claim}, {points} points at {budgets}."


def _random_headline(row: Row) -> str:
    if row.kept_fraction < 1:
        why = "no model chose it" if row.race_flops is None else "it won a race of selections"
        return f"{row.label} is a random subset ({shares(row)}): {why}."
    if row.epoch_fraction < 1:
        return f"{row.label} draws afresh in each epoch ({shares(row)}): nothing is selected."
    return f"{row.label} trains on all of the data: nothing is selected."


def _why(row: Row) -> Iterator[str]:
    if row.reason and not (row.algorithm in RANDOM and row.kept_fraction == 1):  # then nothing was chosen
        first, *rest = re.split(r"\. (?=[A-Z])", row.reason)
        yield f"{_WHY}{first}."
        yield from (f"{sentence}." for sentence in rest)


def _price_of_race(row: Row) -> Iterator[str]:
    """The cost of a race that a random subset won: without the race that subset costs nothing."""
    if row.race_flops and row.train_flops:
        multiple = format_multiple(row.race_flops / row.train_flops)
        yield (
            f"The race and its scores took {multiple} the FLOPs of the training, and chose a random subset, which "
            "alone costs nothing."
        )


def _instead(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """Alternatives to a random subset."""
    if row.kept_fraction < 1:
        fresh = (
            "; or, if you can keep all data, fresh draws with equal training (select.algorithm: random, "
            f"select.fraction: 1, train.epoch_fraction: {row.epoch_fraction:g})"
        )
        if any(other.name == "rs2" and same_epoch_budget(row, other) for other in others):
            fresh = ""  # that row is compared above
        yield f"Alternatives: a smaller select.fraction; another select.algorithm{fresh}."
    if others and len(row.seeds) < MIN_SEEDS:
        yield f"Fewer than {MIN_SEEDS} seeds are not enough to tell which is better."


def _accuracy(row: Row) -> str:
    return f"{row.label} reaches {format_percent(mean_accuracy(row))} after {length(row)}."


def _evidence(row: Row, random: Row, delta: Difference) -> str:
    """The two accuracies, the interval, and the evidence that the seeds give."""
    ours, theirs = map(format_percent, compared_means(row, random))
    numbers = f"Test accuracy: {ours} against {theirs}{of_seeds(row, random)} after {length(row)}"
    told = numbers
    if delta.half_width is not None and not delta.at_chance:
        low, high = _interval(delta, delta.half_width)
        told += f"; 95 % interval {low} to {high} ({delta.num_seeds} seeds, paired by seed)"
    if _few_images(row, delta):
        error = 100 * sampling_error(mean_accuracy(row), row.num_test_images)
        return (
            f"{told}; with {format_count(row.num_test_images, 'test image')} an accuracy has an error of about "
            f"±{error:.0f} points (95 %). Use more test images: add some to the test split; without one, raise "
            "`data.test_fraction`."
        )
    if delta.at_chance:
        return (
            f"{numbers}; always predicting the most frequent class is right for {format_percent(row.chance)} of the "
            f"{row.num_test_images:,} test images. Keep more images (`select.fraction`), or train for more steps: "
            "longer (`train.epochs`), or in smaller batches (`train.batch_size`)."
        )
    if delta.half_width is None:
        return (
            f"{numbers}; the {row.num_test_images:,} test images alone allow an error of "
            f"about ±{100 * delta.test_half_width:.2f} points (95 %), and another seed draws other weights and splits."
        )
    return f"{told}."


def _interval(delta: Difference, half_width: float) -> tuple[str, str]:
    """The ends of the 95 % interval, in points. Accuracies cannot differ by more than 100."""
    return format_points(max(delta.mean - half_width, -1)), format_points(min(delta.mean + half_width, 1))
