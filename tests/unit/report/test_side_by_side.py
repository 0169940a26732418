"""Several runs in one document."""

import pytest
from report_samples import document, row

from lipt.report.comparison import comparison_groups
from lipt.report.document import Document, Provenance
from lipt.report.side_by_side import side_by_side
from lipt.report.terminal import print_report
from lipt.report.verdict import judge


def run(setting: str, ours: float, random: float) -> Document:
    """A run with the setting; its choice and its random subset, by accuracy."""
    rows = [row("lipt", [ours] * 3, "selected"), row("stratified", [random] * 3, "random", label="Random")]
    return document(rows=rows, provenance=Provenance(config_yaml=setting, digests={"dataset": "1" * 64}))


def vs_random(document: Document) -> dict[str, str]:
    """Label -> the difference from random in the comparison."""
    return {line.label: line.results[2].text for group in comparison_groups(document.rows) for line in group}


@pytest.mark.parametrize("setting", ["train: {lr: %s}", "train: {batch_size: %s}", "data: {flip: %s}"])
def test_a_choice_is_compared_with_random_of_its_own_training(setting: str) -> None:
    """The random subset of the other run is better than both choices."""
    both = side_by_side({"a": run(setting % 1, 0.5, 0.4), "b": run(setting % 2, 0.8, 0.9)})
    assert both.done["Comparable"].startswith("Yes: the data, the test images and the network are the same. The train")
    told = judge(both.rows).runs
    assert "lipt beats random, +10.00 points" in told["a"][0]
    assert "lipt does not beat random: it is worse, −10.00 points" in told["b"][0]


#: Settings of which different values leave the training the same.
TRAINED_ALIKE = ["train: {steps: %s}", "train: {checkpoint_s: %s}", "select: {algorithm: %s}"]


@pytest.mark.parametrize("setting", TRAINED_ALIKE)
def test_a_run_has_the_numbers_of_its_own_report(setting: str) -> None:
    """The random subset of the other run is better, but this run was not compared with it."""
    runs = {"a": run(setting % 1, 0.5, 0.4), "b": run(setting % 2, 0.8, 0.9)}
    both = side_by_side(runs)
    assert both.done["Comparable"] == "Yes: the data, the test images and the network are the same."
    told = judge(both.rows).runs
    assert "lipt beats random, +10.00 points" in told["a"][0]
    assert "lipt does not beat random: it is worse, −10.00 points" in told["b"][0]
    shown = vs_random(both)
    assert shown["Random [a]"] == shown["Random [b]"] == "reference"
    for name, alone in runs.items():
        assert shown[f"lipt [{name}]"] == vs_random(alone)["lipt"]


@pytest.mark.parametrize("setting", TRAINED_ALIKE)
def test_a_run_without_a_random_subset_is_compared_with_that_of_another(setting: str) -> None:
    alone = run(setting % 1, 0.5, 0.4)
    both = side_by_side({"a": alone.model_copy(update={"rows": alone.rows[:1]}), "b": run(setting % 2, 0.8, 0.9)})
    assert "lipt does not beat random [b]: it is worse, −40.00 points" in judge(both.rows).runs["a"][0]


def test_a_random_subset_that_two_runs_share_is_shown_once_and_is_that_of_both() -> None:
    """A third run has a better one."""
    shares = {"a": run("train: {steps: 1}", 0.5, 0.4), "b": run("train: {steps: 1}", 0.6, 0.4)}
    three = side_by_side(shares | {"c": run("train: {steps: 1}", 0.8, 0.9)})
    assert [(each.label, each.runs) for each in three.rows if each.role == "random"] == [
        ("Random [a]", ["a", "b"]),
        ("Random [c]", ["c"]),
    ]
    assert "lipt beats random, +20.00 points" in judge(three.rows).runs["b"][0]


def test_a_random_subset_that_took_another_time_is_another_row() -> None:
    """On another machine: each run is compared with the time that it measured itself."""
    runs = {}
    for name, wall_s in (("a", 5.0), ("b", 4.0)):
        each = run("train: {steps: 1}", 0.5, 0.4)
        times = [{"stage_wall_s": {"train": 8.0}}, {"stage_wall_s": {"train": wall_s}}]
        rows = [of.model_copy(update=changes) for of, changes in zip(each.rows, times, strict=True)]
        runs[name] = each.model_copy(update={"rows": rows})
    told = judge(side_by_side(runs).rows).runs
    assert any("takes 1.6x the wall-clock (8 s against 5 s)" in text for text in told["a"])
    assert any("takes 2x the wall-clock (8 s against 4 s)" in text for text in told["b"])


@pytest.mark.parametrize("setting", ["data: {image_size: %s}", "data: {validation_fraction: %s}"])
def test_runs_on_other_images_are_not_ranked(setting: str) -> None:
    both = side_by_side({"a": run(setting % 1, 0.5, 0.4), "b": run(setting % 2, 0.8, 0.9)})
    assert both.done["Comparable"].startswith("In part. The files are the same")
    told = judge(both.rows)
    assert "lipt beats random, +10.00 points" in told.runs["a"][0]
    assert not any("[b]" in text for text in told.runs["a"])


def test_a_terminal_says_that_the_data_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """The accuracies stand side by side there, too."""
    one = run("seed: 1", 0.5, 0.4)
    other = one.model_copy(update={"provenance": Provenance(digests={"dataset": "2" * 64})})
    for second, differ in ((other, True), (run("seed: 2", 0.6, 0.5), False)):
        both = side_by_side({"a": one, "b": second})
        print_report(both, judge(both.rows), whole=True)
        told = " ".join(capsys.readouterr().out.split())
        assert ("Comparable: No. The data and the test images differ, so compare nothing between" in told) == differ


def test_a_section_that_one_run_does_not_set_is_no_row_of_its_own():
    settings = ("score: {proxy: null, runs: 1}", "score: {proxy: {width: 4}, runs: 1}")
    runs = {name: document(provenance=Provenance(config_yaml=text)) for name, text in zip("ab", settings, strict=True)}
    differences = side_by_side(runs).differences
    assert differences is not None
    assert differences.settings == {"score.proxy.width": ["–", "4"]}


def test_that_lipt_chose_stands_beside_the_algorithm_of_each_run() -> None:
    auto, beside = "LiPT chose this algorithm (auto).", "Random. The network and the data set are the same."
    runs = {
        name: document(done={"Choice": f"By the algorithm {algorithm}. {auto}", "Compared with": beside})
        for name, algorithm in (("a", "ccs"), ("b", "stratified"))
    }
    told = side_by_side(runs).done
    assert told["Choice, a"] == f"By the algorithm ccs. {auto}"
    assert told["Choice, b"] == f"By the algorithm stratified. {auto}"
    assert "Choice (all runs)" not in told
    assert told["Compared with"] == "Random."  # the row `Comparable` says the rest
    alike = side_by_side({"a": runs["a"], "c": runs["a"]}).done
    assert alike["Choice"] == f"By the algorithm ccs. {auto}"


def test_what_runs_have_in_common_is_said_once() -> None:
    """A sentence of all runs stands alone, and runs with one text share it."""
    rule, ends = "It keeps hard images. It looks at one model.", "in 2 epochs."
    runs = {
        name: document(done={"Data": "d: 9 images.", "Choice": f"{count} of 9. {rule}", "Training": f"{steps} {ends}"})
        for name, count, steps in (("a", 5, 30), ("b", 2, 10), ("c", 2, 30))
    }
    runs["b"] = runs["b"].model_copy(update={"created": "2026-11-23T04:33:55+00:00"})
    told = side_by_side(runs).done
    del told["Comparable"]
    assert told == {
        "Data": "d: 9 images.",
        "Choice (all runs)": rule,
        "Choice, a": "5 of 9.",
        "Choice, b and c": "2 of 9.",
        "Training, a and c": f"30 {ends}",
        "Training, b": f"10 {ends}",
        "Dates": "a: 14 March 2025, 09:26 UTC; b: 23 November 2026, 04:33 UTC; c: 14 March 2025, 09:26 UTC",
    }
