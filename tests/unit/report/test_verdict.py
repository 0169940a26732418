"""The verdict says what the numbers say, and no more than the seeds can carry."""

import re

import pytest
from report_samples import comparison, document, row

from lipt.report.comparison import comparison_groups
from lipt.report.document import Link
from lipt.report.names import FIXED
from lipt.report.next_step import Origin
from lipt.report.significance import group_by_budgets, strongest_random
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
    verdict = _judge([0.78, 0.77, 0.77], [0.765, 0.77, 0.775])
    assert verdict.level == "tie"
    assert "does not measurably beat random" in verdict.headline
    assert verdict.next_step is None


@pytest.mark.parametrize(
    ("seeds", "more", "advised"),
    [(3, "five or more", (0, 1, 2, 3, 4)), (4, "five or more", (0, 1, 2, 3, 4)), (6, "more", tuple(range(12)))],
)
def test_an_interval_that_is_too_wide_is_no_result(seeds, more, advised):
    """It holds a gain as well as a loss of the size that choices have."""
    ours = [0.70, 0.84, 0.60, 0.90, 0.66, 0.80][:seeds]
    verdict = _judge(ours, [0.76] * seeds)
    assert verdict.level == "tie"
    assert verdict.headline.startswith(
        f"lipt against random at 10 % of the data: {seeds} seeds cannot tell; the difference"
    )
    assert verdict.headline.endswith(f" points. Run {more}.")
    low, high = re.findall(r"[+−][\d.]+", verdict.headline)
    assert f"95 % interval {low} to {high} ({seeds} seeds" in verdict.sentences[0]
    assert verdict.next_step is not None
    assert verdict.next_step.seeds == advised


@pytest.mark.parametrize(
    ("ours", "random", "said"),
    [([0.95], [0.50], "one seed is"), ([0.95, 0.96], [0.50, 0.51], "2 seeds are"), ([0.5], [0.95], "one seed is")],
)
def test_fewer_than_three_seeds_settle_nothing_however_large_the_difference(ours, random, said):
    verdict = _judge(ours, random)
    assert verdict.level == "unknown"
    assert f"{said} not enough to tell which is better." in verdict.headline
    assert verdict.next_step is not None
    text = " ".join((verdict.headline, *verdict.sentences))
    assert not any(claim in text for claim in ("beat", "worse", "(better", "wins", "loses"))


def test_one_seed_tells_the_difference_and_what_the_test_set_leaves_open():
    verdict = _judge([0.78], [0.76])
    assert verdict.headline.startswith("lipt: +2.00 points against random at 10 % of the data")
    assert "78.00 % against 76.00 % after 30 epochs (1,080 steps, 135,000 images)" in verdict.sentences[0]
    assert "; the 10,000 test images alone allow an error of about ±1.17 points (95 %)" in verdict.sentences[0]


def test_at_chance_the_comparison_says_nothing():
    """Seed by seed the same tenth of a point: an interval without zero, between models that learned nothing."""
    verdict = _judge([0.1030, 0.1031, 0.1029], [0.1001, 0.1000, 0.1001])
    assert verdict.level == "unknown"
    assert "are both at chance" in verdict.headline
    assert "always predicting the most frequent class is right for 10.00 %" in verdict.sentences[0]
    assert _judge([0.12, 0.121, 0.119], [0.1001, 0.1000, 0.1001]).level == "wins"  # one of them learned something


@pytest.mark.parametrize("ours", [[0.2], [0.4], [0.2, 0.1, 0.2], [0.45, 0.2, 0.35]])
def test_too_few_test_images_are_named_and_neither_steps_nor_seeds_are_advised(ours):
    rows = [row("lipt", ours, "selected"), row("random", [0.1] * len(ours), "random")]
    verdict = judge([each.model_copy(update={"num_test_images": 10}) for each in rows])
    assert verdict.headline == "lipt against random at 10 % of the data: 10 test images cannot tell which is better."
    assert "with 10 test images an accuracy has an error of about ±" in verdict.sentences[0]
    assert verdict.sentences[0].endswith("add some to the test split; without one, raise `data.test_fraction`.")
    assert "more steps" not in verdict.sentences[0]
    assert verdict.next_step is None
    many = judge([each.model_copy(update={"num_test_images": 1_000}) for each in rows])
    assert "data.test_fraction" not in many.sentences[0]


@pytest.mark.parametrize(
    ("images", "level"),
    [(133_000, "wins"), (100_000, "unknown")],
    ids=["smaller last batches", "images left out"],
)
def test_rows_that_saw_fewer_images_are_not_ranked(images, level):
    """`draw: infobatch` leaves out images: with equal epochs it sees fewer of them, so it is no equal comparison."""
    steps = 1_080 if level == "wins" else 800
    assert _judge([0.9] * 3, [0.1] * 3, images=images, steps=steps).level == level


def test_at_equal_steps_rows_with_other_numbers_of_images_are_not_ranked_but_named():
    """A draw that fills its batches again may see many more images, if an epoch has few batches."""
    verdict = _judge([0.9] * 3, [0.1] * 3, images=147_000, draw="infobatch")
    assert verdict.level == "unknown"
    assert verdict.sentences[-1] == (
        "random took as many steps, but saw 135,000 images, not 147,000. A smaller `train.batch_size` brings the two "
        "closer: rows are ranked if they differ by 5 % at most."
    )


def test_without_counted_images_the_epochs_must_be_equal():
    unknown = {"images": None, "steps": None}
    assert _judge([0.9] * 3, [0.1] * 3, **unknown).level == "wins"
    assert _judge([0.9] * 3, [0.1] * 3, **unknown, epochs=60).level == "unknown"


def test_with_equal_steps_the_number_of_epochs_does_not_matter():
    """`train.steps`: draws that skip images take more epochs for as many steps."""
    assert _judge([0.9, 0.9, 0.9], [0.1, 0.1, 0.1], epochs=60).level == "wins"


@pytest.mark.parametrize("budget", [{"kept_fraction": 0.2}, {"epoch_fraction": 0.2}, {"epochs": 60, "steps": 2_160}])
def test_random_at_another_budget_is_not_compared(budget):
    verdict = _judge([0.9, 0.9, 0.9], [0.1, 0.1, 0.1], **budget)
    assert verdict.level == "unknown"
    assert verdict.headline.startswith("Unknown: no random baseline has the budgets of lipt")


def test_rounding_per_class_is_not_another_budget():
    assert _judge([0.9] * 3, [0.1] * 3, kept_fraction=0.1004, epoch_fraction=0.1004).level == "wins"


def test_the_strongest_random_row_is_the_reference():
    ours, weak, strong = (
        row(name, [accuracy] * 3, role)
        for name, accuracy, role in (("lipt", 0.78, "selected"), ("u", 0.70, "random"), ("s", 0.80, "random"))
    )
    assert strongest_random(ours, [weak, strong]) is strong
    assert judge([ours, weak, strong]).level == "loses"


def test_a_selection_that_keeps_all_is_compared_with_fresh_draws():
    ours = row("lipt", [0.78, 0.79, 0.8], "selected", kept_fraction=1.0)
    rs2 = row("rs2", [0.7] * 3, kept_fraction=1.0, label="RS2: fresh random draw every epoch")
    fixed = row("stratified", [0.9] * 3, "random")
    verdict = judge([ours, rs2, fixed])
    assert (verdict.level, verdict.headline[:18]) == ("wins", "lipt beats RS2, +9")
    (lines,) = (lines for lines in comparison_groups([ours, rs2, fixed]) if len(lines) == 2)
    assert [line.results[2].text for line in lines][1] == "reference"
    assert not any("at the same budgets" in sentence for sentence in verdict.sentences)


def test_side_by_side_a_row_is_compared_over_its_own_seeds():
    ours, own, other = (
        row("lipt", [0.70, 0.72, 0.74], "selected", seeds=[0, 1, 2]),
        row("random", [0.70, 0.70, 0.70], "random", seeds=[0, 1, 2]),
        row("random", [0.60, 0.80, 0.90], "random", seeds=[2, 3, 4]),
    )
    assert strongest_random(ours, [own, other]) is own
    one = judge([ours, other])
    assert "+14.00 points" in one.headline
    assert one.sentences[0].startswith("Test accuracy: 74.00 % against 60.00 %")


def test_side_by_side_a_common_sentence_is_said_once_at_the_end():
    random = row("random", [0.7] * 3, "random")
    ours = [row(name, [0.8] * 3, "selected", label=f"LiPT [{name}]", reason="so it is") for name in ("a", "b")]
    assert judge([*ours, random]).sentences[-1] == "Why this algorithm: so it is."
    assert judge([*ours, random]).sentences.count("Why this algorithm: so it is.") == 1
    verdict = judge([ours[0], ours[1].model_copy(update={"accuracy": [0.9] * 3}), random])
    assert (list(verdict.runs), verdict.common) == (["a", "b"], ["Why this algorithm: so it is."])
    assert [text.split(" beats")[0] for text, *_ in verdict.runs.values()] == ["LiPT [a]", "LiPT [b]"]
    assert verdict.sentences == [*verdict.runs["a"], *verdict.runs["b"], *verdict.common]
    other = ours[1].model_copy(update={"reason": "or not"})
    sentences = judge([ours[0], other, random]).sentences
    assert [text for text in sentences if text.startswith("Why")] == [
        "Why this algorithm: so it is.",
        "Why this algorithm: or not.",
    ]


def test_a_short_label_keeps_its_run_whole():
    random = row("rs2", [0.7] * 3, "random", label="RS2: fresh draws [run, odd:folder]")
    assert "beats RS2 [run, odd:folder]," in judge([row("lipt", [0.8] * 3, "selected"), random]).headline


def test_what_pays_and_what_was_saved_is_named():
    text = " ".join(judge(comparison()).sentences)
    assert (
        "RS2 (fresh random every epoch) keeps 100 % of the data and trains on as many images per epoch: "
        "+6.43 ± 0.63 points (better)." in text
    )
    assert "1.19x the wall-clock (5 min 38 s against 4 min 43 s), 11.4x the data bytes" in text
    assert "Training on everything reaches 95.20 %: LiPT + CCS is 16.80 points below it at 0.14x the wall-clock" in text
    assert (
        "Pre-training took the FLOPs of 1.31 epochs of training on all candidates; classic GraNd, 10 runs took 10, "
        "7.63x as many" in text
    )
    assert "theta_* alone, no swarm −0.37 ± 1.60 points (3 seeds cannot tell)" in text


def test_the_advice_to_draw_afresh_names_the_exact_share():
    ours = row("lipt", [0.78], "selected", algorithm="stratified", kept_fraction=0.005, epoch_fraction=0.005)
    assert "train.epoch_fraction: 0.005)" in " ".join(judge([ours]).sentences)


def test_draws_by_losses_from_a_random_subset_are_compared_with_uniform_ones():
    random = row("random", [0.75, 0.76, 0.75], "random", algorithm="stratified")
    ours = row("lipt", [0.78, 0.79, 0.78], "selected", algorithm="stratified", draw="ordered")
    told = f"Compared with {ours.label}, at the same budgets: random −3.00 ± 0.02 points (worse)."
    assert told in judge([ours, random]).sentences
    same = ours.model_copy(update={"draw": "uniform"})
    assert not any("at the same budgets" in sentence for sentence in judge([same, random]).sentences)


def test_a_run_that_keeps_all_does_not_say_why_it_took_a_random_subset():
    ours = row("lipt", [0.78], "selected", algorithm="stratified", reason="auto takes a random subset")
    assert any("Why" in sentence for sentence in judge([ours]).sentences)
    whole = ours.model_copy(update={"kept_fraction": 1, "epoch_fraction": 1})
    assert judge([whole]).sentences == ["lipt reaches 78.00 % after 30 epochs (1,080 steps, 135,000 images)."]


def test_a_pool_and_its_budgets_are_named_separately():
    headline = _judge([0.9], [0.1], kept_fraction=0.3).headline
    assert "30 % of the data kept, 10 % trained on per epoch" in headline


def test_several_selected_rows_are_each_judged_at_their_budget():
    rows = [
        *(
            row(f"lipt {share}", [accuracy] * 3, "selected", kept_fraction=share, epoch_fraction=share)
            for share, accuracy in ((0.1, 0.9), (0.2, 0.5))
        ),
        *(row("random", [0.7] * 3, "random", kept_fraction=share, epoch_fraction=share) for share in (0.1, 0.2)),
    ]
    verdict = judge(rows)
    assert verdict.level == "mixed"
    assert verdict.headline == "Beats random in 1 of 2 comparisons at equal budgets."
    assert judge([rows[0], rows[2]]).level == "wins"


def test_where_no_comparison_tells_a_difference_nothing_is_counted():
    rows = [row(f"run {at}", [0.78, 0.74, 0.77], "selected") for at in range(2)]
    verdict = judge([*rows, row("random", [0.75, 0.76, 0.76], "random")])
    assert (verdict.level, verdict.headline) == ("tie", "No comparison with random shows a difference.")
    worse = judge([rows[0], row("run 1", [0.6, 0.61, 0.6], "selected"), row("random", [0.75, 0.76, 0.76], "random")])
    assert worse.headline == "Beats random in 0 of 2 comparisons at equal budgets."


def test_a_method_that_keeps_more_is_named_without_its_explanation_but_with_its_run():
    ours = row("a", [0.8, 0.81, 0.8], "selected")
    fresh = row("rs2", [0.85, 0.86, 0.85], kept_fraction=1.0, label="RS2: fresh random draw every epoch [digits-1a2b]")
    assert any(sentence.startswith("RS2 [digits-1a2b] keeps 100 % of") for sentence in judge([ours, fresh]).sentences)


def test_the_advised_comparison_has_the_row_beside_the_run_and_the_price_of_the_choice() -> None:
    """Class-balanced random, not plain random; the FLOPs of the choice as more steps, if it took any."""
    ours = row("selected", [0.78], "selected", flops=3e12, train_flops=0.9e12, choice_flops=2e12)
    random = row("stratified", [0.76], "random", flops=1e12, train_flops=0.9e12, choice_flops=0)
    verdict = judge([ours, random])
    assert verdict.next_step is not None
    assert verdict.next_step.commands({})[0] == (
        "lipt compare CONFIG \\\n"
        "  --set 'compare.seeds=[0,1,2,3,4]' \\\n"
        "  --set 'compare.variants=[lipt,stratified,random-longer]'"
    )
    assert str(verdict).endswith(f"{verdict.next_step.sentence}\n{verdict.next_step.commands({})[0]}")
    free = judge([ours.model_copy(update={"flops": 1e12, "choice_flops": 0}), random]).next_step
    assert free is not None
    assert free.variants == ("lipt", "stratified")
    fixed = random.model_copy(update={"name": FIXED, "algorithm": "random"})  # of a run of RS2, side by side
    beside = judge([ours, fixed]).next_step
    assert beside is not None
    assert beside.variants[:2] == ("lipt", "random")


def test_the_command_keeps_the_options_of_the_run_and_has_its_seed_among_others() -> None:
    ours, random = row("selected", [0.78], "selected", seeds=[7]), row("stratified", [0.76], "random", seeds=[7])
    step = judge([ours, random]).next_step
    assert step is not None
    options = ["seed=7", "select.fraction=0.02", "data.source=my photos", "compare.seeds=[7]"]
    assert step.commands({"a": Origin("my photos.yaml", options)})[0].splitlines() == [
        "lipt compare 'my photos.yaml' \\",
        "  --set select.fraction=0.02 \\",
        "  --set 'data.source=my photos' \\",
        "  --set 'compare.seeds=[0,1,2,3,7]' \\",
        "  --set 'compare.variants=[lipt,stratified]'",
    ]


def test_side_by_side_one_comparison_is_advised_for_all_runs() -> None:
    rows = [
        row("selected", [0.78], "selected", label="LiPT [a]", seeds=[7], runs=["a"]),
        row("stratified", [0.7], "random", label="Random [a]", seeds=[7], runs=["a"]),
        row("selected", [0.8], "selected", label="LiPT [b]", runs=["b"]),
        row("random", [0.7], "random", label="Random [b]", runs=["b"]),
    ]
    step = judge(rows).next_step
    assert step is not None
    assert (step.seeds, step.variants) == ((0, 1, 2, 3, 4, 7), ("lipt", "stratified", "random"))
    assert step.sentence == "To find out, compare a and b over 6 seeds, each with its other settings unchanged:"
    of_a, of_b = step.commands({"b": Origin("b.yaml", ["seed=0"]), "a": Origin("a.yaml")})
    assert of_a.startswith("lipt compare a.yaml \\\n  --set 'compare.seeds=[0,1,2,3,4,7]'")
    assert of_a.endswith("'compare.variants=[lipt,stratified]'")  # each with the variants that it has
    assert of_b.startswith("lipt compare b.yaml \\\n  --set 'compare.seeds=[0,1,2,3,4,7]'")
    assert of_b.endswith("'compare.variants=[lipt,random]'")


def test_side_by_side_runs_that_differ_only_in_what_the_command_sets_are_compared_by_one_command() -> None:
    """Such as a run and its comparison."""
    common = {"data.source": "digits", "select.fraction": "0.05"}
    identities: dict[str, dict[str, str]] = {
        "a": {**common, "seed": "0", "compare.variants": "[]"},
        "b": {**common, "seed": "1", "compare.variants": "[lipt, random]"},
        "c": {**common, "select.fraction": "0.02"},
        "d": {**common, "dataset": "another folder of this name"},
    }
    names = {"a": "stratified", "b": "random", "c": "stratified", "d": "stratified"}
    rows = [
        each
        for run, name in names.items()
        for each in (
            row("selected", [0.78], "selected", label=f"LiPT [{run}]", runs=[run]),
            row(name, [0.7], "random", label=f"Random [{run}]", runs=[run]),
        )
    ]
    step = judge(rows).next_step
    assert step is not None
    commands = step.commands({run: Origin(f"{run}.yaml", identity=of_run) for run, of_run in identities.items()})
    assert [command.partition(" \\\n")[0] for command in commands] == [f"lipt compare {name}.yaml" for name in "acd"]
    assert commands[0].endswith("'compare.variants=[lipt,stratified,random]'")


def test_side_by_side_a_sentence_that_some_runs_share_is_said_once_and_names_them() -> None:
    """Such as the measured gains behind the choice of `auto`."""
    gain = "auto takes ccs; its gain on CIFAR-10: +2 points"
    reasons = {"a": gain, "b": "", "c": f"{gain}. This training sees each image 99 times"}
    rows = [
        row("selected", [0.7 + place / 100], "selected", label=f"LiPT [{name}]", runs=[name], reason=reason)
        for place, (name, reason) in enumerate(reasons.items())
    ]
    verdict = judge([*rows, row("stratified", [0.6], "random", label="Random [a]", runs=[*reasons])])
    assert verdict.common == [f"a and c: {gain}."]
    assert "This training sees each image 99 times." in verdict.runs["c"]
    assert "CIFAR-10" not in "".join(sentence for told in verdict.runs.values() for sentence in told)


@pytest.mark.parametrize("continued", [False, True])
def test_a_random_subset_is_followed_by_a_comparison_with_a_chosen_one(continued: bool) -> None:
    ours = row("selected", [0.7], "selected", algorithm="stratified", continued=continued)
    step = judge([ours]).next_step
    assert step is not None
    assert step.sentence.startswith("To see whether chosen images are better than random ones, compare over 5 seeds")
    options = ["select.algorithm=stratified", "train.epochs=9"]
    assert step.commands({"a": Origin("photos.yaml", options)})[0].splitlines() == [
        "lipt compare photos.yaml \\",
        "  --set train.epochs=9 \\",
        "  --set select.algorithm=ccs \\",
        "  --set score.model=trajectory \\",
        "  --set score.runs=1 \\",
        "  --set score.disjoint=false \\",
        "  --set score.epochs=10 \\",
        "  --set 'compare.seeds=[0,1,2,3,4]' \\",
        "  --set 'compare.variants=[lipt,stratified,random-longer]'",
    ]
    for changes in ({"reason": "auto says so"}, {"kept_fraction": 1.0}, {"draw": "ordered"}):
        assert judge([ours.model_copy(update=changes)]).next_step is None
    chosen = row("selected", [0.8], "selected", label="LiPT [b]", algorithm="ccs", runs=["b"])
    both = judge(
        [ours.model_copy(update={"label": "Random [a]", "runs": ["a"]}), chosen, row("random", [0.6], "random")]
    )
    assert both.next_step is not None
    assert list(both.next_step.runs) == ["b"]  # beside a chosen subset


def test_the_configuration_beside_a_report_names_it() -> None:
    links = [Link(name="Configuration", meaning="settings", key="reports/a-1/config.yaml")]
    stored = Origin.stored(document(links=links), "file:///my/runs")
    assert stored == Origin("/my/runs/reports/a-1/config.yaml", ("workspace=/my/runs",))
    assert Origin.stored(document(links=links), "s3://bucket/runs") == Origin()
    assert Origin.stored(document(links=[]), "file:///my/runs") == Origin()


def test_a_command_with_a_network_of_the_users_own_says_where_it_runs() -> None:
    step = judge([row("selected", [0.78], "selected"), row("stratified", [0.76], "random")]).next_step
    assert step is not None
    introduction = step.introduction({"a": Origin("/my/runs/reports/a-1/config.yaml", module="my_net")})
    assert introduction == f"{step.sentence[:-1]}. Start it in a folder where Python finds the module my_net:"


def test_a_random_subset_is_called_one_and_what_else_is_possible_is_named():
    ours = row("a", [0.8, 0.81, 0.8], "selected", label="auto", algorithm="stratified", reason="nothing did better")
    fresh = row("rs2", [0.85, 0.86, 0.85], kept_fraction=1.0)
    verdict = judge([ours, fresh])
    assert verdict.level == "unknown"
    assert verdict.headline == ("auto is a random subset (10 % of the data): no model chose it.")
    assert verdict.sentences[0] == "Why this algorithm: nothing did better."
    (of_rs2,) = (sentence for sentence in verdict.sentences if sentence.startswith("rs2 keeps 100 %"))
    assert "+5.00 ± 0.02 points (better)" in of_rs2
    assert verdict.sentences[-1] == "Alternatives: a smaller select.fraction; another select.algorithm."
    alone = judge([ours]).sentences[-1]  # without the row of fresh draws, they are advised
    assert "select.fraction: 1, train.epoch_fraction: 0.1" in alone


def test_where_the_random_subset_won_a_race_its_price_is_told():
    fields = {"label": "Class-balanced random", "algorithm": "stratified", "reason": "it won the race"}
    ours = row("lipt", [0.78], "selected", flops=2.8e12, train_flops=0.9e12, race_flops=1.8e12, **fields)
    verdict = judge([ours])
    assert verdict.headline.endswith("it won a race of selections.")
    price = "The race and its scores took 2x the FLOPs of the training, and chose a random subset"
    assert verdict.sentences[1].startswith(price)


def test_side_by_side_a_mean_over_some_of_the_seeds_names_them():
    """The table shows the mean over all seeds of a row, which is another number."""
    ours = row("lipt", [0.7], "selected", seeds=[0])
    random = row("random", [0.6, 0.8, 0.7], "random")
    full = row("full", [0.92, 0.90, 0.91], "full", kept_fraction=1.0, epoch_fraction=1.0)
    text = " ".join(judge([ours, random, full]).sentences)
    assert "70.00 % against 60.00 % (seed 0) after" in text
    assert "reaches 92.00 % (seed 0): lipt is 22.00 points below it" in text
    assert "(seed" not in " ".join(judge(comparison()).sentences)


@pytest.mark.parametrize(
    ("per_epoch", "said"),
    [(0.1, "draws afresh in each epoch (100 % of the data kept"), (1.0, "trains on all of the data")],
)
def test_where_all_data_are_kept_nothing_is_called_a_subset(per_epoch, said):
    ours = row("a", [0.8], "selected", label="random", algorithm="random", kept_fraction=1.0, epoch_fraction=per_epoch)
    verdict = judge([ours])
    assert said in verdict.headline
    assert not any("Alternatives" in sentence for sentence in verdict.sentences)


def test_nothing_selected_is_nothing_judged():
    assert judge([row("random", [0.5], "random")]).level == "unknown"


def test_groups_hold_equal_budgets_only_and_ours_comes_first():
    names = [[line.name for line in group] for group in group_by_budgets(comparison()[::-1])]
    assert names[0][0] == "lipt"
    assert set(names[0]) == {"lipt", "random", "stratified", "classic", "theta-star"}
    assert names[1:] == [["rs2"], ["full"]]


def test_an_interval_ends_at_100_points() -> None:
    verdict = judge([row("lipt", [0.9, 0.1, 0.9], "selected"), row("random", [0.1, 0.9, 0.1], "random")])
    assert verdict.headline.endswith("the difference lies between −100.00 and +100.00 points. Run five or more.")


def test_without_any_random_row_the_verdict_says_how_to_get_one():
    alone = judge([row("lipt", [0.9] * 3, "selected")])
    assert alone.sentences[-1].startswith("`train.random_baseline: true` also trains on a random subset")
