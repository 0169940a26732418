"""The verdict: does the selected subset beat random, what does it save, and what else would help more.

Rows are ranked only at equal data budget (share of the data kept), equal epoch budget (share trained on per epoch)
and equal epochs. If budgets differ, the sentence says so. "Beats" and "better" need three seeds or more
(`significance`). With fewer seeds, or at chance, the verdict gives the difference and says that it proves nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lipt.report.document import RANDOM, Row
from lipt.report.numbers import (
    format_budget,
    format_count,
    format_multiple,
    format_number,
    format_percent,
    format_points,
    format_seconds,
    format_trained,
    format_whole,
)
from lipt.report.significance import (
    MIN_SEEDS,
    Difference,
    compared_means,
    difference,
    mean_accuracy,
    same_budgets,
    same_epoch_budget,
    strongest_random,
)

#: `MIN_SEEDS` show only large differences.
_ADVISED_SEEDS = 5
Level = Literal["wins", "loses", "tie", "mixed", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One headline, and the sentences that qualify it, the most important first."""

    headline: str
    level: Level
    sentences: list[str]
    runs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """With several selected rows: name of the run -> its part of the sentences. The others are about all runs."""

    @property
    def common(self) -> list[str]:
        """The sentences that are about all runs."""
        return self.sentences[sum(map(len, self.runs.values())) :]


def judge(rows: Sequence[Row]) -> Verdict:
    """The verdict over all selected rows; "unknown" if nothing was selected or no random row has the same budgets.

    A sentence about all of them, such as the reason for the algorithm, is said once, at the end.
    """
    selected = [row for row in rows if row.role == "selected"]
    if not selected:
        return Verdict(headline="Nothing to judge: no method was selected.", level="unknown", sentences=[])
    verdicts = [_judge_one(row, rows) for row in selected]
    if len(verdicts) == 1:
        return verdicts[0]
    levels = [verdict.level for verdict in verdicts]
    common = [text for text in verdicts[0].sentences if all(text in verdict.sentences for verdict in verdicts)]
    runs: dict[str, list[str]] = {}
    for row, verdict in zip(selected, verdicts, strict=True):
        told = runs.setdefault(_run(row), [])
        told += [text for text in (verdict.headline, *verdict.sentences) if text not in common]
    each = [text for told in runs.values() for text in told]
    headline = "No comparison shows a difference."
    if not {"tie", "unknown"}.issuperset(levels):
        headline = f"Beats random in {levels.count('wins')} of {len(levels)} comparisons at equal budgets."
    level = levels[0] if len(set(levels)) == 1 else "mixed"
    return Verdict(headline=headline, level=level, sentences=each + common, runs=runs)


def _judge_one(row: Row, rows: Sequence[Row]) -> Verdict:
    others = [other for other in rows if other is not row and other.data == row.data]
    random = None if row.algorithm in RANDOM else strongest_random(row, others)
    sentences = [
        *_against_others(row, [other for other in others if other is not random]),
        *_at_same_epoch_budget(row, others),
        *_against_full(row, others),
        *_against_classic(row, others),
    ]
    if row.algorithm in RANDOM:
        sentences = [*_why(row), _accuracy(row), *sentences, *_instead(row, others)]
        return Verdict(headline=_random_headline(row), level="unknown", sentences=sentences)
    if random is None:
        headline = f"Unknown: no random baseline has the budgets of {row.label}: {_shares(row)}, {_length(row)}."
        return Verdict(headline=headline, level="unknown", sentences=[_accuracy(row), *sentences])
    delta = difference(row, random)
    price = [*_price_over_random(row, random), *_against_longer(row, random, others)]
    sentences = [_evidence(row, random, delta), *price, *sentences, *_why(row)]
    return Verdict(headline=_headline(row, random, delta), level=delta.level, sentences=sentences)


def _headline(row: Row, random: Row, delta: Difference) -> str:
    points, shares = format_points(delta.mean), _shares(row)
    if delta.at_chance:
        return f"{row.label} and {_short(random)} are both at chance at {shares}: the comparison says nothing."
    if delta.level == "unknown":
        return (
            f"{row.label}: {points} points against {_short(random)} at {shares}; "
            f"{_seeds(delta)} not enough to tell which is better."
        )
    claim = {
        "wins": f"{row.label} beats {_short(random)}",
        "loses": f"{row.label} does not beat {_short(random)}: it is worse",
        "tie": f"{row.label} does not measurably beat {_short(random)}",
    }[delta.level]
    return f"{claim}, {points} points at {shares}."


def _short(row: Row) -> str:
    """The label without its explanation, with its run: `RS2 [RUN]` of `RS2: fresh random draw every epoch [RUN]`."""
    label, bracket, run = row.label.partition(" [")
    return label.partition(":")[0] + bracket + run


def _run(row: Row) -> str:
    """The name of the run in a label, `RUN` of `LiPT [RUN]`; without one, the label."""
    return row.label.partition(" [")[2].removesuffix("]") or row.label


def _random_headline(row: Row) -> str:
    if row.kept_fraction < 1:
        return f"{row.label} is a random subset ({_shares(row)}): no model chose it."
    if row.epoch_fraction < 1:
        return f"{row.label} draws afresh in each epoch ({_shares(row)}): nothing is selected."
    return f"{row.label} trains on all of the data: nothing is selected."


def _why(row: Row) -> Iterator[str]:
    if row.reason and not (row.algorithm in RANDOM and row.kept_fraction == 1):  # then nothing was chosen
        yield f"Why: {row.reason}."


def _instead(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """Alternatives to a random subset."""
    if row.kept_fraction < 1:
        yield (
            "Alternatives: a smaller select.fraction; another select.algorithm; or, if you can keep all data, fresh "
            "draws with equal training (select.algorithm: random, select.fraction: 1, train.epoch_fraction: "
            f"{row.epoch_fraction:g})."
        )
    if others and len(row.seeds) < MIN_SEEDS:
        yield f"Fewer than {MIN_SEEDS} seeds are not enough to tell which is better."


def _seeds(delta: Difference) -> str:
    return {0: "no common seed is", 1: "one seed is"}.get(delta.num_seeds, f"{delta.num_seeds} seeds are")


def _shares(row: Row) -> str:
    kept, per_epoch = format_budget(row.kept_fraction), format_trained(row.epoch_fraction, row.draw)
    return f"{kept} of the data" + (f" kept, {per_epoch} trained on per epoch" if kept != per_epoch else "")


def _length(row: Row) -> str:
    if row.steps is None:
        return format_count(row.epochs, "epoch")
    steps = "1 step" if row.steps == 1 else f"{format_whole(row.steps)} steps"
    return f"{format_count(row.epochs, 'epoch')} ({steps}, {format_whole(row.images)} images)"


def _accuracy(row: Row) -> str:
    return f"{row.label} reaches {format_percent(mean_accuracy(row))} after {_length(row)}."


def _evidence(row: Row, random: Row, delta: Difference) -> str:
    """The two accuracies, the interval, and the evidence that the seeds give."""
    ours, theirs = map(format_percent, compared_means(row, random))
    numbers = f"Test accuracy: {ours} against {theirs} after {_length(row)}"
    if delta.at_chance:
        return (
            f"{numbers}; always predicting the most frequent class is right for {format_percent(row.chance)} of the "
            f"{row.num_test_images:,} test images. Train longer, or check the learning rate and the data."
        )
    if delta.half_width is None:
        return (
            f"{numbers}; the {row.num_test_images:,} test images alone allow an error of "
            f"±{100 * delta.test_half_width:.2f} points, and another seed draws other weights and splits. To find out, "
            f"run `lipt compare` with {_ADVISED_SEEDS} or more seeds in `compare.seeds`."
        )
    low, high = (format_points(delta.mean + sign * delta.half_width) for sign in (-1, 1))
    return f"{numbers}; 95 % interval {low} to {high} ({delta.num_seeds} seeds, paired by seed)."


def _price_over_random(row: Row, random: Row) -> Iterator[str]:
    """The cost of the selection, compared with random, which costs nothing."""
    ratios = list(_ratios(row, random))
    if ratios:
        yield f"Compared with {_short(random)}, {row.label} takes {_join(ratios)}."


def _against_longer(row: Row, random: Row, others: Sequence[Row]) -> Iterator[str]:
    """Whether the choice is worth its FLOPs: compared with random that spends them on more steps.

    Without that row: how many FLOPs the choice takes, and which row tells whether they are worth it.
    """
    longer_rows = [other for other in others if other.role == "longer" and _spends_as_much(other, row)]
    if not longer_rows and row.flops and random.flops and row.flops > random.flops and not random.pretrain_cost:
        share = format_budget((row.flops - random.flops) / random.flops)
        yield (
            f"The choice took {share} of the FLOPs of the training. The row `random-longer` of `lipt compare` shows "
            "whether more steps on a random subset gain more."
        )
    for longer in longer_rows:
        delta = difference(row, longer)
        steps = f"{format_whole(longer.steps or 0)} instead of {format_whole(row.steps or 0)}"
        meaning = {
            "wins": "the choice is worth its FLOPs",
            "loses": "the steps are worth more than the choice",
            "tie": f"{delta.num_seeds} seeds cannot tell which is worth more",
            "unknown": "both are at chance" if delta.at_chance else f"{_seeds(delta)} not enough to tell",
        }[delta.level]
        yield (
            f"With the FLOPs of the choice as more steps ({steps}), a class-balanced random subset reaches "
            f"{format_percent(compared_means(row, longer)[1])}; {row.label} is {format_points(delta.mean)} points "
            f"from it: {meaning}."
        )


def _spends_as_much(longer: Row, row: Row) -> bool:
    """Whether a random subset that is trained longer is as large, and took as many FLOPs in all, as this choice.

    That of another run, side by side, may be another one. A whole number of steps can miss the FLOPs by a little.
    """
    shares = ((longer.kept_fraction, row.kept_fraction), (longer.epoch_fraction, row.epoch_fraction))
    if not all(math.isclose(one, other, rel_tol=0.01) for one, other in shares):
        return False
    return None in (longer.flops, row.flops) or math.isclose(longer.flops or 0, row.flops or 0, rel_tol=0.1)


def _against_others(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """Other methods and ablations at the same budgets, each with its difference. Draws by losses from a random subset
    are compared with uniform ones."""
    roles = {"other", "classic"} | ({"random"} if row.algorithm in RANDOM and row.draw != "uniform" else set())
    rivals = [other for other in others if other.role in roles and same_budgets(row, other)]
    if rivals:
        yield f"At the same budgets: {'; '.join(_rival(other, row) for other in rivals)}."


def _rival(other: Row, row: Row) -> str:
    return f"{other.label} {_difference(other, row)}"


def _difference(other: Row, row: Row) -> str:
    delta = difference(other, row)
    meaning = {
        "wins": " (better)",
        "loses": " (worse)",
        "tie": f" (within the noise of {delta.num_seeds} seeds)",
        "unknown": " (both at chance)" if delta.at_chance else "",
    }[delta.level]
    return f"{format_points(delta.mean)} points{meaning}"


def _at_same_epoch_budget(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """Methods that train on as much per epoch but keep more (or less) data: equal compute, different data; the best
    one first."""
    rivals = [other for other in others if same_epoch_budget(row, other) and not same_budgets(row, other)]
    rivals.sort(key=mean_accuracy, reverse=True)
    for other in rivals:
        kept = format_budget(other.kept_fraction)
        yield (
            f"{_short(other)} keeps {kept} of the data and trains on as many images per epoch: "
            f"{_difference(other, row)}."
        )


def _against_full(row: Row, others: Sequence[Row]) -> Iterator[str]:
    for full in (other for other in others if other.role == "full"):
        epochs = "" if full.epochs == row.epochs else f" for {_length(full)}"
        ours, theirs = compared_means(row, full)
        ratios = list(_ratios(row, full))
        cost = f" at {_join(ratios)}" if ratios else ""
        yield (
            f"Training on everything{epochs} reaches {format_percent(theirs)}: "
            f"{row.label} is {format_points(ours - theirs)} points from it{cost}."
        )


def _ratios(row: Row, reference: Row) -> Iterator[str]:
    """ "0.3x the wall-clock (22 s of 70 s)" and so on, for each cost that both rows measured."""
    wall_s, reference_s = sum(row.stage_wall_s.values()), sum(reference.stage_wall_s.values())
    if wall_s and reference_s:
        times = f"{format_seconds(wall_s)} against {format_seconds(reference_s)}"
        yield f"{format_multiple(wall_s / reference_s)} the wall-clock ({times})"
    for ours, theirs, what in (
        (row.data_bytes, reference.data_bytes, "the data bytes"),
        (row.flops, reference.flops, "the FLOPs"),
    ):
        if ours is not None and theirs:
            yield f"{format_multiple(ours / theirs)} {what}"


def _against_classic(row: Row, others: Sequence[Row]) -> Iterator[str]:
    for classic in (other for other in others if other.role == "classic"):
        if row.pretrain_cost and classic.pretrain_cost:
            ratio = format_multiple(classic.pretrain_cost / row.pretrain_cost)
            yield (
                f"Pre-training took the FLOPs of {format_number(row.pretrain_cost)} epochs of training on all "
                f"candidates; {classic.label} took {format_number(classic.pretrain_cost)}, {ratio} as many."
            )


def _join(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
