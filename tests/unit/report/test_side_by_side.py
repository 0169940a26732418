"""Several runs in one document."""

import pytest
from report_samples import document, row

from lipt.report.document import Document, Provenance
from lipt.report.side_by_side import side_by_side
from lipt.report.verdict import judge


def run(setting: str, ours: float, random: float) -> Document:
    """A run with the setting; its choice and its random subset, by accuracy."""
    rows = [row("lipt", [ours] * 3, "selected"), row("stratified", [random] * 3, "random", label="Random")]
    return document(rows=rows, provenance=Provenance(config_yaml=setting, digests={"dataset": "1" * 64}))


@pytest.mark.parametrize("setting", ["train: {lr: %s}", "train: {batch_size: %s}", "data: {flip: %s}"])
def test_a_choice_is_compared_with_random_of_its_own_training(setting: str) -> None:
    """The random subset of the other run is better than both choices."""
    both = side_by_side({"a": run(setting % 1, 0.5, 0.4), "b": run(setting % 2, 0.8, 0.9)})
    assert both.done["Comparable"].startswith("Yes: the data, the test images and the network are the same. The train")
    told = judge(both.rows).runs
    assert "lipt [a] beats Random [a], +10.00 points" in told["a"][0]
    assert "lipt [b] does not beat Random [b]: it is worse, −10.00 points" in told["b"][0]


@pytest.mark.parametrize("setting", ["train: {steps: %s}", "train: {checkpoint_s: %s}", "select: {algorithm: %s}"])
def test_runs_that_train_alike_share_the_best_random_subset(setting: str) -> None:
    both = side_by_side({"a": run(setting % 1, 0.5, 0.4), "b": run(setting % 2, 0.8, 0.9)})
    assert both.done["Comparable"] == "Yes: the data, the test images and the network are the same."
    assert "lipt [a] does not beat Random [b]: it is worse, −40.00 points" in judge(both.rows).runs["a"][0]


@pytest.mark.parametrize("setting", ["data: {image_size: %s}", "data: {validation_fraction: %s}"])
def test_runs_on_other_images_are_not_ranked(setting: str) -> None:
    both = side_by_side({"a": run(setting % 1, 0.5, 0.4), "b": run(setting % 2, 0.8, 0.9)})
    assert both.done["Comparable"].startswith("In part. The files are the same")
    told = judge(both.rows)
    assert "lipt [a] beats Random [a], +10.00 points" in told.runs["a"][0]
    assert not any("[b]" in text for text in told.runs["a"])


def test_a_section_that_one_run_does_not_set_is_no_row_of_its_own():
    settings = ("score: {proxy: null, runs: 1}", "score: {proxy: {width: 4}, runs: 1}")
    runs = {name: document(provenance=Provenance(config_yaml=text)) for name, text in zip("ab", settings, strict=True)}
    differences = side_by_side(runs).differences
    assert differences is not None
    assert differences.settings == {"score.proxy.width": ["–", "4"]}
