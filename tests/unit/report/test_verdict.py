"""The verdict says what the numbers say, and no more than the seeds can carry."""

import math

import pytest
from report_samples import comparison, row

from lipt.report.compare import difference, group_by_budgets, strongest_random
from lipt.report.verdict import judge


def _judge(ours, random, **changes):
    return judge([row("lipt", ours, "selected", **changes), row("random", random, "random")])


def test_a_consistent_gain_over_seeds_wins():
    verdict = _judge([0.781, 0.787, 0.784], [0.763, 0.766, 0.764])
    assert verdict.level == "wins"
    assert verdict.headline.startswith("lipt beats random, +1.97 points at 10 % of the data")
    assert "3 seeds, paired by seed" in verdict.sentences[0]


def test_a_loss_is_said_plainly():
    verdict = _judge([0.70, 0.71, 0.69], [0.76, 0.77, 0.755])
    assert verdict.level == "loses"
    assert "lipt does not beat random: it is worse, −6.17 points" in verdict.headline


def test_a_gain_within_the_noise_is_a_tie_and_not_called_a_win():
    verdict = _judge([0.78, 0.74, 0.77], [0.75, 0.76, 0.76])
    assert verdict.level == "tie"
    assert "does not measurably beat random" in verdict.headline


def test_two_seeds_need_more_than_a_fair_looking_gain():
    verdict = _judge([0.78, 0.79], [0.77, 0.76])
    assert verdict.level == "tie"
    assert "Two seeds can show only very large differences." in verdict.sentences[0]


@pytest.mark.parametrize(("ours", "level"), [(0.78, "wins"), (0.765, "tie"), (0.74, "loses")])
def test_one_seed_is_judged_by_the_test_set_and_says_so(ours, level):
    verdict = _judge([ours], [0.76])
    assert verdict.level == level
    assert "one seed" in verdict.sentences[0]
    assert "10,000 test images" in verdict.sentences[0]


def test_the_binomial_interval_is_the_textbook_one():
    delta = difference(row("a", [0.6], num_test_images=10_000), row("b", [0.5], num_test_images=10_000))
    assert delta.half_width == pytest.approx(1.96 * math.sqrt(0.24 / 1e4 + 0.25 / 1e4), rel=1e-3)


def test_a_small_test_set_turns_the_same_gain_into_a_tie():
    verdict = judge(
        [row("lipt", [0.78], "selected", num_test_images=360), row("random", [0.76], "random", num_test_images=360)]
    )
    assert verdict.level == "tie"


def test_perfect_accuracy_on_few_images_is_not_certainty():
    delta = difference(row("a", [1.0], num_test_images=20), row("b", [0.95], num_test_images=20))
    assert delta.level == "tie"


def test_other_seeds_are_not_paired():
    left, right = row("a", [0.70, 0.80, 0.90]), row("b", [0.69, 0.79, 0.89])
    elsewhere = right.model_copy(update={"seeds": [7, 8, 9]})
    assert difference(left, right).kind == "paired"
    assert difference(left, right).level == "wins"
    welch = difference(left, elsewhere)
    assert (welch.kind, welch.level) == ("welch", "tie")
    # Equal variances and sizes: t with 4 degrees of freedom times sqrt(2 s^2 / 3), s = 0.1.
    assert welch.half_width == pytest.approx(2.776 * math.sqrt(2 * 0.01 / 3), rel=1e-3)


def test_pairing_is_by_seed_and_not_by_position():
    left, right = row("a", [0.7, 0.8, 0.9]), row("b", [0.89, 0.69, 0.79], seeds=[2, 0, 1])
    assert difference(left, right).level == "wins"


def test_seeds_that_agree_exactly_do_not_make_one_image_significant():
    delta = difference(row("a", [0.7601, 0.7601]), row("b", [0.76, 0.76]))
    assert delta.half_width > 0
    assert delta.level == "tie"


@pytest.mark.parametrize("budget", [{"kept_fraction": 0.2}, {"epoch_fraction": 0.2}, {"epochs": 60}])
def test_random_at_another_budget_is_not_compared(budget):
    verdict = _judge([0.9, 0.9], [0.1, 0.1], **budget)
    assert verdict.level == "unknown"
    assert verdict.headline.startswith("Unknown: no random baseline has the budgets of lipt")


def test_rounding_per_class_is_not_another_budget():
    assert _judge([0.9], [0.1], kept_fraction=0.1004, epoch_fraction=0.1004).level == "wins"


def test_the_strongest_random_row_is_the_reference():
    ours, weak, strong = row("lipt", [0.78], "selected"), row("u", [0.70], "random"), row("s", [0.80], "random")
    assert strongest_random(ours, [weak, strong]) is strong
    assert judge([ours, weak, strong]).level == "loses"


def test_what_pays_and_what_was_saved_is_named():
    text = " ".join(judge(comparison()).sentences)
    assert "RS2 (fresh random every epoch) +6.43 points (better) from 100 % of the data" in text
    assert "1.19x the wall-clock (5 min 38 s against 4 min 43 s), 11.4x the data bytes" in text
    assert "Training on everything reaches 95.20 %: LiPT + CCS is −16.80 points from it at 0.14x the wall-clock" in text
    assert (
        "Pre-training took the FLOPs of 1.31 epochs of training on all candidates; classic GraNd, 10 runs took 10, "
        "7.63x as many" in text
    )
    assert "θ* alone, no swarm −0.37 points (within the noise of 3 seeds)" in text


def test_a_pool_and_its_budgets_are_named_separately():
    headline = _judge([0.9], [0.1], kept_fraction=0.3).headline
    assert "30 % of the data kept, 10 % trained on per epoch" in headline


def test_several_selected_rows_are_each_judged_at_their_budget():
    rows = [
        *(row(f"lipt {share}", [accuracy], "selected", kept_fraction=share, epoch_fraction=share)
          for share, accuracy in ((0.1, 0.9), (0.2, 0.5))),
        *(row("random", [0.7], "random", kept_fraction=share, epoch_fraction=share) for share in (0.1, 0.2)),
    ]  # fmt: skip
    verdict = judge(rows)
    assert verdict.level == "mixed"
    assert verdict.headline == "Beats random in 1 of 2 comparisons at equal budgets."
    assert judge([rows[0], rows[2]]).level == "wins"


def test_nothing_selected_is_nothing_judged():
    assert judge([row("random", [0.5], "random")]).level == "unknown"


def test_groups_hold_equal_budgets_only_and_ours_comes_first():
    names = [[line.name for line in group] for group in group_by_budgets(comparison()[::-1])]
    assert names[0][0] == "lipt"
    assert set(names[0]) == {"lipt", "random", "stratified", "classic", "theta-star"}
    assert names[1:] == [["rs2"], ["full"]]
