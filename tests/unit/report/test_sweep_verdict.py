"""The sentence with which a sweep ends."""

from report_samples import row

from lipt.report.sweep import Result, table
from lipt.report.sweep_verdict import sweep_verdict


def point(ours: list[float], random: list[float], algorithm: str = "ccs", **changes: float) -> Result:
    """A point with these accuracies, one per seed; `changes` are of our row."""
    chosen = row("lipt", ours, "selected", algorithm=algorithm, **changes)
    return Result(point={}, rows=[chosen, row("stratified", random, "random", algorithm="stratified")])


def test_two_seeds_are_no_verdict_and_more_are_advised() -> None:
    told = sweep_verdict([point([0.5, 0.5], [0.4, 0.4]), point([0.5, 0.5], [0.52, 0.52])])
    assert told.startswith(
        "No verdict: the choices differ from random by −2.0 to +10.0 points, but 2 seeds cannot tell"
    )
    assert told.endswith("An interval needs 3 seeds, and 5 tell more: run the sweep again with "
                         "--set 'compare.seeds=[0,1,2,3,4]'.")  # fmt: skip


def test_enough_seeds_count_the_points() -> None:
    better, worse = point([0.5, 0.51, 0.5], [0.4] * 3), point([0.4, 0.41, 0.4], [0.5] * 3)
    level = point([0.5, 0.6, 0.4], [0.5] * 3)
    assert sweep_verdict([better, better]) == "Beats random at 2 of 2 grid points."
    assert sweep_verdict([better, worse, level]) == (
        "Beats random at 1 of 3 grid points, and is worse at 1. At 1 the seeds cannot tell."
    )


def test_without_a_comparison_there_is_no_verdict() -> None:
    at_chance = point([0.1, 0.1, 0.1], [0.1, 0.1, 0.1])
    assert sweep_verdict([at_chance]) == "No verdict: at each point the choice and random are both at chance."
    same = point([0.5], [0.5], algorithm="stratified")
    assert sweep_verdict([same]) == "No verdict: no point compares a choice with a random subset of the same budgets."


def test_fresh_draws_from_all_images_are_no_choice() -> None:
    kept = {"kept_fraction": 1.0, "epoch_fraction": 0.1}
    rows = [
        row("lipt", [0.5, 0.4], "selected", algorithm="random").model_copy(update=kept),
        row("stratified", [0.5, 0.4], "random", algorithm="stratified").model_copy(update=kept),
    ]
    assert (
        sweep_verdict([Result(point={}, rows=rows)])
        == "No verdict: no point compares a choice with a random subset of the same budgets."
    )


def test_a_point_whose_random_row_has_other_budgets_is_not_counted() -> None:
    """`draw: infobatch` with epochs takes fewer steps than uniform draws."""
    fewer = point([0.5, 0.51, 0.5], [0.4] * 3, steps=750.0, images=93_750.0)
    assert fewer.gain is None
    assert sweep_verdict([fewer]).startswith("No verdict: no point compares")
    assert "| other budgets |" in table([fewer])
