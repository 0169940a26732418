"""The sentences of the verdict about what a choice costs, and about random subsets that get its FLOPs."""

import math
from collections.abc import Iterator, Sequence

from lipt.report.document import Row
from lipt.report.names import CONTINUED, LONGER, RANDOM
from lipt.report.numbers import format_apart, format_budget, format_number, format_percent, format_whole
from lipt.report.significance import compared_means, difference, same_budgets
from lipt.report.words import of_seeds, too_few


def price_of_choice(row: Row) -> float | None:
    """FLOPs of the choice and of the model from which the training starts, as a share of those of the training; None if
    they took none."""
    return row.choice_flops / row.train_flops if row.choice_flops and row.train_flops else None


def told_price(row: Row, alone: str = "") -> str:
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


def against_its_price(
    row: Row, others: Sequence[Row], random: Row | None = None, *, compared_next: bool = False
) -> Iterator[str]:
    """Whether the choice is worth its FLOPs: compared with random that gets them as more steps, and with random that
    starts from the model for which they were spent.

    Without these rows: how many FLOPs the choice takes, and which rows tell whether they are worth it.

    Args:
        random: the row with which `price_over_random` compares.
        compared_next: the verdict ends with a `NextStep`, which has these rows.
    """
    longer_rows, continued_rows = _same_price(row, others)
    measured = {name for name, rows in ((LONGER, longer_rows), (CONTINUED, continued_rows)) if rows}
    missing = {name: _HELP[name] for name in judges_of_price(row) if name not in measured}
    if missing and (told := told_price(row)):
        names = " and ".join(f"`{name}`" for name in missing)
        of_race = row.race_flops and row.algorithm in RANDOM  # the verdict tells the price of such a race
        if not of_race and not (random and row.flops and random.flops):
            yield f"{told[0].upper()}{told[1:]}."
        # A sentence of its own: side by side, what several runs say alike is said once.
        gains = f"what random draws gain {' or '.join(missing.values())}"
        if compared_next:
            yield f"The comparison below also has {names}, to show {gains}."
        else:
            yield f"Add {names} to `compare.variants` of `lipt compare` to see {gains}."
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
