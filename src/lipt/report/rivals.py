"""The sentences of the verdict that compare a row with others: what they reach, and what they cost."""

import math
from collections.abc import Iterator, Sequence

from lipt.report.document import Row
from lipt.report.numbers import (
    format_apart,
    format_budget,
    format_interval,
    format_multiple,
    format_number,
    format_percent,
    format_seconds,
    format_whole,
)
from lipt.report.significance import (
    at_chance,
    compared_means,
    difference,
    mean_accuracy,
    same_budgets,
    same_epoch_budget,
    sampling_error,
)
from lipt.report.words import inside, join, length, of_seeds, short, too_few

#: The algorithms that draw at random.
RANDOM = ("random", "stratified")
#: The row beside a run of RS2: a random subset of the size of one epoch, the same in every epoch. No variant has it.
FIXED = "fixed-random"
#: The random subset that is trained longer, for the FLOPs of all that the choice, the start or the first losses took;
#: `flow/compare.py` counts its steps.
LONGER = "random-longer"
#: The stage of the main training.
_TRAIN = "train"
#: The random subset whose training starts from the model that scored; from theta_p where the jigsaws score.
CONTINUED = "random-continued"


def price_over_random(row: Row, random: Row) -> Iterator[str]:
    """The cost of the selection, compared with random, which costs nothing."""
    if ratios := list(_ratios(row, random)):
        alone = f": {told}" if row.flops and random.flops and (told := _told_price(row, " alone")) else ""
        yield f"Compared with {inside(random)}, {row.label} takes {join(ratios)}{alone}."
    yield from _unlike_clocks(row, random)


def price_of_choice(row: Row) -> float | None:
    """FLOPs of the choice and of the model from which the training starts, as a share of those of the training; None if
    they took none."""
    return row.choice_flops / row.train_flops if row.choice_flops and row.train_flops else None


def _told_price(row: Row, alone: str = "") -> str:
    """`price_of_choice` in words; empty if it took none."""
    price = price_of_choice(row)
    return f"{_what_came_before(row)}{alone} took {_of_the(price)} FLOPs of the training" if price else ""


def _what_came_before(row: Row) -> str:
    """For what `price_of_choice` was spent."""
    chosen = row.algorithm not in RANDOM or row.race_flops is not None
    if row.continued:
        return "the choice and the start" if chosen else "the start"
    return "the choice" if chosen else "the first losses"


def _of_the(share: float) -> str:
    """`25 % of the`; from twice as much on `2.5 times the`."""
    return f"{format_budget(share)} of the" if share < 2 else f"{format_number(share)} times the"


def judges_of_price(row: Row) -> list[str]:
    """The variants that tell whether a choice is worth its FLOPs; none if it took none."""
    if not price_of_choice(row):
        return []
    return [LONGER, CONTINUED] if row.scorer and not row.continued else [LONGER]


def against_its_price(row: Row, others: Sequence[Row], random: Row | None = None) -> Iterator[str]:
    """Whether the choice is worth its FLOPs: compared with random that gets them as more steps, and with random that
    starts from the model for which they were spent.

    Without these rows: how many FLOPs the choice takes, and which rows tell whether they are worth it.

    Args:
        random: the row with which `price_over_random` compares.
    """
    longer_rows, continued_rows = _same_price(row, others)
    measured = {name for name, rows in ((LONGER, longer_rows), (CONTINUED, continued_rows)) if rows}
    missing = {name: _HELP[name] for name in judges_of_price(row) if name not in measured}
    if missing and (told := _told_price(row)):
        names = " and ".join(f"`{name}`" for name in missing)
        of_race = row.race_flops and row.algorithm in RANDOM  # the verdict tells the price of such a race
        if not of_race and not (random and row.flops and random.flops):
            yield f"{told[0].upper()}{told[1:]}."
        # A sentence of its own: side by side, what several runs say alike is said once.
        yield (
            f"Add {names} to `compare.variants` of `lipt compare` to see what random draws gain "
            f"{' or '.join(missing.values())}."
        )
    yield from _against_longer(row, longer_rows)
    yield from _against_continued(row, continued_rows)


def better_at_its_price(row: Row, others: Sequence[Row]) -> list[str]:
    """The random subsets of the same price that beat the choice, in words."""
    words = "one that gets its FLOPs as more steps", f"one that starts from {_start(row)}"
    return [
        text
        for text, rivals in zip(words, _same_price(row, others), strict=True)
        if any(difference(row, rival).level == "loses" for rival in rivals)
    ]


def _same_price(row: Row, others: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The random subsets that get the FLOPs of the choice: as more steps, and as the model from which they start. None
    if it took none."""
    if not row.choice_flops:
        return [], []
    longer = [other for other in others if other.role == "longer" and _spends_as_much(other, row)]
    continued = [
        other
        for other in others
        if other.role == "continued" and other.recipe == row.recipe and same_budgets(row, other)
    ]
    return longer, continued


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
    on_test = f"{row.label} for {format_percent(reached)} of the {row.num_test_images:,} test images"
    if row.continued and accuracy >= reached:
        yield (
            f"The model from which the training started, {row.scorer}, is right {on_validation}, {on_test}. "
            "So this training may have gained nothing."
        )
    elif not row.continued and accuracy > reached:
        error = sampling_error(reached, row.num_test_images)
        if row.num_validation_images:
            error = math.hypot(error, sampling_error(accuracy, row.num_validation_images))
        apart = accuracy - reached > error
        yield (
            f"The model from which the training could start, {row.scorer}, is "
            f"{'more often right:' if apart else 'right'} {on_validation}, "
            f"{on_test}{'' if apart else ': too few images to tell which is better'}. "
            "`train.start: continue` goes on from it."
        )


_HELP = {LONGER: "from more steps", CONTINUED: "from a start with trained weights"}


def _start(row: Row) -> str:
    """The model from which the training could start, or does."""
    return row.scorer or "the model that scored"


def _against_continued(row: Row, continued_rows: Sequence[Row]) -> Iterator[str]:
    worth = (
        "the choice is worth more than this start",
        "this start is worth more than the choice (`train.start: continue`)",
    )
    for continued in continued_rows:
        yield _distance(f"Trained on from {_start(row)}", row, continued, *worth)


def _against_longer(row: Row, longer_rows: Sequence[Row]) -> Iterator[str]:
    before = _what_came_before(row)
    singular = before in ("the choice", "the start")
    worth = (
        f"{before} {'is worth its' if singular else 'are worth their'} FLOPs",
        f"the steps are worth more than {before}",
    )
    for longer in longer_rows:
        steps = f"{format_whole(longer.steps or 0)} instead of {format_whole(row.steps or 0)}"
        yield _distance(f"With the FLOPs of {before} as more steps ({steps})", row, longer, *worth)


def _what_is_drawn(random: Row) -> str:
    """A random row in words."""
    if random.kept_fraction < 1:
        return "a class-balanced random subset"
    return "RS2" if random.epoch_fraction < 1 else "a training on all data"


def _distance(given: str, row: Row, rival: Row, wins: str, loses: str) -> str:
    """How far the choice is from a random subset that was given its FLOPs in another form, and what that means."""
    delta = difference(row, rival)
    meaning = {
        "wins": wins,
        "loses": loses,
        "tie": f"{delta.num_seeds} seeds cannot tell which is worth more",
        "unknown": "both are at chance" if delta.at_chance else f"{too_few(delta)} not enough to tell",
    }[delta.level]
    return (
        f"{given}, {_what_is_drawn(rival)} reaches {format_percent(compared_means(row, rival)[1])}"
        f"{of_seeds(row, rival)}; {row.label} is {format_apart(delta.mean)} it: {meaning}."
    )


def _spends_as_much(longer: Row, row: Row) -> bool:
    """Whether a random subset that is trained longer is as large, and took as many FLOPs, as this choice.

    That of another run, side by side, may be another one. A whole number of steps can miss the FLOPs by a step. A
    choice that is made again and again keeps all data, and the random subset beside it does not.
    """
    same_kept = row.kept_fraction == 1 or math.isclose(longer.kept_fraction, row.kept_fraction, rel_tol=0.01)
    same_drawn = math.isclose(longer.epoch_fraction, row.epoch_fraction, rel_tol=0.01)
    if longer.recipe != row.recipe or not (same_kept and same_drawn):
        return False
    step = (row.train_flops or 0) / (row.steps or math.inf)
    return abs((longer.flops or 0) - (row.flops or 0)) <= max(0.1 * (row.choice_flops or 0), step)


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
