"""Sweeps as settings: grids, their points, and errors; the table and the claims of finished ones."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
import yaml

from lipt.cli.missing_stages import product
from lipt.config import Sweep, load_sweep, make_sweep
from lipt.config.sweep import ROWS
from lipt.errors import IntegrityError, UsageError
from lipt.report.sweep import Claim, Result, claims_table, read_lines, table, to_lines
from tests.unit.report.report_samples import row

BASE: dict[str, Any] = {"name": "swept", "select": {"algorithm": "ccs"}}
GRID: dict[str, Any] = {
    "select.fraction": [0.1, 0.2],
    "scorer": {"swarm": {}, "classic": {"score.model": "classic", "score.runs": 3}},
}


def test_a_grid_has_all_combinations() -> None:
    sweep = make_sweep(BASE, GRID, origin="grid.yaml", places={})
    found = [(str(point), point.config.select.fraction, point.config.score.model) for point in sweep.points]
    assert found == [
        ("select.fraction=0.1, scorer=swarm", 0.1, "merged"),
        ("select.fraction=0.1, scorer=classic", 0.1, "classic"),
        ("select.fraction=0.2, scorer=swarm", 0.2, "merged"),
        ("select.fraction=0.2, scorer=classic", 0.2, "classic"),
    ]
    assert {point.config.select.algorithm for point in sweep.points} == {"ccs"}
    assert {tuple(point.config.compare.variants) for point in sweep.points} == {ROWS}


def test_a_list_of_grids_joins_their_points() -> None:
    sweep = make_sweep(BASE, [{"dispatch.jigsaws": [1, 2]}, {"pretrain.passes": [5]}], origin="grid.yaml", places={})
    assert [str(point) for point in sweep.points] == ["dispatch.jigsaws=1", "dispatch.jigsaws=2", "pretrain.passes=5"]


def test_the_base_can_be_a_file_and_lists_seeds_and_rows(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        yaml.safe_dump(BASE | {"compare": {"seeds": [4], "variants": ["lipt", "full"]}})
    )
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({"base": "base.yaml", "grid": {"train.epochs": [3, 4]}}))
    points = load_sweep(str(path), ["select.algorithm=grand"]).points
    assert [point.config.train.epochs for point in points] == [3, 4]
    assert {(*point.config.compare.seeds, *point.config.compare.variants) for point in points} == {(4, "lipt", "full")}
    assert {point.config.select.algorithm for point in points} == {"grand"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grid: {select.fracton: [0.1]}", "line 1: unknown key 'select.fracton'; did you mean 'select.fraction'?"),
        ("base: {seed: 1}\ngrid:\n  train.epochs: [3, none]", "sweep.yaml, line 3: train.epochs is 'none'"),
        ("base: {train: {epoch: 1}}\ngrid: {seed: [1]}", "grid.seed changes seed, but base.compare.seeds lists"),
        ("base: {train: {epoch: 1}}\ngrid: {train.lr: [1]}", "line 1: unknown key 'train.epoch'"),
        ("grid: {a: {b: {compare.seeds: [1]}}}", "grid.a changes compare.seeds"),
        ("grid: {train.lr: 0.1}", "grid.train.lr has no list of values"),
        ("grid: {train..lr: [0.1]}", "grid: 'train..lr' is no setting"),
        ("grid: {train.lr: []}", "grid.train.lr has no list of values"),
        ("grid: {train.lr: [0.1, 0.1]}", "grid.train.lr has the value 0.1 twice"),
        ("grid: {train.lr: [0.1, '.10'], model.width: [8]}", "grid.train.lr has one value twice, as 0.1 and .10"),
        ("grid: {train.lr: [1, 1.0]}", "grid.train.lr has one value twice, as 1 and 1.0"),
        ("grid: [{train.lr: [0.1, 1]}, {train.lr: [1]}]", "sweep.yaml: two grids have the point train.lr=1"),
        ("base: {seed: 1}", "grid is missing or empty"),
        ("grid: []", "grid is missing or empty"),
        ("grids: {train.lr: [0.1]}", "line 1: grids is neither base nor grid"),
        ("grid: [1, 2]", "contains a single value, not settings"),
        ("grid: {part: {all: {1: 2}}}", "unknown key '1'"),
        ("base: other.yaml\ngrid: {train.lr: [0.1]}", "cannot read"),
        (
            "grid: {select.fraction: [0.1], part: {all: {}, some: {select.fraction: 0.3}}}",
            "at select.fraction=0.1, part=some, grid.select.fraction and grid.part both set select.fraction",
        ),
        (
            "grid: {select.options.beta: [0.1], a: {b: {select: {options: {beta: 0.2}}}}}",
            "grid.select.options.beta and grid.a both set select.options",
        ),
        (
            "grid: {train.epochs: [3, 4], a: {b: {train: {steps: 9}}}}",
            "at train.epochs=3, a=b, train.epochs and train.steps both set the length of the training (grid.a and grid",
        ),
        ("grid: {a: {b: {train.steps: 9, train.epochs: 3}}}", "both set the length of the training (grid.a)"),
        (
            f"grid: {{train.epochs: {list(range(1, 41))}, train.batch_size: {list(range(1, 21))}}}",
            "the grid has 800 points (40 x 20); at most 500",
        ),
    ],
)
def test_a_wrong_sweep_is_one_clear_error(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        load_sweep(str(path))
    assert says in error.value.message
    assert error.value.remedy


def test_seeds_belong_below_compare() -> None:
    with pytest.raises(UsageError) as error:
        make_sweep(BASE, {"seed": [1, 2]}, origin="grid.yaml", places={})
    assert error.value.remedy == "set it below base: compare.seeds"


def test_the_size_of_a_sweep_counts_one_as_one() -> None:
    assert product({"points": 2, "rows": 1, "seeds": 3}) == "2 points x 1 row x 3 seeds"


def test_named_values_may_be_equal() -> None:
    """With --set, which changes the base, one of a table's methods can become the other."""
    sweep = make_sweep(
        {"model": {"width": 64}}, {"method": {"ours": {}, "wide": {"model.width": 64}}}, origin="test", places={}
    )
    assert [point.config.model.width for point in sweep.points] == [64, 64]


def test_an_axis_of_one_option_leaves_the_others() -> None:
    base = {"select": {"algorithm": "ccs", "options": {"beta": 0.2}}}
    grid = {"select.options.score": ["aum", "el2n"], "select.options.k": [50]}
    options = [point.config.select.options for point in make_sweep(base, grid, origin="grid.yaml", places={}).points]
    assert options == [{"beta": 0.2, "score": score, "k": 50} for score in ("aum", "el2n")]


def test_axes_that_set_different_parts_of_a_section_go_together() -> None:
    grid = {"part": {"a": {"train": {"epochs": 3}}, "b": {"train.steps": 5}}, "train.lr": [0.1], "select": [{}]}
    points = make_sweep(BASE, grid, origin="grid.yaml", places={}).points
    assert [(point.config.train.epochs, point.config.train.steps) for point in points] == [(3, None), (200, 5)]


@pytest.mark.parametrize(("grid", "length"), [("train.epochs", (3, None)), ("train.steps", (200, 3))])
def test_an_axis_replaces_the_length_that_the_base_gives_in_the_other_unit(grid: str, length: tuple[int, int]) -> None:
    for base in ({"epochs": 9}, {"steps": 9}):
        (point,) = make_sweep(BASE | {"train": base}, {grid: [3]}, origin="grid.yaml", places={}).points
        assert (point.config.train.epochs, point.config.train.steps) == length


def sweep() -> Sweep:
    return make_sweep(BASE, GRID, origin="grid.yaml", places={})


@pytest.mark.parametrize(
    ("grid", "override", "refused"),
    [
        ("{select.fraction: [0.1]}", "select.fraction=0.3", True),
        ("{select.options: [{beta: 0.1}]}", "select.options.beta=0.3", True),
        ("{a: {b: {train.epochs: 3}, c: {train.epochs: 4}}}", "train.epochs=5", True),
        ("[{select.fraction: [0.1]}, {select.fraction: [0.2]}]", "select.fraction=0.3", True),
        ("[{select.fraction: [0.1]}, {train.epochs: [3]}]", "select.fraction=0.3", False),
        ("{a: {b: {train.epochs: 3}, c: {}}}", "train.epochs=5", False),
        ("{select.fraction: [0.1]}", "select.algorithm=random", False),
        ("{select.fraction: [0.1]}", "select={fraction: 0.3, algorithm: random}", True),
        ("{select.fraction: [0.1]}", "select={algorithm: random}", False),
        ("{train.steps: [9, 10]}", "train.epochs=5", True),
        ("{train.steps: [9, null]}", "train.epochs=5", False),
        ("{a: {x: {train: {steps: 9}}}}", "train.epochs=5", True),
        ("{a: {x: {train: {steps: null}}}}", "train.epochs=5", False),
        ("{a: {x: {train: {lr: 0.2}}}}", "train.lr=0.3", True),
        ("{a: {x: {train: {lr: 0.2}}}}", "train.epochs=5", False),
        ("{a: {x: {select: {options: {beta: 1}}, select.algorithm: ccs}}}", "select.options.stratum=1", True),
    ],
)
def test_an_override_that_no_point_follows_is_refused(grid: str, override: str, refused: bool, tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(f"grid: {grid}")
    setting = override.partition("=")[0] if "{" not in override else "select.fraction"
    what = f"--set {override} does not change {setting}: the grid of {path} replaces it at every point"
    with pytest.raises(UsageError, match=re.escape(what)) if refused else nullcontext():
        load_sweep(str(path), [override])


def test_only_some_points() -> None:
    points = sweep().only({"scorer": "swarm", "select.fraction": "0.2"}).points
    assert [str(point) for point in points] == ["select.fraction=0.2, scorer=swarm"]
    with pytest.raises(UsageError, match="no such axis") as error:
        sweep().only({"scorers": "swarm"})
    assert "did you mean 'scorer'?" in error.value.remedy
    with pytest.raises(UsageError, match=r"scorer=slow: no such value"):
        sweep().only({"scorer": "slow"})
    grids = make_sweep({}, [{"model.width": [4, 8]}, {"train.lr": [0.1, 0.2]}], origin="test", places={})
    with pytest.raises(UsageError, match=r"train.lr=0.1: the points that the other --only choose have no train.lr"):
        grids.only({"model.width": "4", "train.lr": "0.1"})


def result(fraction: float, scorer: str, ours: list[float], random: list[float]) -> Result:
    rows = [row("stratified", random, "random"), row("rs2", random), row("lipt", ours, "selected", pretrain_cost=1.5)]
    return Result(point={"select.fraction": fraction, "scorer": scorer}, rows=rows)


RESULTS = [
    result(0.1, "swarm", [0.52, 0.50, 0.54], [0.50, 0.49, 0.51]),
    result(0.1, "classic", [0.40, 0.40, 0.40], [0.50, 0.49, 0.51]),
    result(0.2, "swarm", [0.60, 0.61, 0.62], [0.60, 0.65, 0.55]),
    result(0.2, "classic", [0.58, 0.60, 0.63], [0.60, 0.65, 0.55]),
]


def test_results_are_read_back_as_written() -> None:
    assert read_lines(to_lines(RESULTS), "x") == RESULTS
    older = to_lines(RESULTS).replace('"name":', '"field_of_another_version":1,"name":')
    assert read_lines(older, "x") == RESULTS
    with pytest.raises(IntegrityError, match=r"x.jsonl contains a line that is no result"):
        read_lines('{"point": {}}\n', "x.jsonl")


def test_the_table_pairs_by_seed_and_shows_the_numbers_of_the_paper() -> None:
    numbers = {"swarm": 61.58}
    lines = table(RESULTS, lambda point: numbers.get(point["scorer"])).splitlines()
    heads, first, second = ([cell.strip() for cell in lines[i].split("|")[1:-1]] for i in (0, 2, 3))
    assert heads == ["select.fraction", "scorer", "paper", "ours", "random", "RS2", "n", "ours − random",
                     "steps", "images seen", "pre-training in epochs"]  # fmt: skip
    half = 100 * 4.303 * stdev([0.02, 0.01, 0.03]) / math.sqrt(3)
    assert first[:7] == ["0.1", "swarm", "61.6", "52.0 ± 2.0", "50.0 ± 1.0", "50.0 ± 1.0", "3"]
    assert first[7:] == [f"+2.0 ± {half:.1f}", "1,080", "135,000", "1.5"]  # 2.0 ± 2.5: not told apart
    assert second[2] == "–"
    assert second[7].startswith("**−10.0 ± 2.5")


def test_the_table_shows_how_long_each_row_trained() -> None:
    """Rows that trained as long as ours are not repeated; without the amounts there is no column."""
    same, other = ({"steps": 1200.0, "images": images} for images in (38_400, 30_000.4))
    rows = [
        row("stratified", [0.5], "random", **same),
        row("rs2", [0.5], **other),
        row("lipt", [0.5], "selected", **same),
    ]
    lines = table([Result(point={"scorer": "swarm"}, rows=rows)]).splitlines()
    heads, cells = ([cell.strip() for cell in lines[i].split("|")[1:-1]] for i in (0, 2))
    shown = dict(zip(heads, cells, strict=True))
    assert (shown["steps"], shown["images seen"]) == ("1,200", "38,400 (RS2 30,000)")
    unknown = [each.model_copy(update={"steps": None, "images": None}) for each in rows]
    assert "steps" not in table([Result(point={"scorer": "swarm"}, rows=unknown)])


def test_the_table_shows_whether_the_choice_is_worth_its_cost() -> None:
    """A second difference, from random with the cost of the choice as more steps."""
    longer = row("random-longer", [0.53, 0.52, 0.54], "longer", steps=1500.0)
    first = RESULTS[0].model_copy(update={"rows": [*RESULTS[0].rows, longer]})
    lines = table([first, RESULTS[2]]).splitlines()
    heads, with_row, without = ([cell.strip() for cell in lines[i].split("|")[1:-1]] for i in (0, 2, 3))
    place = heads.index("ours − longer random")
    half = 100 * 4.303 * stdev([0.01, 0.02, 0.0]) / math.sqrt(3)
    assert (with_row[place], without[place]) == (f"−1.0 ± {half:.1f}", "–")
    assert with_row[heads.index("longer random")] == "53.0 ± 1.0"
    assert with_row[heads.index("steps")] == "1,080 (longer random 1,500)"
    assert first.gain == RESULTS[0].gain


def test_the_table_says_where_our_selection_is_the_random_one() -> None:
    rows = [row("stratified", [0.5], "random", algorithm="stratified"), row("lipt", [0.5], "selected")]
    ours = {name: rows[1].model_copy(update={"algorithm": name}) for name in ("stratified", "ccs", "")}
    gains = {
        name: table([Result(point={"scorer": "swarm"}, rows=[rows[0], each])]).splitlines()[2].split(" | ")[4]
        for name, each in ours.items()
    }
    assert gains == {"stratified": "the same subset", "ccs": "+0.0", "": "+0.0"}
    by_losses = rows[1].model_copy(update={"algorithm": "stratified", "draw": "infobatch", "accuracy": [0.6]})
    assert " | +10.0 | " in table([Result(point={}, rows=[rows[0], by_losses])])


def test_a_text_of_the_paper_adds_seconds_and_operations() -> None:
    heads = table(RESULTS, lambda _: "22 + 284 s").splitlines()[0]
    assert "seconds before + in the main training | FLOPs" in heads


def test_claims_are_tested_over_all_points_that_agree_in_the_other_axes() -> None:
    better = Claim(claim="swarm > classic", better={"scorer": "swarm"}, worse={"scorer": "classic"})
    found = better.tested(RESULTS)
    assert found is not None
    assert (found.num_seeds, len(better.pairs(RESULTS))) == (3, 2)
    # Means over both fractions, by seed: (.12 + .02) / 2, (.10 + .01) / 2, (.14 - .01) / 2.
    assert found.mean == pytest.approx((0.07 + 0.055 + 0.065) / 3)
    assert found.half_width == pytest.approx(4.303 * stdev([0.07, 0.055, 0.065]) / math.sqrt(3))
    claims = [
        better,
        Claim(claim="classic > swarm", better={"scorer": "classic"}, worse={"scorer": "swarm"}),
        Claim(claim="swarm > random", better={"scorer": "swarm"}, worse="stratified"),
        Claim(claim="nobody ran it", better={"scorer": "other"}, worse={"scorer": "swarm"}),
    ]
    ends = _answers(claims, RESULTS)
    assert ends == ["yes", "no, reversed", "not told apart", "not measured"]


def test_a_claim_over_points_without_a_common_seed_is_not_measured() -> None:
    """Results of two sweeps in one file."""
    points = [{"x": x, "y": y} for x in (1, 2) for y in (1, 2)]
    found = [
        Result(point=point, rows=[row("lipt", [0.5], "selected", seeds=[point["y"]]), row("random", [0.4], "random")])
        for point in points
    ]
    assert _answers([Claim(claim="1 > 2", better={"x": 1}, worse={"x": 2})], found) == ["not measured"]


def test_two_random_rows_have_two_names_and_a_value_may_contain_a_bar() -> None:
    rows = [row("random", [0.4], "random", steps=5), row("stratified", [0.5], "random"), row("lipt", [0.6], "selected")]
    head, _, line = table([Result(point={"method": "a|b"}, rows=rows)]).splitlines()
    assert " | ours | random | class-balanced random | n | ours − class-balanced random | " in head
    assert line.startswith(r"| a\|b | 60.0 | 40.0 | 50.0 | 1 | +10.0 | 1,080 (random 5) |")


def test_a_claim_about_networks_at_chance_is_not_called_short_of_seeds() -> None:
    found = [Result(point={"x": x}, rows=[row("lipt", [0.1, 0.101, 0.1], "selected")]) for x in (1, 2)]
    assert _answers([Claim(claim="1 > 2", better={"x": 1}, worse={"x": 2})], found) == ["both are at chance"]


def _answers(claims: list[Claim], results: list[Result]) -> list[str]:
    """The last cell of each claim."""
    return [line.split("|")[-2].strip() for line in claims_table(claims, results).splitlines()[2:]]
