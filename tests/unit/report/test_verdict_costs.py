"""What the verdict says about the cost of a choice."""

from typing import Any

import pytest
from report_samples import row

from lipt.report.verdict import judge


@pytest.mark.parametrize(
    ("longer", "said"),
    [
        ([0.740, 0.742, 0.741], "the choice is worth its FLOPs"),
        ([0.800, 0.802, 0.801], "the steps are worth more than the choice"),
        ([0.700, 0.790, 0.770], "3 seeds cannot tell which is worth more"),
    ],
)
def test_a_choice_is_compared_with_its_cost_as_more_steps(longer, said):
    rows = [
        row("lipt", [0.781, 0.787, 0.784], "selected", flops=3e12, train_flops=1e12, choice_flops=2e12),
        row("random", [0.75] * 3, "random"),
        row("longer", longer, "longer", steps=3_000, epochs=84, images=375_000, flops=3e12),
    ]
    verdict = judge(rows)
    assert verdict.headline.startswith("lipt beats random, +3.40 points")  # only rows of equal budgets are ranked
    is_worse = "steps are worth more" in said
    assert verdict.level == ("mixed" if is_worse else "wins")
    assert verdict.headline.endswith(", but not one that gets its FLOPs as more steps.") == is_worse
    (sentence,) = (each for each in verdict.sentences if "FLOPs of the choice" in each)
    assert "(3,000 instead of 1,080), a class-balanced random subset reaches" in sentence
    assert sentence.endswith(f"{said}.")


@pytest.mark.parametrize(
    ("continued", "said"),
    [
        ([0.740, 0.742, 0.741], "lipt is 4.30 points above it: the choice is worth more than this start"),
        (
            [0.800, 0.802, 0.801],
            "lipt is 1.70 points below it: this start is worth more than the choice (`train.start: continue`)",
        ),
        ([0.700, 0.790, 0.770], "3 seeds cannot tell which is worth more"),
    ],
)
def test_a_choice_is_compared_with_a_start_from_the_model_that_scored(continued, said):
    rows = [
        row("lipt", [0.781, 0.787, 0.784], "selected", scorer="theta_p", train_flops=1e12, choice_flops=2e12),
        row("random", [0.75] * 3, "random"),
        row("continued", continued, "continued"),
    ]
    verdict = judge(rows)
    assert verdict.headline.startswith("lipt beats random, +3.40 points")  # with random of the same start
    is_worse = "this start is worth more" in said
    assert judge(rows).level == ("mixed" if is_worse else "wins")
    assert judge(rows).headline.endswith(", but not one that starts from theta_p.") == is_worse
    (sentence,) = (each for each in verdict.sentences if each.startswith("Trained on from"))
    assert sentence.startswith("Trained on from theta_p, a class-balanced random subset reaches")
    assert sentence.endswith(f"{said}.")


@pytest.mark.parametrize(("theta_p", "fresh", "said"), [(0.8, True, True), (0.7, True, False), (0.8, False, False)])
def test_a_choice_of_a_better_model_says_so(theta_p: float, fresh: bool, said: bool) -> None:
    ours = row("lipt", [0.78, 0.79, 0.77], "selected", scorer="theta_p" if fresh else "", scorer_accuracy=theta_p)
    text = " ".join(judge([ours, row("random", [0.75] * 3, "random")]).sentences)
    sentence = (
        "The training could start from theta_p, which is better: it is right for 80.00 % of the validation images, and "
        "lipt for 78.00 % of the 10,000 test images. `train.start: continue` does so."
    )
    assert (sentence in text) == said
    assert ("could start" in text) == said


@pytest.mark.parametrize(("theta_p", "said"), [(0.8, True), (0.7, False)])
@pytest.mark.parametrize("algorithm", ["ccs", "stratified"])
def test_a_training_that_made_its_start_no_better_says_so(algorithm: str, theta_p: float, said: bool) -> None:
    start = {"scorer": "theta_p", "scorer_accuracy": theta_p, "continued": True, "algorithm": algorithm}
    ours = row("lipt", [0.78, 0.79, 0.77], "selected", **start)
    text = " ".join(judge([ours, row("random", [0.75] * 3, "random")]).sentences)
    sentence = (
        "The training started from theta_p, which is right for 80.00 % of the validation images, and lipt for 78.00 % "
        "of the 10,000 test images."
    )
    assert (sentence in text) == said
    assert "could start" not in text


def test_a_model_at_chance_is_no_better_start() -> None:
    """It always says the most frequent class, and the network that was trained on its choice learned even less."""
    ours = row("lipt", [0.10, 0.09, 0.11], "selected", scorer="theta_p", scorer_accuracy=0.115, num_test_images=1000)
    random = row("random", [0.10] * 3, "random", num_test_images=1000)
    assert "could start" not in " ".join(judge([ours, random]).sentences)
    better = ours.model_copy(update={"scorer_accuracy": 0.3})
    assert "could start from theta_p, which is better: it is right for 30.00 %" in " ".join(
        judge([better, random]).sentences
    )


@pytest.mark.parametrize(("images", "told"), [(144, False), (20_000, True)])
def test_few_images_do_not_tell_whether_the_scorer_is_better(images: int, told: bool) -> None:
    theta_p = {"scorer": "theta_p", "scorer_accuracy": 0.8, "num_validation_images": images}
    ours = row("lipt", [0.78, 0.79, 0.77], "selected", **theta_p)
    text = " ".join(judge([ours, row("random", [0.75] * 3, "random")]).sentences)
    numbers = f"right for 80.00 % of the {images:,} validation images, and lipt for 78.00 % of the 10,000 test images"
    assert (f"theta_p, which is better: it is {numbers}. " in text) == told
    assert (f"theta_p, which is {numbers}: too few images to tell which is better. " in text) == (not told)


def test_a_longer_training_of_another_run_is_not_the_price_of_this_choice():
    """Side by side, that of a run that keeps more, or that chose at another price, says nothing about this choice."""
    ours = row("lipt", [0.781, 0.787, 0.784], "selected", flops=2e12, train_flops=1.8e12, choice_flops=0.2e12)
    fields = {"role": "longer", "steps": 3_000, "epochs": 84, "images": 375_000}
    same = row("longer", [0.740, 0.742, 0.741], **fields, flops=1.99e12)
    more = row("longer", [0.8] * 3, **fields, flops=2.15e12)  # 0.35 instead of 0.2 on top of the training
    larger = row("longer", [0.8] * 3, **fields, flops=2e12, kept_fraction=0.2, epoch_fraction=0.2)
    dearer = row("longer", [0.8] * 3, **fields, flops=3e12)
    verdict = judge([ours, row("random", [0.75] * 3, "random", flops=1.8e12), larger, dearer, more, same])
    (sentence,) = (each for each in verdict.sentences if "FLOPs of the choice" in each)
    assert sentence.endswith("the choice is worth its FLOPs.")


@pytest.mark.parametrize("role", ["longer", "full"])
def test_an_accuracy_and_the_distance_from_it_are_of_the_same_seeds(role):
    """The fourth seed has no counterpart, so it counts in neither number."""
    costs = {"flops": 3e12, "train_flops": 1e12, "choice_flops": 2e12}
    rows = [row("lipt", [0.78, 0.79, 0.77], "selected", **costs), row("random", [0.7] * 3, "random")]
    other = row("other", [0.74, 0.75, 0.73, 0.1], role, steps=3_000, flops=3e12)
    text = " ".join(judge([*rows, other]).sentences)
    assert "reaches 74.00 %" in text
    assert "lipt is 4.00 points above it" in text


def test_a_choice_that_took_less_is_not_said_to_cost_more():
    """As in a run whose random subset was trained first, by a process that still warmed up."""
    ours = row("lipt", [0.78], "selected", stage_wall_s={"score": 1.0, "train": 7.0}, flops=3e12)
    random = row("random", [0.75], "random", stage_wall_s={"train": 10.0}, flops=2e12)
    said = "Compared with random, lipt takes 0.8x the wall-clock (8 s against 10 s) and 1.5x the FLOPs."
    assert said in judge([ours, random]).sentences


@pytest.mark.parametrize(
    ("train_s", "machine", "why"),
    [
        (460.0, "2 CPU threads", "the trainings of equal length took 7 min 40 s and 54.9 s"),
        (60.0, "1 CPU thread", "the trainings ran on 1 CPU thread and on 2 CPU threads"),
    ],
)
def test_times_of_a_busy_or_of_another_machine_are_not_compared(train_s: float, machine: str, why: str) -> None:
    """As where a run was stopped and resumed with another number of threads."""
    ours = row("lipt", [0.78], "selected", stage_wall_s={"score": 9.0, "train": train_s}, machine=machine, flops=3e12)
    random = row("random", [0.75], "random", stage_wall_s={"train": 54.9}, machine="2 CPU threads", flops=2e12)
    changes = {"kept_fraction": 1.0, "epoch_fraction": 1.0, "steps": 10_000, "stage_wall_s": {"train": 500.0}}
    full = row("full", [0.9], "full", **changes, machine="2 CPU threads")
    sentences = judge([ours, random, full]).sentences
    assert "Compared with random, lipt takes 1.5x the FLOPs." in sentences
    assert f"The wall-clocks of lipt and random cannot be compared: {why}." in sentences
    assert not any("x the wall-clock" in text for text in sentences)
    even = ours.model_copy(update={"stage_wall_s": {"train": 60.0}, "machine": "2 CPU threads"})
    assert "cannot be compared" not in " ".join(judge([even, random, full]).sentences)


def test_a_training_that_chooses_again_may_take_longer() -> None:
    ours = row("lipt", [0.78], "selected", kept_fraction=1.0, stage_wall_s={"train": 60.0})
    fresh = row("rs2", [0.7], kept_fraction=1.0, stage_wall_s={"train": 20.0})
    assert any("takes 3x the wall-clock" in text for text in judge([ours, fresh]).sentences)


def test_a_plain_run_says_what_its_choice_cost():
    """And which row tells whether it was worth it; not if it cost nothing.

    It is divided by its own training, as in the steps of `random-longer`: draws that leave out images take fewer FLOPs
    than those of the random subset.
    """
    ours = row("lipt", [0.78], "selected", flops=3.1e12, train_flops=0.7e12, choice_flops=2.1e12)
    random = row("random", [0.75], "random", flops=1.3e12, train_flops=1e12, choice_flops=0)
    text = " ".join(judge([ours, random]).sentences)
    assert (
        "takes 2.38x the FLOPs: the choice alone took 3 times the FLOPs of the training. The comparison below also has "
        "`random-longer`, to show what random draws gain from more steps." in text
    )
    other = {"runs": ["b"], "data": "b"}
    cheap = ours.model_copy(update=other | {"label": "lipt [b]", "choice_flops": 1.4e12})
    beside = random.model_copy(update=other | {"label": "random [b]"})
    (hint,) = (each for each in judge([ours, random, cheap, beside]).sentences if "random-longer" in each)
    assert hint.startswith("The comparison below also has")  # side by side it is said once, and the prices of both
    both = judge([ours.model_copy(update={"scorer": "theta_p"}), random])
    assert "below also has `random-longer` and `random-continued`, to show" in " ".join(both.sentences)
    assert both.next_step
    assert both.next_step.variants == ("lipt", "random", "random-longer", "random-continued")
    longer = row("longer", [0.8], "longer", steps=3_000, flops=3.1e12, label="random-longer")
    for spent in (0, None):  # None: an older report
        free = ours.model_copy(update={"choice_flops": spent})
        for rows in ([free, random], [free, random, longer], [free.model_copy(update={"algorithm": "random"}), longer]):
            text = " ".join(judge(rows).sentences)
            assert "random-longer" not in text
            assert "more steps" not in text


def test_the_price_of_a_choice_that_is_made_again_is_compared_too():
    """It keeps all data, and the random subset beside it does not."""
    ours = row("lipt", [0.8] * 3, "selected", kept_fraction=1.0, flops=3e12, train_flops=1e12, choice_flops=2e12)
    fresh = row("rs2", [0.7] * 3, kept_fraction=1.0, flops=1e12)
    longer = row("random-longer", [0.75] * 3, "longer", steps=3_240, images=405_000, flops=3e12)
    assert "With the FLOPs of the choice as more steps" in " ".join(judge([ours, fresh, longer]).sentences)


def test_the_price_of_a_race_that_a_random_subset_won_is_told_once():
    ours = row("lipt", [0.8], "selected", algorithm="stratified", train_flops=1e12, choice_flops=2e12, race_flops=2e12)
    text = " ".join(judge([ours]).sentences)
    assert text.count("the FLOPs of the training") == 1
    assert "Add `random-longer`" in text


@pytest.mark.parametrize(
    ("changes", "before"),
    [
        ({"algorithm": "random", "continued": True}, "start"),
        ({"algorithm": "stratified", "draw": "ordered"}, "first losses"),
        ({"algorithm": "ccs", "continued": True}, "choice and the start"),
    ],
)
def test_what_a_start_or_first_losses_cost_is_told_and_compared(changes: dict[str, Any], before: str) -> None:
    """They are models that were trained, also where the subset is a random one."""
    ours = row("lipt", [0.81, 0.8, 0.82], "selected", **changes, flops=4e12, train_flops=1e12, choice_flops=3e12)
    random = row("stratified", [0.7] * 3, "random", flops=1e12)
    told = "took 3 times the FLOPs of the training. Add `random-longer` to"
    text = " ".join(judge([ours, random]).sentences)
    assert f"the {before} alone {told}" in text or f"The {before} {told}" in text
    longer = row("random-longer", [0.9, 0.89, 0.91], "longer", steps=4_320, images=540_000, flops=4.01e12)
    text = " ".join(judge([ours, random, longer]).sentences)
    assert f"With the FLOPs of the {before} as more steps (4,320 instead of 1,080), a class-balanced random" in text
    assert f"the steps are worth more than the {before}." in text
    assert "Add `random-longer`" not in text
