"""Every switch of the method runs end to end and does what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from lipt.data.images import ImageSet, StreamedImages
from lipt.errors import UsageError
from lipt.flow.dag import run
from lipt.flow.outcome import Outcome
from lipt.runtime.attempt import Attempt
from lipt.runtime.dataset import open_dataset, split_positions
from lipt.selection import ALGORITHMS, Selection, requirements, select
from lipt.stages.score import read_scores
from lipt.stages.select import SUBSET, read_subset
from lipt.training.loop import Trainer
from tests.tiny import file_digest, tiny_context


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One workspace for all: variants share what they have in common, which keeps this file quick."""
    return tmp_path_factory.mktemp("switches")


def run_tiny(folder: Path, changes: dict[str, Any]) -> Outcome:
    return run(tiny_context(folder, {"train": {"epochs": 1}} | changes))


def _needs_more_than_theta_p(algorithm: str) -> bool:
    needs = requirements(algorithm, 0.1)
    return (needs.trajectory and not needs.outputs) or needs.scores or needs.models > 1


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if not _needs_more_than_theta_p(name)])
def test_every_algorithm_selects_its_budget(folder: Path, algorithm: str) -> None:
    outcome = run_tiny(folder, {"select": {"algorithm": algorithm}})
    assert outcome.subset.summary["count"] == pytest.approx(0.1 * 1294, abs=6)
    assert outcome.subset.summary["weighted"] == (algorithm in ("craig", "gradmatch"))
    assert (outcome.merged is None) == (not requirements(algorithm, 0.1).outputs)


def test_glister_is_led_by_the_validation_images(folder: Path) -> None:
    """They are 144 images, in two blocks."""
    ctx = tiny_context(
        folder, {"train": {"epochs": 1}, "select": {"algorithm": "glister"}, "score": {"block_images": 140}}
    )
    outcome, attempt = run(ctx), Attempt(ctx=ctx, ref="test/0", label="test")
    data = open_dataset(attempt, outcome.prepared.dataset)
    held_out, offered = split_positions(ctx, data)
    candidates, validation = (read_scores(attempt, outcome.scores, of) for of in ("candidates", "validation"))
    assert validation.labels_N.tolist() == data.index("train").label[held_out].tolist()
    led, alone = (
        select(
            "glister",
            candidates,
            fraction=0.1,
            balanced=ctx.config.select.balanced,
            seed=ctx.seed("select"),
            validation=each,
        ).ascending()[0]
        for each in (validation, None)
    )
    assert read_subset(attempt, outcome.subset).ascending()[0].tolist() == sorted(offered[led.numpy()].tolist())
    assert led.tolist() != alone.tolist()


TRAJECTORY = {"model": "trajectory", "runs": 2, "epochs": 3}


@pytest.mark.parametrize("algorithm", ["forgetting", "aum", "dyn_unc", "el2n", "dual", "ccs"])
def test_scores_along_a_trajectory_need_no_scoring_pass(folder: Path, algorithm: str) -> None:
    outcome = run_tiny(folder, {"select": {"algorithm": algorithm}, "score": TRAJECTORY})
    assert outcome.merged is None
    assert outcome.subset.summary["count"] > 100
    (scores,) = outcome.scores
    assert {name for name in scores.files if "outputs" in name} == set()
    assert scores.summary["models"] == 2


def test_auto_with_a_trajectory_is_dual_up_to_30_per_cent(folder: Path) -> None:
    chosen = [
        run_tiny(folder, {"select": {"algorithm": "auto", "fraction": fraction}, "score": TRAJECTORY})
        for fraction in (0.3, 0.31)
    ]
    assert [outcome.subset.summary["algorithm"] for outcome in chosen] == ["dual", "stratified"]
    assert [len(outcome.prepared.initial) for outcome in chosen] == [2, 0]


def test_features_after_a_trajectory_take_a_scoring_pass(folder: Path) -> None:
    outcome = run_tiny(folder, {"select": {"algorithm": "herding"}, "score": TRAJECTORY})
    (scores,) = outcome.scores
    assert {name for name in scores.files if "trajectory" in name} == set()
    assert len([name for name in scores.files if "outputs" in name]) == 2


def test_what_reads_a_trajectory_is_refused_without_one(folder: Path) -> None:
    with pytest.raises(UsageError, match="needs scores from each epoch") as caught:
        run_tiny(folder, {"select": {"algorithm": "forgetting"}})
    assert "score.model: trajectory" in caught.value.remedy


def test_equal_steps_are_equally_many_images_whatever_is_kept(folder: Path) -> None:
    """And a run of n epochs is a run of as many steps."""
    small, large = (
        run_tiny(folder, {"select": {"fraction": fraction}, "train": {"steps": 9, "batch_size": 50}})
        for fraction in (0.1, 0.2)
    )
    for outcome in (small, large):
        assert outcome.trained.model.summary["steps"] == 9
    assert small.trained.model.summary["kept"] == 129
    assert small.trained.model.summary["images"] == 3 * 129
    assert large.trained.model.summary["images"] == 259 + 44 + 2 * 43  # 259 images in six equal batches
    epochs, steps = (
        run_tiny(folder, {"select": {"fraction": 0.1}, "train": {"batch_size": 50, **length}}).trained.model
        for length in ({"epochs": 3}, {"steps": 9})
    )
    assert epochs.files["weights.safetensors"].sha256 == steps.files["weights.safetensors"].sha256


def test_the_swarm_as_an_ensemble(folder: Path) -> None:
    """DUAL needs several models: the jigsaws, each scored, none merged into the scores."""
    outcome = run_tiny(folder, {"select": {"algorithm": "dual"}, "score": {"model": "jigsaws"}})
    (scores,) = outcome.scores
    assert scores.summary["models"] == 3
    assert {jigsaw.ref for jigsaw in outcome.jigsaws} < set(scores.inputs)
    grouped = run_tiny(folder, {"select": {"algorithm": "dual"}, "score": {"model": "jigsaws"}, "merge": {"groups": 2}})
    assert [artifact.ref for artifact in grouped.scores] == [scores.ref]
    logits = {name: file.sha256 for name, file in scores.files.items() if name.startswith("outputs-")}
    assert len(set(logits.values())) == len(logits) == 3
    with pytest.raises(UsageError, match="the outputs of at least 2 model"):
        run_tiny(folder, {"select": {"algorithm": "dual"}})


def test_classic_grand_averages_independent_runs(folder: Path) -> None:
    outcome = run_tiny(folder, {"select": {"algorithm": "grand"}, "score": {"model": "classic", "runs": 3}})
    assert len({file_digest(model, "weights.safetensors") for model in outcome.prepared.initial}) == 3
    (scores,) = outcome.scores
    assert scores.summary["models"] == 3
    assert outcome.jigsaws == ()


@pytest.mark.parametrize("profile", ["ccs", "dual"])
def test_the_profiles_of_other_papers_run(folder: Path, profile: str) -> None:
    changes = {"profile": profile, "select": {"algorithm": profile}, "score": {"epochs": 10}, "train": {"steps": 5}}
    outcome = run_tiny(folder, changes)
    options = {"ccs": {"score": "aum"}, "dual": {"window": 10, "c_d": 5.5}}
    assert outcome.subset.settings["select"]["options"] == options[profile]
    assert (outcome.merged, len(outcome.prepared.initial)) == (None, 1)
    assert outcome.trained.model.summary["steps"] == 5


@pytest.mark.parametrize("method", ["greedy_interpolation", "greedy", "uniform", "best_single"])
def test_merge_methods(folder: Path, method: str) -> None:
    merged = run_tiny(folder, {"merge": {"method": method}}).merged
    assert merged is not None
    assert merged.summary["accuracy"] > 0.1
    if method == "uniform":
        assert merged.summary["accuracy"] == merged.summary["uniform_accuracy"]
    if method == "best_single":
        assert merged.summary["accuracy"] == merged.summary["best_single_accuracy"]


def test_merge_none_scores_theta_star(folder: Path) -> None:
    outcome = run_tiny(folder, {"merge": {"method": "none"}})
    assert outcome.merged is None
    assert outcome.jigsaws == ()
    (scores,) = outcome.scores
    assert outcome.prepared.initial[0].ref in scores.inputs


@pytest.mark.parametrize("prune", ["magnitude", "random", "snip", "none"])
def test_pruning_methods(folder: Path, prune: str) -> None:
    densities = [jigsaw.summary["density"] for jigsaw in run_tiny(folder, {"pretrain": {"prune": prune}}).jigsaws]
    assert densities == [1, 1, 1] if prune == "none" else all(0.84 < density < 0.96 for density in densities)
    assert prune == "none" or len(set(densities)) == 3


@pytest.mark.parametrize("augment", ["randaugment", "standard", "none"])
def test_augmentations_differ(folder: Path, augment: str) -> None:
    default = run_tiny(folder, {}).jigsaws[0]
    chosen = run_tiny(folder, {"pretrain": {"augment": augment}}).jigsaws[0]
    assert (file_digest(default, "delta.zst") == file_digest(chosen, "delta.zst")) == (augment == "randaugment")


def test_the_paper_profile_runs(folder: Path) -> None:
    outcome = run_tiny(folder, {"profile": "paper"})
    assert outcome.merged is not None
    assert outcome.prepared.shards is not None
    merge, dispatch = outcome.merged.settings["merge"], outcome.prepared.shards.settings["dispatch"]
    assert (merge["search"], merge["batchnorm"], merge["fallback"]) == ("grid", "averaged", False)
    assert merge["search_images"] == 64  # what the user writes wins
    assert (dispatch["stratified"], outcome.jigsaws[0].settings["pretrain"]["lr"]) == (False, 0.1)
    assert all(
        step["alpha"] in [pytest.approx(tenth / 10) for tenth in range(1, 11)]
        for step in outcome.merged.summary["steps"]
    )


def test_the_weights_of_the_subset_count_unless_they_are_switched_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its images, and so their weights, stand in the order of the data set."""
    used: list[Tensor | None] = []
    run_epoch = Trainer.run_epoch

    def trains(self: Trainer, images: ImageSet, *, weights_N: Tensor | None = None, **more: Any) -> None:
        used.append(weights_N)
        run_epoch(self, images, weights_N=weights_N, **more)

    monkeypatch.setattr(Trainer, "run_epoch", trains)
    outcomes = []
    for use in (True, False):
        train = {"epochs": 1, "use_weights": use}
        changes = {"select": {"algorithm": "craig"}, "merge": {"method": "none"}, "train": train}
        outcomes.append(run_tiny(folder, changes))
        weights_K = used[-1]
        assert (weights_K is not None) == use
        if weights_K is not None:
            key = f"{outcomes[-1].subset.ref}/{SUBSET}"
            stored = tiny_context(folder).workspace.store.read(key, kind="other")
            subset = Selection.from_parquet(stored, origin=key)
            weight_of = dict(zip(subset.positions_K.tolist(), subset.weights_K.tolist(), strict=True))
            in_order = [weight_of[position] for position in sorted(weight_of)]
            assert weights_K.tolist() == in_order != list(weight_of.values())
    with_weights, without = (outcome.trained.model.summary["losses"] for outcome in outcomes)
    assert with_weights != pytest.approx(without, rel=1e-3)


def test_reselection_scores_again_and_keeps_the_schedule(folder: Path) -> None:
    plain = run(tiny_context(folder, {"train": {"epochs": 4}}))
    again = run(tiny_context(folder, {"train": {"epochs": 4, "reselect_every": 2}}))
    assert again.trained.model.summary["losses"][:2] == pytest.approx(
        plain.trained.model.summary["losses"][:2], rel=1e-4
    )
    assert again.trained.model.summary["losses"][2:] != pytest.approx(
        plain.trained.model.summary["losses"][2:], rel=1e-4
    )
    with pytest.raises(UsageError, match=r"excludes score\.model: classic"):
        tiny_context(folder, {"train": {"reselect_every": 2}, "score": {"model": "classic"}})


def test_two_budgets(folder: Path) -> None:
    """A pool of 40 % drawn from at 10 % per epoch trains on as many images as a fixed 10 %."""
    pool = run_tiny(folder, {"select": {"fraction": 0.4}, "train": {"epochs": 4, "epoch_fraction": 0.1}})
    fixed = run_tiny(folder, {"select": {"fraction": 0.1}, "train": {"epochs": 4}})
    assert pool.trained.model.summary["kept"] == pytest.approx(4 * fixed.trained.model.summary["kept"], abs=6)
    assert pool.trained.model.summary["images"] == pytest.approx(fixed.trained.model.summary["images"], abs=24)


def test_streamed_images_train_like_resident_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are read from the store as needed. Only the order within an epoch is another one, that of reading."""
    monkeypatch.setattr(StreamedImages, "epoch_order", lambda _self, rows_K, _seed: rows_K)
    changes = {"select": {"fraction": 0.5}, "train": {"epochs": 3}}
    resident = run(tiny_context(tmp_path, changes))
    streamed = run(tiny_context(tmp_path, changes | {"data": {"resident_mb": 0}}))
    assert streamed.trained.model.ref != resident.trained.model.ref
    assert len(resident.artifacts()) == len(streamed.artifacts())
    for one, other in zip(resident.artifacts(), streamed.artifacts(), strict=True):
        assert (one.stage, one.summary) == (other.stage, other.summary)
        assert one.files == other.files or one.stage == "select"  # a subset names the run that it is of
    cost = tiny_context(tmp_path).workspace.cost
    assert cost(streamed.trained.model).read["data"] > 2 * cost(resident.trained.model).read["data"]
