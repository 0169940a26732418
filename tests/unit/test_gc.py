"""`lipt gc` where it is unknown which artifacts are needed: no run has finished, or one is in progress."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from lipt.adapters.store import StoreError
from lipt.cli import main
from lipt.config import Point
from lipt.errors import IntegrityError, LiptError, RunError, UsageError
from lipt.flow.compare import run_comparison, run_with_baseline
from lipt.flow.runs import Origins, list_unused, note_ended, note_point, note_running
from lipt.flow.sweep import run_sweep
from lipt.pods.boxes import merge_box, select_box, train_box
from lipt.runtime import lease
from lipt.runtime.artifact import CHECKPOINT, CHECKPOINT_INPUTS, COST, Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.lease import Lease, at_work, find_holder, leased
from lipt.runtime.workspace import Workspace
from lipt.training.tensor_files import pack
from tests.tiny import bare_context, demo_stage, tiny_context


@pytest.mark.parametrize("damaged", [False, True])
def test_half_written_files_are_removed_where_it_is_unknown_which_artifacts_are_needed(
    damaged: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They may be what fills the disk, so that no run can finish."""
    report, left, kept = (
        tmp_path / name for name in ("reports/x-1/report.json", ".lipt-tmp-0", "train/0/artifact.json")
    )
    for path in (report, kept) if damaged else (kept,):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    main(["gc", str(tmp_path), "--yes"])
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "removed 0 artifacts, 0 B, and 1 half-written file, 4 B"
    assert err.startswith("lipt: artifacts stay: ")
    assert (left.exists(), kept.exists()) == (False, True)
    with pytest.raises(SystemExit) as end:
        main(["gc", str(tmp_path), "--yes"])  # now there is nothing that it could do
    assert end.value.code == 1
    if not damaged:  # its only run may have been given up
        remedy = "finish a run; or delete the whole workspace, if you need nothing of it"
        assert capsys.readouterr().err.endswith(f"\n  -> {remedy}\n")


def test_artifacts_stay_as_long_as_a_process_works_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It notes what it needs when it has ended."""
    monkeypatch.setattr(lease, "BEAT_S", 0.05)
    monkeypatch.setattr(lease, "EXPIRE_S", 0.5)
    workspace = Workspace(str(tmp_path))
    used, unused = (demo_stage(workspace, lambda _: {"count": 1}, name=name).make() for name in ("train", "score"))
    note_point(workspace, bare_context(workspace).config, [used])
    with leased(workspace.store, "select/0/lease", print):
        with pytest.raises(RunError, match=rf"process {os.getpid()} on .* works in {workspace.store.uri}, so") as error:
            list_unused(workspace, days=0)
        assert error.value.remedy == "wait until it has ended"
    dead = Lease(workspace.store, "select/0/lease")
    dead._claim()  # and gives no sign of life
    monkeypatch.setattr(lease, "_is_gone", lambda *_: False)  # as on another machine
    assert [each.ref for each in list_unused(workspace, days=0)] == [unused.ref]
    assert workspace.store.size(dead.key) is None


@pytest.mark.parametrize("verb", ["run", "compare", "sweep"])
def test_a_run_shows_between_its_stages_too_that_it_works_there(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it writes its report, which takes a second."""
    monkeypatch.setattr(lease, "BEAT_S", 0.05)
    ctx, works = tiny_context(tmp_path), list[str | None]()
    store = ctx.workspace.store

    def stopped(_ctx: Context) -> None:
        works.append(find_holder(store, store.list()))
        raise KeyboardInterrupt

    monkeypatch.setattr("lipt.flow.compare.run", stopped)
    verbs: dict[str, Callable[[], object]] = {
        "run": lambda: run_with_baseline(ctx),
        "compare": lambda: run_comparison(ctx),
        "sweep": lambda: run_sweep(ctx, [Point(values={}, config=ctx.config)], lambda _results: None),
    }
    with pytest.raises(KeyboardInterrupt):
        verbs[verb]()
    assert works[0] is not None
    assert works[0].startswith(f"process {os.getpid()} on ")
    assert store.list() == []


@pytest.mark.parametrize(
    "box", [merge_box, partial(select_box, merged=None), partial(train_box, merged=None, subset="")]
)
def test_a_box_shows_that_it_works_there(
    box: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "BEAT_S", 0.05)
    ctx, works = tiny_context(tmp_path), list[str | None]()
    store = ctx.workspace.store

    def stopped(*_: object) -> None:
        works.append(find_holder(store, store.list()))
        raise KeyboardInterrupt

    monkeypatch.setattr("lipt.pods.boxes.open_run", lambda *_, **__: (Mock(), ctx, Mock()))
    monkeypatch.setattr("lipt.pods.boxes.tell_without_gpu", stopped)
    with pytest.raises(KeyboardInterrupt):
        box("address")
    assert str(works[0]).startswith(f"process {os.getpid()} on ")
    assert store.list() == []


@pytest.mark.parametrize("refused", [StoreError("read-only", ""), UsageError("AccessDenied", "")])
def test_who_may_only_read_a_workspace_need_not_show_it(
    refused: LiptError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its run may be finished."""
    store = Workspace(str(tmp_path)).store
    monkeypatch.setattr(store, "write", Mock(side_effect=refused))
    with at_work(store):
        assert store.list() == []


def test_what_a_run_needs_that_ends_while_gc_looks_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It notes what it needs after the notes were read, and gives up its lease before the leases are."""
    monkeypatch.setattr(lease, "BEAT_S", 0.05)
    workspace, reached = Workspace(str(tmp_path)), Origins.reached
    used, needed = (demo_stage(workspace, lambda _: {"count": 1}, name=name).make() for name in ("train", "score"))
    config = bare_context(workspace).config
    note_point(workspace, config, [used])
    with ExitStack() as run:
        run.enter_context(at_work(workspace.store))

        def ends(origins: Origins, refs: Iterable[str]) -> set[str]:
            found = reached(origins, refs)
            note_point(workspace, config.model_copy(update={"seed": 1}), [needed])
            run.close()
            return found

        monkeypatch.setattr(Origins, "reached", ends)
        with pytest.raises(RunError, match="so every artifact may be needed"):
            list_unused(workspace, days=0)
    assert list_unused(workspace, days=0) == []


def test_what_a_run_on_a_cluster_goes_on_from_stays_until_it_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may reuse old artifacts and then wait for a node; no process works in its workspace meanwhile."""
    workspace = Workspace(str(tmp_path))
    used, reused = (demo_stage(workspace, lambda _: {}, name=name).make() for name in ("train", "initialise"))
    cost = tmp_path / reused.ref / COST
    cost.write_text(json.dumps(json.loads(cost.read_text()) | {"ended": time.time() - 30 * 86_400}))
    note_point(workspace, bare_context(workspace).config, [used])
    note_running(workspace, "0.json", [reused.ref])
    note = tmp_path / "running/0.json"
    for age in (0, 8):
        note.write_text(json.dumps(json.loads(note.read_text()) | {"since": time.time() - age * 86_400}))
        assert list_unused(workspace, days=7) == list_unused(workspace, days=0) == []
    main(["gc", str(tmp_path), "--days", "0", "--yes"])
    told = capsys.readouterr()
    assert told.out == "nothing to remove\n"
    assert "that began 8.0 days ago has not ended" in told.err
    assert f"if it has failed, delete file://{note}" in told.err
    note.write_text(json.dumps(json.loads(note.read_text()) | {"since": time.time() - 7_510}))
    main(["gc", str(tmp_path), "--days", "0", "--yes"])
    assert "that began 2 h 05 min ago has not ended" in capsys.readouterr().err
    note.write_text(json.dumps(json.loads(note.read_text()) | {"since": time.time() - 31 * 86_400}))
    assert [each.ref for each in list_unused(workspace, days=7)] == [reused.ref]  # it was given up
    note.write_text("{")
    with pytest.raises(IntegrityError, match=r"running/0\.json is damaged"):
        list_unused(workspace, days=7)
    note_ended(workspace, "0.json")
    assert [each.ref for each in list_unused(workspace, days=7)] == [reused.ref]


def test_what_younger_artifacts_were_made_from_stays(tmp_path: Path) -> None:
    """A run on a cluster may have ended one pod and not yet started the next: no process works in its workspace."""
    workspace = Workspace(str(tmp_path))
    ages = {"ingest": 30, "initialise": 20, "score": 1, "merge": 20, "train": 20}
    inputs = {"initialise": ["ingest"], "score": ["initialise"], "merge": ["ingest"]}
    made: dict[str, Artifact] = {}
    for name, age in ages.items():
        stage = demo_stage(workspace, lambda _: {}, name=name, inputs=[made[each] for each in inputs.get(name, [])])
        made[name] = stage.make()
        cost = tmp_path / made[name].ref / COST
        cost.write_text(json.dumps(json.loads(cost.read_text()) | {"ended": time.time() - age * 86_400}))
    note_point(workspace, bare_context(workspace).config, [made["train"]])
    assert [each.ref for each in list_unused(workspace, days=7)] == [made["merge"].ref]
    expected = sorted(made[name].ref for name in ("ingest", "initialise", "score", "merge"))
    assert sorted(each.ref for each in list_unused(workspace, days=0)) == expected


def test_an_old_checkpoint_goes_and_a_younger_one_keeps_what_it_goes_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace(str(tmp_path))
    used, input_, other = (
        demo_stage(workspace, lambda _: {}, name=name).make() for name in ("evaluate", "select", "merge")
    )
    note_point(workspace, bare_context(workspace).config, [used])
    for artifact in (input_, other):
        cost = tmp_path / artifact.ref / COST
        cost.write_text(json.dumps(json.loads(cost.read_text()) | {"ended": time.time() - 30 * 86_400}))

    def stop(attempt: Attempt) -> dict[str, str]:
        attempt.save_checkpoint(pack({"x": torch.ones(2)}, {CHECKPOINT_INPUTS: json.dumps(list(attempt.inputs))}))
        raise KeyboardInterrupt

    stopped = demo_stage(workspace, stop, name="train", inputs=[input_])
    with pytest.raises(KeyboardInterrupt):
        stopped.make()
    assert [each.ref for each in list_unused(workspace, days=7)] == [other.ref]
    checkpoint = tmp_path / stopped.ref / CHECKPOINT
    os.utime(checkpoint, (0, time.time() - 8 * 86_400))
    assert sorted(each.ref for each in list_unused(workspace, days=7)) == sorted([input_.ref, other.ref, stopped.ref])
    note_running(workspace, "0.json", [input_.ref])
    assert [each.ref for each in list_unused(workspace, days=7)] == [other.ref]  # that run may go on from it
    note_ended(workspace, "0.json")
    num_bytes = checkpoint.stat().st_size
    main(["gc", str(tmp_path), "--yes"])
    out = capsys.readouterr().out.splitlines()
    assert f"{stopped.ref}  {num_bytes} B  8 days old  unfinished" in out
    assert out[-1].startswith("removed 3 artifacts, ")
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        bytes(32) + b"\xff" * 8 + b"{}",
        bytes(32) + b"\2" + bytes(7) + b"{}",
        bytes(32) + b"\1" + bytes(7),
    ],
    ids=["empty", "short", "endless", "without metadata", "cut"],
)
def test_a_damaged_checkpoint_goes_on_with_nothing(data: bytes, tmp_path: Path) -> None:
    workspace = Workspace(str(tmp_path))
    workspace.store.write(f"train/0/{CHECKPOINT}", data, kind="model")
    used = demo_stage(workspace, lambda _: {}, name="evaluate").make()
    note_point(workspace, bare_context(workspace).config, [used])
    assert [(each.ref, each.finished) for each in list_unused(workspace, days=0)] == [("train/0", False)]


def test_what_a_run_uses_since_the_question_was_asked_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace(str(tmp_path))
    stages = [demo_stage(workspace, lambda _: {"count": 1}, name=name) for name in ("train", "score", "select")]
    used, reused, _unused = (stage.make() for stage in stages)
    config = bare_context(workspace).config
    note_point(workspace, config, [used])

    def confirm(question: str, **_options: bool) -> bool:
        assert question.startswith("Remove 2 artifacts")
        note_point(workspace, config.model_copy(update={"seed": 1}), [reused])
        return True

    monkeypatch.setattr("click.confirm", confirm)
    main(["gc", str(tmp_path), "--days", "0"])
    assert capsys.readouterr().out.splitlines()[-1].startswith("removed 1 artifact, ")
    assert [stage.find() for stage in stages] == [used, reused, None]
