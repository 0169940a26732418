"""What the box and the pods of a training leave in the store for each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lipt.adapters.cluster.fanout import ThisPod
from lipt.adapters.cluster.job_manifest import FIRST_POD, Pods
from lipt.adapters.store import open_store
from lipt.errors import IntegrityError, RunError, TransientError, UsageError
from lipt.pods import training
from lipt.pods.attempts import count_attempt, forget_attempts
from lipt.pods.spec import load_spec, save_spec
from lipt.runtime.artifact import Artifact
from lipt.stages.train import inputs_of
from tests.tiny import tiny_context

PODS = Pods(image="lipt:1")
HERE = ThisPod(namespace="lipt", pod="box")


def test_attempts_without_a_new_checkpoint_end_after_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when each attempt hangs, or spot nodes live for less than an epoch."""
    store, clock = open_store(str(tmp_path)), [0.0]
    monkeypatch.setattr("lipt.pods.attempts.time.time", lambda: clock[0])
    for _ in range(50):  # nodes that are lost soon after each other
        count_attempt(store, "train/0")
    clock[0] = 5 * 3600
    store.write("train/0/checkpoint", bytes(40), kind="model")
    for _ in range(10):
        count_attempt(store, "train/0")
        clock[0] += 3600
    with pytest.raises(RunError, match=r"^10 attempts in 10 hours have left no new checkpoint"):
        count_attempt(store, "train/0")
    count_attempt(store, "train/0")  # the next run tries again
    clock[0] += 5 * 3600
    count_attempt(store, "train/0")
    forget_attempts(store, "train/0")
    assert store.list("train/0/") == ["train/0/checkpoint"]


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (b'{"checkpoint": "", "att', "Invalid JSON: EOF while parsing"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"[]", "Input should be an object"),
        (b'{"checkpoint": "", "attempts": "many", "since": 0}', "attempts: Input should be a valid integer"),
    ],
)
def test_a_count_of_attempts_that_is_damaged_is_named(tmp_path: Path, written: bytes, why: str) -> None:
    store = open_store(str(tmp_path))
    store.write("train/0/attempts.json", written, kind="other")
    with pytest.raises(IntegrityError, match=r"train/0/attempts\.json is damaged: ") as error:
        count_attempt(store, "train/0")
    assert why in error.value.message
    assert error.value.remedy.startswith("delete this file, then run again")
    assert error.value.exit_code == 1


@pytest.mark.parametrize("written", [b'{"made_from": ["a"', b"{}", b"null", b'{"made_from": {}}'])
def test_a_result_that_is_damaged_is_named(tmp_path: Path, written: bytes) -> None:
    ctx = tiny_context(tmp_path)
    ctx.workspace.store.write("train/0/result.json", written, kind="other")
    with pytest.raises(IntegrityError, match=r"train/0/result\.json is damaged: "):
        training._start(HERE, PODS)(ctx, {"ref": "train/0", "made_from": ["a"]}, 2)


def test_a_result_that_was_left_counts_only_for_the_same_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its box was stopped before it could read it; until the box comes back, an input may have been made again."""
    ctx, ran = tiny_context(tmp_path), list[int]()
    left = b'{"made_from": ["a"], "summary": {"of": "a"}}'

    def run_job(*_args: Any, completions: int, **_job: Any) -> dict[int, str]:
        ran.append(completions)
        ctx.workspace.store.write("train/0/result.json", left.replace(b'"a"', b'"b"'), kind="other")
        return {}

    monkeypatch.setattr(training, "run_job", run_job)
    for now in ("a", "b"):
        ctx.workspace.store.write("train/0/result.json", left, kind="other")
        result = training._start(HERE, PODS)(ctx, {"ref": "train/0", "made_from": [now]}, 2)
        assert result is not None
        assert result["summary"] == {"of": now}
        assert ctx.workspace.store.list("train/") == ["train/0/result.json"]  # until its stage is finished
    assert ran == [2]
    ctx.workspace.store.delete("train/0/result.json")
    monkeypatch.setattr(training, "run_job", lambda *_args, **_job: {})
    with pytest.raises(TransientError, match="their result is gone"):  # and the box, without a GPU, does not train
        training._start(HERE, PODS)(ctx, {"ref": "train/0", "made_from": ["a"]}, 2)


def test_a_pod_that_starts_again_after_the_training_waits_for_nobody(tmp_path: Path) -> None:
    """The first pod left the result and was lost before it could tell the others. It will not meet them again.

    A result of other inputs does not count: the Job of a box that was stopped may leave it while that of another run
    trains.
    """
    config = tiny_context(tmp_path).config.model_dump(mode="json")
    same, other = (
        save_spec(str(tmp_path), {"ref": "train/0", "label": "train", "made_from": made_from, "config": config})
        for made_from in (["a"], ["b"])
    )
    open_store(str(tmp_path)).write("train/0/result.json", b'{"made_from": ["a"]}', kind="other")
    for index in range(2):
        training.join(same, index=index, count=2)
        with pytest.raises(UsageError, match=f"{FIRST_POD} is not set"):
            training.join(other, index=index, count=2)


def test_pods_read_the_trajectories_of_many_models_in_the_order_of_the_models(tmp_path: Path) -> None:
    """Of disjoint scorers they are joined in this order; the tenth must not come before the second."""

    def made(stage: str, key: int) -> Artifact:
        return Artifact(stage=stage, key=str(key), inputs=(), settings={}, files={}, summary={})

    models = [made("initialise", index) for index in range(12)]
    inputs = inputs_of(made("ingest", 0), made("select", 0), None, models)
    refs = {name: artifact and artifact.ref for name, artifact in inputs.items()}
    sent = load_spec(save_spec(str(tmp_path), {"inputs": refs}))["inputs"]
    assert [ref for ref in sent.values() if ref and ref.startswith("initialise/")] == [model.ref for model in models]
