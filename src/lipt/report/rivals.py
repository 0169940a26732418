"""The sentences of the verdict that compare a row with others: what they reach, and what they cost."""

import math
from collections.abc import Iterator, Sequence

from lipt.report.document import Row
from lipt.report.names import RANDOM
from lipt.report.numbers import (
    format_apart,
    format_budget,
    format_interval,
    format_multiple,
    format_number,
    format_percent,
    format_seconds,
)
from lipt.report.price import told_price
from lipt.report.significance import (
    at_chance,
    compared_means,
    difference,
    mean_accuracy,
    same_budgets,
    same_epoch_budget,
    sampling_error,
)
from lipt.report.words import inside, join, length, of_seeds, short

#: The stage of the main training.
_TRAIN = "train"


def price_over_random(row: Row, random: Row) -> Iterator[str]:
    """The cost of the selection, compared with random, which costs nothing."""
    if ratios := list(_ratios(row, random)):
        alone = f": {told}" if row.flops and random.flops and (told := told_price(row, " alone")) else ""
        yield f"Compared with {inside(random)}, {row.label} takes {join(ratios)}{alone}."
    yield from _unlike_clocks(row, random)


def against_its_scorer(row: Row) -> Iterator[str]:
    """Whether the model from which the training could start, usually the one that scored, is better than the network
    that was trained on the choice; or at least as good, if it was the start. Nothing if it is at chance.

    The two were measured on other images. Where their errors reach further than their distance, no claim is made.
    """
    accuracy, reached = row.scorer_accuracy, mean_accuracy(row)
    if not row.scorer or accuracy is None or at_chance(row, accuracy):
        return
    count = f"{row.num_validation_images:,} " if row.num_validation_images else ""
    on_validation = f"for {format_percent(accuracy)} of the {count}validation images"
    on_test = f"and {row.label} for {format_percent(reached)} of the {row.num_test_images:,} test images"
    if row.continued and accuracy >= reached:
        yield (
            f"The training started from {row.scorer}, which is right {on_validation}, {on_test}. "
            "So this training may have gained nothing."
        )
    elif not row.continued and accuracy > reached:
        error = sampling_error(reached, row.num_test_images)
        if row.num_validation_images:
            error = math.hypot(error, sampling_error(accuracy, row.num_validation_images))
        apart = accuracy - reached > error
        yield (
            f"The training could start from {row.scorer}, which is {'better: it is ' if apart else ''}right "
            f"{on_validation}, {on_test}{'' if apart else ': too few images to tell which is better'}. "
            "`train.start: continue` does so."
        )


def against_others(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """Other methods and ablations at the same budgets, each with its difference. Draws by losses from a random subset
    are compared with uniform ones."""
    roles = {"other", "classic"} | ({"random"} if row.algorithm in RANDOM and row.draw != "uniform" else set())
    rivals = [other for other in others if other.role in roles and same_budgets(row, other)]
    if rivals:
        yield f"Compared with {row.label}, at the same budgets: {'; '.join(_rival(other, row) for other in rivals)}."


def _rival(other: Row, row: Row) -> str:
    return f"{other.label} {_difference(other, row)}"


def _difference(other: Row, row: Row) -> str:
    """The difference as in the table, and what it tells."""
    delta = difference(other, row)
    meaning = {
        "wins": " (better)",
        "loses": " (worse)",
        "tie": f" ({delta.num_seeds} seeds cannot tell)",
        "unknown": " (both at chance)" if delta.at_chance else "",
    }[delta.level]
    return f"{format_interval(delta.mean, delta.half_width)} points{meaning}"


def at_same_epoch_budget(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """Methods that train on as much per epoch but keep more (or less) data: equal compute, different data; the best
    one first."""
    rivals = [other for other in others if same_epoch_budget(row, other) and not same_budgets(row, other)]
    rivals.sort(key=mean_accuracy, reverse=True)
    for other in rivals:
        kept = format_budget(other.kept_fraction)
        yield (
            f"{short(other)} keeps {kept} of the data and trains on as many images per epoch: "
            f"{_difference(other, row)}."
        )


def against_full(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """The distance from a training on everything, and what was saved."""
    for full in (other for other in others if other.role == "full"):
        epochs = "" if full.epochs == row.epochs else f" for {length(full)}"
        ours, theirs = compared_means(row, full)
        # Then the time of this run is not typical. Runs side by side may be of other machines.
        own = [other for other in others if not row.runs or not {*row.runs}.isdisjoint(other.runs)]
        uneven = any(_uneven_pace(row, other) for other in own)
        ratios = list(_ratios(row, full, timed=not uneven))
        cost = f" at {join(ratios)}" if ratios else ""
        yield (
            f"Training on everything{epochs} reaches {format_percent(theirs)}{of_seeds(row, full)}: "
            f"{row.label} is {format_apart(ours - theirs)} it{cost}."
        )
        yield from _unlike_clocks(row, full)


def _ratios(row: Row, reference: Row, *, timed: bool = True) -> Iterator[str]:
    """ "0.3x the wall-clock (22 s of 70 s)" and so on, for each cost that both rows measured.

    Args:
        timed: False leaves out the wall-clock, as where the two cannot be compared.
    """
    wall_s, reference_s = sum(row.stage_wall_s.values()), sum(reference.stage_wall_s.values())
    if timed and wall_s and reference_s and not [*_unlike_clocks(row, reference)]:
        times = f"{format_seconds(wall_s)} against {format_seconds(reference_s)}"
        yield f"{format_multiple(wall_s / reference_s)} the wall-clock ({times})"
    for ours, theirs, what in (
        (row.data_bytes, reference.data_bytes, "the data bytes"),
        (row.flops, reference.flops, "the FLOPs"),
    ):
        if ours is not None and theirs:
            yield f"{format_multiple(ours / theirs)} {what}"


#: Trainings of equal length whose times differ by more than this factor ran under different conditions.
_UNEVEN = 2.0


def _unlike_clocks(row: Row, reference: Row) -> Iterator[str]:
    """Why the wall-clocks of the two cannot be compared; nothing if they can."""
    if row.machine and reference.machine and row.machine != reference.machine:
        why = f"the trainings ran on {row.machine} and on {reference.machine}"
    elif _uneven_pace(row, reference):
        times = f"{format_seconds(row.stage_wall_s[_TRAIN])} and {format_seconds(reference.stage_wall_s[_TRAIN])}"
        why = f"the trainings of equal length took {times}"
    else:
        return
    yield f"The wall-clocks of {row.label} and {inside(reference)} cannot be compared: {why}."


def _uneven_pace(row: Row, other: Row) -> bool:
    """Whether two trainings of equal length took very different times, as on a machine that did other work.

    A choice that is made again and again keeps all data, and its training takes longer.
    """
    times = sorted(each.stage_wall_s.get(_TRAIN, 0.0) for each in (row, other))
    alike = row.kept_fraction < 1 and row.draw == other.draw and same_budgets(row, other)
    return alike and 0 < _UNEVEN * times[0] < times[1]


def against_classic(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """The cost of the pre-training, compared with a classic one."""
    for classic in (other for other in others if other.role == "classic"):
        if row.pretrain_cost and classic.pretrain_cost:
            ratio = format_multiple(classic.pretrain_cost / row.pretrain_cost)
            yield (
                f"Pre-training took the FLOPs of {format_number(row.pretrain_cost)} epochs of training on all "
                f"candidates; {classic.label} took {format_number(classic.pretrain_cost)}, {ratio} as many."
            )
