"""Models of `score.runs` that are lost: the run goes on with a quorum of them."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from lipt.config import override
from lipt.errors import RunError
from lipt.flow import compare, dag, initial_models
from lipt.flow.compare import run_comparison, run_with_baseline
from lipt.flow.dag import prepare, run
from lipt.flow.outcome import Outcome
from lipt.pods.boxes import dispatch_box, select_box, train_box
from lipt.pods.workers import open_run
from lipt.progress import Reporter
from lipt.report.html_page import render
from lipt.runtime.context import Context
from lipt.runtime.processes import parts
from lipt.runtime.processes.child import ProcessGroup
from tests.pipeline import rank_work
from tests.tiny import digests, tiny_context

SCORE = {"model": "trajectory", "runs": 3, "epochs": 2}
CHANGES: dict[str, Any] = {"score": SCORE, "select": {"algorithm": "el2n"}, "train": {"epochs": 1}}


def losing(monkeypatch: pytest.MonkeyPatch, *indices: int) -> None:
    """From now on these models are lost, in other processes too."""
    monkeypatch.setenv(rank_work.LOST_MODELS, ",".join(map(str, indices)))
    monkeypatch.setattr(initial_models, "initialise", rank_work.fragile)


def indices_of(outcome: Outcome) -> list[int]:
    return [model.settings["run"] for model in outcome.prepared.initial]


@pytest.mark.parametrize(
    ("changes", "halved", "processes"),
    [
        ({"score": SCORE, "select": {"algorithm": "dual"}}, "models", 1),
        ({"score": SCORE, "select": {"algorithm": "dual"}}, "models", 2),
        ({"score": SCORE | {"model": "classic"}, "select": {"algorithm": "grand"}}, "models", 1),
        ({"score": SCORE | {"model": "classic"}, "select": {"algorithm": "dual"}}, None, 1),  # half would be one model
    ],
    ids=["trajectory", "two processes", "classic", "dual"],
)
def test_a_run_goes_on_without_a_lost_model_and_the_next_one_has_it(
    changes: dict[str, Any], halved: str | None, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = tiny_context(tmp_path, CHANGES | changes | {"processes": processes})
    ctx = replace(ctx, reporter=Reporter(reported := StringIO(), every_s=3600))
    losing(monkeypatch, 1)
    fewer = run(ctx)
    assert indices_of(fewer) == [0, 2]
    assert fewer.prepared.failures == {1: "GPU 1 failed"}
    assert "initialise[1] lost: GPU 1 failed" in reported.getvalue()
    (scores,) = fewer.scores
    assert scores.inputs[1:] == tuple(model.ref for model in fewer.prepared.initial)
    assert scores.summary["models"] == 2
    assert fewer.subset.summary.get("halved") == halved

    losing(monkeypatch)
    whole = run(ctx)
    assert indices_of(whole) == [0, 1, 2]
    assert not whole.prepared.failures
    assert whole.scores[0].summary["models"] == 3
    assert whole.subset.ref != fewer.subset.ref


def test_a_run_with_a_lost_model_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model is tried again; if it is lost again, nothing else is repeated."""
    ctx = tiny_context(tmp_path, CHANGES)
    losing(monkeypatch, 1)
    run(ctx)
    before = digests(ctx.workspace)
    run(ctx)
    assert digests(ctx.workspace) == before


@pytest.mark.parametrize(
    ("lost", "changes", "message"),
    [
        (
            (0, 2),
            {},
            r"1 of 3 models of score.runs arrived, the quorum is 2; lost: 0, 2 \(model 0: GPU 0 failed\)",
        ),
        (
            (0, 2),
            {"processes": 2},
            r"1 of 3 models of score.runs arrived, the quorum is 2; lost: 0, 2 \(model 0: GPU 0 failed\)",
        ),
        ((1,), {"merge": {"quorum": 1.0}}, r"^GPU 1 failed"),
        ((1,), {"score": SCORE | {"disjoint": True}}, r"^GPU 1 failed"),
        ((1,), {"score": SCORE | {"disjoint": True}, "processes": 2}, r"^GPU 1 failed"),
        ((0,), {"score": SCORE | {"runs": 1}}, r"^GPU 0 failed"),
        (  # DUAL compares the outputs of two models, though the quorum is one
            (1,),
            {"score": {"model": "classic", "runs": 2}, "select": {"algorithm": "dual"}},
            r"^GPU 1 failed",
        ),
    ],
    ids=[
        "two of three",
        "two processes",
        "all asked for",
        "disjoint",
        "disjoint, two processes",
        "the only one",
        "dual",
    ],
)
def test_too_few_models_end_the_run(
    lost: tuple[int, ...],
    changes: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two processes, the second one's share is made by the first: each start of two takes seconds."""

    def launch(ctx: Context, _label: str, work: Any, processes: int, given: dict[str, Any]) -> Any:
        assert processes == 2
        return work(ctx, ProcessGroup(), **given)

    monkeypatch.setattr(parts, "launch", launch)
    losing(monkeypatch, *lost)
    with pytest.raises(RunError, match=message):
        prepare(tiny_context(tmp_path, CHANGES | changes))


def test_no_model_is_trained_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the quorum is out of reach."""
    losing(monkeypatch, 0, 1)
    with pytest.raises(RunError, match=r"0 of 3 models of score.runs arrived, the quorum is 2; lost: 0, 1 "):
        prepare(ctx := tiny_context(tmp_path, CHANGES))
    assert not ctx.workspace.store.list("initialise/")


def test_what_to_do_is_what_the_lost_model_says(tmp_path: Path) -> None:
    """Running a training again that diverges would be in vain, and so would be a lower quorum if none arrived."""
    with pytest.raises(RunError, match=r"model 0: the training loss is nan") as caught:
        prepare(tiny_context(tmp_path, CHANGES | {"initialise": {"lr": 1000.0, "batch_size": 32}}))
    assert caught.value.remedy == "for the lost ones: lower initialise.lr"


def test_a_model_that_a_pod_lost_for_good_is_not_trained_again_by_the_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a training that diverges: the Job does not repeat it either."""
    tried: list[int] = []

    def fail(index: int) -> None:
        tried.append(index)
        raise RunError("the training loss is nan", "lower initialise.lr")

    monkeypatch.setattr(rank_work, "_fail", fail)
    losing(monkeypatch, 1)
    config = tiny_context(tmp_path, CHANGES).config
    _, _, prepared = open_run(dispatch_box(config, engine="argo", image="lipt:0"))
    assert (tried, prepared.failures) == ([1], {1: "the training loss is nan"})
    losing(monkeypatch, 0, 1)
    with pytest.raises(RunError, match=r"1 of 3 models of score.runs arrived, .* \(model 0: the training") as caught:
        dispatch_box(override(config, {"seed": 1}), engine="argo", image="lipt:0")
    assert caught.value.remedy == "for the lost ones: lower initialise.lr; or lower merge.quorum"
    assert tried == [1, 0, 1]


def test_the_start_and_the_first_losses_come_from_those_that_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = {"epochs": 1, "epoch_fraction": 0.1, "draw": "ordered", "start": "continue", "first_losses": "trajectory"}
    losing(monkeypatch, 0)
    outcome = run(tiny_context(tmp_path, CHANGES | {"train": train, "select": {"algorithm": "el2n", "fraction": 0.5}}))
    first, second = (model.ref for model in outcome.prepared.initial)
    assert outcome.trained.model.inputs[2:] == (first, first, second)


def test_the_baseline_starts_from_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a lost one could be trained by then."""
    ctx = tiny_context(tmp_path, CHANGES | {"train": {"epochs": 1, "start": "continue"}})
    losing(monkeypatch, 0)
    train_and_evaluate = dag.train_and_evaluate
    outcomes: list[Outcome] = []

    def trained(*given: Any, **more: Any) -> Outcome:
        losing(monkeypatch)
        outcomes.append(train_and_evaluate(*given, **more))
        return outcomes[-1]

    for module in (dag, compare):
        monkeypatch.setattr(module, "train_and_evaluate", trained)
    run_with_baseline(ctx)
    selected, random = outcomes
    assert random.trained.model.inputs[-1] == selected.trained.model.inputs[-1] == selected.prepared.initial[0].ref


def test_the_report_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run on one machine, and in the boxes of a pipeline."""
    losing(monkeypatch, 1)
    ctx = tiny_context(tmp_path / "local", CHANGES)
    local = run_with_baseline(ctx)
    assert local is not None
    config = tiny_context(tmp_path / "boxes", CHANGES).config
    address = dispatch_box(config, engine="argo", image="lipt:0", cpu="1", memory="1Gi")
    assert list(open_run(address)[2].failures) == [1]
    boxed = train_box(address, None, select_box(address, None).ref).document
    for document in (local, boxed):
        assert document.provenance.notes == ["trajectory model 1 was lost: GPU 1 failed"]
        assert "It reads what 2 of 3 trainings of 2 epochs said" in document.done["Choice"]
        assert "trajectory model 1 was lost: GPU 1 failed" in render(document)


def test_the_report_of_a_comparison_names_those_of_every_row_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing(monkeypatch, 1)
    compare = {"seeds": [0, 1], "variants": ["random", "lipt"]}
    document = run_comparison(tiny_context(tmp_path, CHANGES | {"compare": compare}))
    assert document is not None
    assert document.provenance.notes == [f"seed {seed}: trajectory model 1 was lost: GPU 1 failed" for seed in (0, 1)]
