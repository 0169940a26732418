"""`lipt compare`: variants share what they have in common; a random subset with the cost of the choice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lipt import cli as lipt_cli
from lipt.cli import main
from lipt.config import Train, override, parse_config
from lipt.errors import UsageError
from lipt.flow.checks.validation import check_comparison
from lipt.flow.compare import longer_steps, run_comparison, run_with_baseline
from lipt.flow.dag import run, with_config
from lipt.flow.variants import left_out
from lipt.flow.variants import variants as variants_of
from lipt.pipeline import STAGE_NAMES
from lipt.report.document import Document
from lipt.report.verdict import judge
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import images_of, open_dataset, split_positions
from lipt.runtime.network import new_model, read_weights
from lipt.runtime.workspace import Workspace
from lipt.training.forward import outputs_of
from tests.tiny import TINY, digests, tiny_context


def test_compare_shares_what_variants_have_in_common(tmp_path: Path) -> None:
    document = run_comparison(
        tiny_context(
            tmp_path,
            {
                "compare": {"seeds": [0, 1, 2], "variants": ["full", "random", "rs2", "theta-star", "lipt"]},
                "train": {"epochs": 2},
            },
        )
    )
    assert document is not None
    rows = {row.name: row for row in document.rows}
    assert all(len(row.accuracy) == 3 for row in rows.values())
    assert (rows["full"].kept_fraction, rows["full"].epoch_fraction) == (1, 1)
    assert (rows["rs2"].kept_fraction, rows["rs2"].epoch_fraction) == (1, 0.1)
    assert (rows["lipt"].kept_fraction, rows["lipt"].epoch_fraction) == (0.1, 0.1)
    # RS2 and random train on the same number of images, but RS2 reads ten times as many; both read the test images.
    assert rows["rs2"].flops == pytest.approx(rows["random"].flops, rel=0.02)
    assert rows["rs2"].data_bytes > 3 * rows["random"].data_bytes  # type: ignore[operator]
    assert sum(key.startswith("initialise/") for key in digests(Workspace(str(tmp_path)))) == 3
    with pytest.raises(UsageError, match="did you mean 'random'"):
        run_comparison(tiny_context(tmp_path, {"compare": {"variants": ["randon", "lipt"]}}))


def test_a_longer_random_training_takes_the_flops_of_the_choice(tmp_path: Path) -> None:
    variants = ["stratified", "random-longer", "lipt"]
    ctx = tiny_context(
        tmp_path,
        {"compare": {"seeds": [0, 1], "variants": variants}, "select": {"algorithm": "ccs"}, "train": {"epochs": 2}},
    )
    document = run_comparison(ctx)
    assert document is not None
    rows = {row.name: row for row in document.rows}
    longer, ours, random = rows["random-longer"], rows["lipt"], rows["stratified"]
    assert (longer.role, longer.kept_fraction, longer.seeds) == ("longer", ours.kept_fraction, ours.seeds)
    assert (longer.steps or 0) > 2 * (random.steps or 0)
    step = (random.flops or 0) / (random.steps or 1)  # with its share of the evaluation: an upper bound
    assert longer.flops == pytest.approx(ours.flops, abs=step)
    assert any("With the FLOPs of the choice as more steps" in each for each in judge(document.rows).sentences)
    free = override(ctx.config, {"select": {"algorithm": "stratified"}})
    assert "random-longer" not in variants_of(free)
    # A start from a trained model costs as much as that model, and so do the first losses of the draws.
    for train in ({"start": "continue"}, {"draw": "infobatch", "first_losses": "trajectory"}):
        assert "random-longer" in variants_of(override(free, {"score": SCORERS[1], "train": train}))


def test_a_fresh_start_gets_the_flops_of_the_model_from_which_a_training_continues(tmp_path: Path) -> None:
    """Fresh draws from all images: what the row beside them draws is RS2, too."""
    changes = {
        "compare": {"seeds": [0], "variants": ["lipt", "rs2", "random-longer"]},
        "select": {"algorithm": "random", "fraction": 1.0},
        "train": {"steps": 30, "start": "continue", "epoch_fraction": 0.1},
    }
    document = run_comparison(tiny_context(tmp_path, changes))
    assert document is not None
    rows = {row.name: row for row in document.rows}
    longer, ours, fresh = rows["random-longer"], rows["lipt"], rows["rs2"]
    assert (longer.label, longer.kept_fraction) == ("RS2, more steps, from random weights", 1)
    assert (fresh.choice_flops, longer.choice_flops) == (0, 0)
    assert longer.flops == pytest.approx(ours.flops, abs=(fresh.flops or 0) / (fresh.steps or 1))
    told = judge(document.rows).sentences
    assert any(
        text.startswith("With the FLOPs of the start as more steps (") and ", RS2 reaches" in text for text in told
    )


def _validation_accuracy(ctx: Context) -> float:
    """Of the model that scored in a run that is already done."""
    done = run(ctx)
    attempt = Attempt(ctx=ctx, ref="test/0", label="test")
    model = new_model(ctx, 10, 0, read_weights(attempt, done.merged or done.prepared.initial[0]))
    data = open_dataset(attempt, done.prepared.dataset)
    images = images_of(ctx, data, "train", split_positions(ctx, data)[0])
    outputs = outputs_of(model, images, device=ctx.device)
    return float((outputs.logits(slice(None)).argmax(1) == images.labels_N).float().mean())


SCORERS = [{"model": "merged"}, {"model": "trajectory", "runs": 1, "epochs": 2}]


@pytest.mark.parametrize("score", SCORERS, ids=["theta_p", "trajectory"])
def test_a_random_subset_starts_from_the_models_that_scored(tmp_path: Path, score: dict[str, Any]) -> None:
    compare = {"seeds": [0], "variants": ["stratified", "random-continued", "lipt"]}
    ctx = tiny_context(tmp_path, {"compare": compare, "score": score, "merge": {"search_images": None}})
    document = run_comparison(ctx)
    rows = {row.name: row for row in document.rows}
    random, continued, ours = rows["stratified"], rows["random-continued"], rows["lipt"]
    assert (continued.role, continued.kept_fraction, continued.steps) == ("continued", ours.kept_fraction, ours.steps)
    assert continued.pretrain_cost == ours.pretrain_cost  # the same models, trained once
    assert len(list(tmp_path.glob("initialise/*/artifact.json"))) == 1
    assert (continued.flops or 0) > (random.flops or 0)
    name = "the model of the trajectory" if score["model"] == "trajectory" else "theta_p"
    assert {row.name: row.scorer for row in document.rows if row.scorer and not row.continued} == {"lipt": name}
    assert ours.scorer_accuracy == pytest.approx(_validation_accuracy(with_config(ctx, {"seed": 0})), abs=1e-6)
    assert any(each.startswith(f"Trained on from {name}, ") for each in judge(document.rows).sentences)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"train": {"start": "continue"}}, "train.start is continue already"),
        ({"select": {"algorithm": "stratified"}}, "the choice needs no model from which a training could start"),
        ({"score": SCORERS[1] | {"proxy": {"width": 2}}}, "the proxy that scores is another network"),
    ],
)
def test_a_row_that_cannot_start_from_the_model_that_scored_is_left_out(changes: dict[str, Any], why: str) -> None:
    config = override(parse_config(TINY), changes)
    assert "random-continued" not in variants_of(config)
    assert left_out(config)["random-continued"].startswith(why)


def test_a_longer_random_training_takes_the_flops_of_selecting_again(tmp_path: Path) -> None:
    changes = {
        "compare": {"seeds": [0], "variants": ["stratified", "random-longer", "lipt"]},
        "select": {"algorithm": "el2n"},
        "train": {"epochs": 4, "reselect_every": 1},
    }
    document = run_comparison(tiny_context(tmp_path, changes))
    assert document is not None
    rows = {row.name: row for row in document.rows}
    longer, ours, random = rows["random-longer"], rows["lipt"], rows["stratified"]
    step = (random.flops or 0) / (random.steps or 1)
    assert longer.flops == pytest.approx(ours.flops, abs=step)
    # A sweep on a cluster takes the steps from the report of the run that chose.
    ctx = tiny_context(tmp_path, changes)
    alone = override(ctx.config, {"train": {"random_baseline": False}})
    chosen = run_with_baseline(replace(ctx, config=alone))
    assert chosen is not None
    assert _longer(chosen, alone.train) == longer.steps


def _longer(chosen: Document, settings: Train) -> int:
    """`longer_steps`, from the report of a run."""
    assert chosen.subset is not None
    candidates, kept = sum(chosen.subset.candidates_per_class), chosen.subset.count
    return longer_steps(chosen.rows[0], settings, candidates=candidates, kept=kept)


def test_draws_that_leave_out_images_are_compared_at_equal_steps_and_flops(tmp_path: Path) -> None:
    """InfoBatch fills its batches again, so with few batches an epoch its steps have more images than uniform draws."""
    changes = {
        "compare": {"seeds": [0], "variants": ["stratified", "random-longer", "lipt"]},
        "select": {"algorithm": "ccs", "fraction": 0.05},
        "train": {"steps": 60, "batch_size": 64, "draw": "infobatch"},
    }
    document = run_comparison(tiny_context(tmp_path, changes))
    assert document is not None
    rows = {row.name: row for row in document.rows}
    longer, ours, random = rows["random-longer"], rows["lipt"], rows["stratified"]
    assert (ours.images or 0) > 1.05 * (random.images or 0)
    verdict = judge(document.rows)
    assert verdict.headline.startswith("Unknown: no random baseline has the budgets")
    told = "\n".join(verdict.sentences)
    assert "\nClass-balanced random took as many steps, but saw 1,950 images, not " in told
    assert "\nWith the FLOPs of the choice as more steps (" in told
    assert longer.flops == pytest.approx(ours.flops, abs=(random.flops or 0) / (random.steps or 1))
    ctx = tiny_context(tmp_path, changes | {"train": changes["train"] | {"random_baseline": False}})
    chosen = run_with_baseline(ctx)
    assert chosen is not None
    assert _longer(chosen, ctx.config.train) == longer.steps


def test_rows_that_would_repeat_that_of_the_choice_are_left_out_and_none_is_called_lipt_without_a_swarm() -> None:
    """A trajectory needs no swarm: what only changes the merge changes nothing."""
    trajectory = override(parse_config(TINY), {"score": {"model": "trajectory", "runs": 1, "epochs": 2}})
    labels = {name: variant.label for name, variant in variants_of(trajectory).items()}
    assert not {"theta-star", "best-single"} & set(labels)
    assert (labels["lipt"], labels["lipt-grand"]) == ("Trajectory", "Trajectory, GraNd")
    merged = {name: variant.label for name, variant in variants_of(parse_config(TINY)).items()}
    assert (merged["lipt"], merged["lipt-grand"]) == ("LiPT", "LiPT, GraNd (the paper's)")
    assert {"theta-star", "best-single"} <= set(merged)
    alone = variants_of(override(trajectory, {"score": {"model": "merged"}, "merge": {"method": "none"}}))
    assert "theta-star" not in alone
    assert alone["lipt"].label == "theta_* alone"
    jigsaws = override(parse_config(TINY), {"score": {"model": "jigsaws"}})
    assert "best-single" not in variants_of(jigsaws)
    assert "best-single" in variants_of(override(jigsaws, {"train": {"start": "continue"}}))  # it starts from that one


@pytest.mark.parametrize(
    ("changes", "repeated"),
    [
        ({"profile": "paper"}, {"lipt-grand": "lipt"}),
        (
            {"score": {"model": "classic", "runs": 10, "epochs": 1}, "select": {"algorithm": "grand"}},
            {"lipt-grand": "lipt", "classic-grand": "lipt"},
        ),
        ({"score": {"model": "classic", "runs": 10, "epochs": 1}}, {"classic-grand": "lipt-grand"}),
        ({"score": {"model": "jigsaws"}, "select": {"algorithm": "dual"}}, {"swarm-dual": "lipt"}),
        ({}, {}),
    ],
)
def test_variants_with_equal_settings_are_left_out(changes: dict[str, Any], repeated: dict[str, str]) -> None:
    config = override(parse_config({} if "profile" in changes else TINY), changes)
    told = {name: why for name, why in left_out(config).items() if why.startswith("its settings are")}
    assert told == {name: f"its settings are those of {other}" for name, other in repeated.items()}
    assert not repeated.keys() & variants_of(config).keys()


def test_variants_with_other_scores_can_be_made_beside_models_that_divide_the_data() -> None:
    config = override(parse_config(TINY), {"score": SCORERS[1] | {"runs": 3, "disjoint": True}})
    for name in ("classic-grand", "swarm-dual"):
        assert not override(config, variants_of(config)[name].changes).score.disjoint


def test_a_named_row_that_would_repeat_another_is_left_out_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trajectory = {"model": "trajectory", "runs": 1, "epochs": 2}
    ctx = tiny_context(tmp_path, {"score": trajectory, "compare": {"variants": ["lipt", "theta-star"]}})
    assert [variant.name for variant in check_comparison(ctx)] == ["lipt"]
    assert "left out: variant theta-star: the configuration merges no jigsaws" in capsys.readouterr().err


def test_a_dry_run_counts_what_is_missing_and_predicts_its_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctx = tiny_context(tmp_path, {"compare": {"seeds": [0, 1], "variants": ["lipt", "stratified", "random-longer"]}})
    config = tmp_path / "tiny.yaml"
    config.write_text(json.dumps(ctx.config.model_dump(mode="json")))
    run(with_config(ctx, {"seed": 0}))

    def counted() -> dict[str, int]:
        for more in ([], ["-o", "json"]):
            lipt_cli.main(["compare", str(config), "--dry-run", *more])
        text, _, document = capsys.readouterr().out.partition("{")
        told = json.loads("{" + document)
        assert text.splitlines()[0] == "3 rows x 2 seeds"
        (total,) = (line for line in text.splitlines() if line.startswith("all "))
        assert total.split()[1] == str(sum(told["stages"].values()))
        assert set(told["seconds"]) == set(told["stages"])
        assert [*told["stages"]] == [name for name in STAGE_NAMES if name in told["stages"]]  # as a run does them
        assert (told["wall_s"] or 0) > 0 or not told["stages"]
        return told["stages"]

    made = len(list(tmp_path.rglob("artifact.json")))
    stages = counted()
    assert stages["train"] == 5  # `lipt` with seed 0 is finished
    assert len(list(tmp_path.rglob("artifact.json"))) == made
    run_comparison(ctx)
    assert not counted()


@pytest.mark.parametrize(
    "command",
    [["compare", "base.yaml"], ["sweep", "base.yaml"], ["reproduce", "b1"], ["compare", "base.yaml", "--dry-run"]],
)
def test_a_seed_beside_the_list_of_seeds_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--set", "model.width=4", "--set", "seed=7"])
    told = capsys.readouterr().err
    assert "--set seed has no effect here: each row runs with the seeds of compare.seeds" in told
    assert "--set 'compare.seeds=[7]'" in told
