"""The results of a sweep: lines of JSON, a table, and claims that are tested on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from lipt.errors import IntegrityError, in_one_line
from lipt.pipeline import PRETRAINING
from lipt.report.document import Row
from lipt.report.fields import STRICT, require
from lipt.report.numbers import DASH, format_flops, format_interval, format_number, format_seconds, format_whole
from lipt.report.significance import Difference, deviation, difference, mean_accuracy, same_epoch_budget

#: Headings of the usual rows; other rows are called by their names.
_HEADINGS = {"lipt": "ours", "stratified": "random", "random-longer": "longer random", "rs2": "RS2"}
#: Fields of a row -> headings.
_BUDGETS = {"steps": "steps", "images": "images seen"}
_VERDICTS = {"wins": "yes", "loses": "no, reversed", "tie": "not told apart", "unknown": "too few seeds"}
_AT_CHANCE = "both are at chance"
_OTHER_BUDGETS = "other budgets"
#: The heading of the configuration itself.
OURS = _HEADINGS["lipt"]
LEGEND = (
    "Accuracies in %, mean ± standard deviation over n seeds. Differences in points with their 95 % interval, paired "
    "by seed (Student's t); bold: it excludes 0."
)


class Result(BaseModel):
    """The rows of one point of the grid."""

    model_config = STRICT

    point: dict[str, Any]
    """Axis -> value."""
    rows: list[Row]

    @model_validator(mode="after")
    def _has_our_row(self) -> Self:
        require(any(row.role == "selected" for row in self.rows), "no row is the selected one")
        return self

    def row(self, name: str) -> Row | None:
        """The row of this variant."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def ours(self) -> Row:
        """The row of the configuration itself."""
        return next(row for row in self.rows if row.role == "selected")

    @property
    def random(self) -> Row | None:
        """The random subset with which it is compared: the class-balanced one, if there is one."""
        return self.row("stratified") or next((row for row in self.rows if row.role == "random"), None)

    @property
    def gain(self) -> Difference | None:
        """Our accuracy minus the accuracy of random, if that takes as many steps on as many images."""
        ours, random = self.ours, self.random
        return difference(ours, random) if random and same_epoch_budget(ours, random) else None

    @property
    def is_random(self) -> bool:
        """Whether our row is the random one, as that of `auto` above 5 % without a trajectory, or keeps all images as
        that does. Draws by losses from the same subset are another training."""
        ours, random = self.ours, self.random
        if random is None or not ours.algorithm:
            return False
        same = ours.algorithm == random.algorithm or ours.kept_fraction == random.kept_fraction == 1
        return same and ours.draw == random.draw

    @property
    def gain_over_longer(self) -> Difference | None:
        """Our accuracy minus the accuracy of random that gets the cost of the choice as more steps."""
        longer = next((row for row in self.rows if row.role == "longer"), None)
        return difference(self.ours, longer) if longer else None


def to_lines(results: Sequence[Result]) -> str:
    """A line of JSON per point."""
    return "".join(f"{result.model_dump_json()}\n" for result in results)


def read_lines(text: str, origin: str) -> list[Result]:
    """The results that `to_lines` wrote. Fields of rows that this version does not know are ignored.

    Raises:
        IntegrityError: a line is something else.
    """
    try:
        found = [json.loads(line) for line in text.splitlines()]
        rows = [[{key: row[key] for key in row if key in Row.model_fields} for row in each["rows"]] for each in found]
        return [Result(point=each["point"], rows=own) for each, own in zip(found, rows, strict=True)]
    except (ValueError, KeyError, TypeError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else in_one_line(error)
        what = f"{origin} contains a line that is no result of a sweep: {why}"
        raise IntegrityError(what, "delete the file and run the sweep again: finished stages are found") from None


@dataclass(frozen=True)
class TableTexts:
    """The texts of a table with a row per point."""

    axes: list[str]
    """Headings of the first columns."""
    headings: list[str]
    """Of the other columns."""
    rows: list[list[str]]
    gains: list[str]
    """The headings of the gains over random, the most important first."""


def table_texts(
    results: Sequence[Result], paper: Callable[[Mapping[str, Any]], float | str | None] = lambda _: None
) -> TableTexts:
    """A row per point: axes, paper's number, ours, other rows, seeds, gains over random, costs. `LEGEND` explains them.

    Steps and images are those of our main training; rows that trained for longer or shorter follow in brackets.
    Where our selection is the random one, or random has other budgets, there is no gain.

    Args:
        paper: the paper's number at a point: an accuracy in %, or a text.
    """
    axes = list(dict.fromkeys(axis for result in results for axis in result.point))
    others = list(dict.fromkeys(row.name for result in results for row in result.rows if row.role != "selected"))
    numbers = [paper(result.point) for result in results]
    in_paper, in_seconds = any(number is not None for number in numbers), any(isinstance(n, str) for n in numbers)
    with_longer = any(result.gain_over_longer for result in results)
    names = {name: _HEADINGS.get(name, name) for name in others}
    if "random" in others and "stratified" in others:
        names["stratified"] = "class-balanced random"
    budgets = [name for name in _BUDGETS if any(getattr(result.ours, name) is not None for result in results)]
    gains = [f"{OURS} − {names.get('stratified', 'random')}", *([f"{OURS} − longer random"] * with_longer)]
    headings = [*(["paper"] * in_paper), OURS, *names.values(), "n", *gains]
    headings += [*(_BUDGETS[name] for name in budgets), "pre-training in epochs"]
    headings += ["seconds before + in the main training", "FLOPs"] * in_seconds
    rows = []
    for result, number in zip(results, numbers, strict=True):
        ours, gain = result.ours, result.gain
        cells = [text_of(result.point.get(axis, "")) for axis in axes]
        if in_paper:
            cells.append(DASH if number is None else number if isinstance(number, str) else f"{number:.1f}")
        cells += [_accuracy(ours), *(_accuracy(result.row(name)) for name in others), str(len(ours.seeds))]
        cells += [
            "the same subset" if result.is_random else _OTHER_BUDGETS if result.random and not gain else _gain(gain),
            *([_gain(result.gain_over_longer)] * with_longer),
        ]
        cells += [_budget(result, name, names) for name in budgets]
        cells += [DASH if ours.pretrain_cost is None else f"{ours.pretrain_cost:.1f}"]
        if in_seconds:
            cells += [_seconds(ours), format_flops(ours.flops)]
        rows.append(cells)
    return TableTexts(axes, headings, rows, gains)


def table(results: Sequence[Result], paper: Callable[[Mapping[str, Any]], float | str | None] = lambda _: None) -> str:
    """`table_texts` as Markdown."""
    found = table_texts(results, paper)
    head = [*found.axes, *found.headings]
    return _markdown([head, ["---"] * len(head), *found.rows])


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    """The lines of a table; a cell may contain the character that separates cells."""
    escaped = [[cell.replace("|", r"\|") for cell in cells] for cells in lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in escaped)


def text_of(value: Any) -> str:
    """The value of an axis as tables and figures write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _accuracy(row: Row | None) -> str:
    if row is None:
        return DASH
    sd = deviation(row)
    return f"{100 * mean_accuracy(row):.1f}" + ("" if sd is None else f" ± {100 * sd:.1f}")


def _budget(result: Result, name: str, headings: Mapping[str, str]) -> str:
    """Our steps or images, and in brackets those of the rows that had others: "100 (RS2 90)"."""
    own = format_whole(getattr(result.ours, name))
    amounts = {headings.get(row.name, row.name): format_whole(getattr(row, name)) for row in result.rows}
    others = ", ".join(f"{heading} {amount}" for heading, amount in amounts.items() if amount not in (own, DASH))
    return f"{own} ({others})" if others else own


def _gain(gain: Difference | None) -> str:
    if gain is None:
        return DASH
    text = format_interval(gain.mean, gain.half_width, 1)
    return f"**{text}**" if gain.level in ("wins", "loses") else text


def _seconds(row: Row) -> str:
    walls = row.stage_wall_s
    before = sum(seconds for stage, seconds in walls.items() if stage in (*PRETRAINING, "score", "select"))
    return f"{format_number(before)} + {format_seconds(walls.get('train'))}"


class Claim(BaseModel):
    """A claim about a sweep: one value of an axis is better than another."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    claim: str
    better: dict[str, Any]
    """Axis -> value."""
    worse: dict[str, Any] | str
    """Axis -> value; or the name of a row at the same point, such as `stratified`."""

    def pairs(self, results: Sequence[Result]) -> list[tuple[Row, Row]]:
        """(better, worse) at all points that agree in the other axes."""
        found = []
        for result in results:
            if not self.better.items() <= result.point.items():
                continue
            if isinstance(self.worse, str):
                found.append((result.ours, result.row(self.worse)))
            else:
                point = result.point | self.worse
                found += [(result.ours, other.ours) for other in results if other.point == point]
        return [(better, worse) for better, worse in found if worse is not None]

    def tested(self, results: Sequence[Result]) -> Difference | None:
        """The mean difference over the points, paired by seed; None if no two points can be compared, or if the points
        of one side have no seed in common."""
        pairs = self.pairs(results)
        if not pairs:
            return None
        better, worse = (_mean_of([pair[side] for pair in pairs]) for side in (0, 1))
        return difference(better, worse) if better.seeds and worse.seeds else None


def _mean_of(rows: Sequence[Row]) -> Row:
    """A row with the mean accuracy of each seed that all rows have."""
    seeds = [seed for seed in rows[0].seeds if all(seed in row.seeds for row in rows)]
    accuracy = [fmean(row.accuracy[row.seeds.index(seed)] for row in rows) for seed in seeds]
    return rows[0].model_copy(update={"seeds": seeds, "accuracy": accuracy})


def claim_rows(claims: Sequence[Claim], results: Sequence[Result]) -> list[list[str]]:
    """For each claim: its text, our difference in points with its 95 % interval, the number of points of the grid, the
    number of seeds, and whether it holds."""
    rows = []
    for claim in claims:
        found = claim.tested(results)
        if found is None:
            rows.append([claim.claim, DASH, "0", "0", "not measured"])
            continue
        holds = _AT_CHANCE if found.at_chance else _VERDICTS[found.level]
        rows.append([claim.claim, _gain(found), str(len(claim.pairs(results))), str(found.num_seeds), holds])
    return rows


def claims_table(claims: Sequence[Claim], results: Sequence[Result]) -> str:
    """`claim_rows` as Markdown."""
    head = ["claim", f"{OURS}: difference", "points of the grid", "n", "does it hold?"]
    return _markdown([head, ["---"] * len(head), *claim_rows(claims, results)])
