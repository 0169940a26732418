"""Artifacts: addresses, atomic commits, verification, cost."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from lipt.adapters.store import MissingObjectError
from lipt.errors import IntegrityError, RunError, Terminated, UsageError
from lipt.progress import Reporter
from lipt.runtime.artifact import Artifact, key_of
from lipt.runtime.attempt import Attempt
from lipt.runtime.stage import Stage
from lipt.runtime.workspace import Workspace
from tests.tiny import bare_context


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(str(tmp_path))


def make(
    workspace: Workspace, settings: dict[str, Any], inputs: list[Artifact] | None = None, body: Any = None
) -> Artifact:
    def write(attempt: Attempt) -> dict[str, Any]:
        attempt.put("out.bin", b"result", kind="model")
        attempt.flops += 5
        return {"value": 1}

    return Stage(
        ctx=bare_context(workspace, Reporter(io.StringIO())),
        name="demo",
        settings=settings,
        inputs=inputs or [],
        body=body or write,
        label="demo",
    ).make()


def test_the_second_time_it_is_found(workspace: Workspace) -> None:
    first = make(workspace, {"a": 1})

    def must_not_run(_attempt: Attempt) -> dict[str, Any]:
        raise AssertionError("ran again")

    assert make(workspace, {"a": 1}, body=must_not_run) == first
    assert workspace.get(first.ref) == first
    assert (workspace.reused, Workspace(workspace.store.uri).reused) == (set(), set())


def test_whatever_determines_the_outcome_is_in_the_address(workspace: Workspace) -> None:
    first = make(workspace, {"a": 1})
    assert make(workspace, {"a": 2}).key != first.key
    assert make(workspace, {"a": 1}, [first]).key != first.key
    assert key_of("demo", {"a": 1, "b": 2}, []) == key_of("demo", {"b": 2, "a": 1}, [])
    assert key_of("demo", {"a": 1}, ["x/1", "y/2"]) != key_of("demo", {"a": 1}, ["y/2", "x/1"])


def test_a_stage_that_fails_commits_nothing(workspace: Workspace) -> None:
    def fails(attempt: Attempt) -> dict[str, Any]:
        attempt.put("out.bin", b"half", kind="model")
        raise RunError("no")

    with pytest.raises(RunError, match="no"):
        make(workspace, {"a": 1}, body=fails)
    assert not any(key.endswith("artifact.json") for key in workspace.store.list())
    assert make(workspace, {"a": 1}).files["out.bin"].num_bytes == 6


def test_bytes_are_verified_when_read(workspace: Workspace, tmp_path: Path) -> None:
    made = make(workspace, {"a": 1})
    attempt = Attempt(ctx=bare_context(workspace, Reporter(io.StringIO())), ref="x/y", label="x")
    assert attempt.read(made, "out.bin", kind="model") == b"result"
    (tmp_path / made.ref / "out.bin").write_bytes(b"resuIt")
    with pytest.raises(IntegrityError, match=r"out\.bin is damaged"):
        attempt.read(made, "out.bin", kind="model")
    with pytest.raises(RunError, match=r"has no other\.bin"):
        attempt.read(made, "other.bin", kind="model")


def test_a_reader_does_not_mark_what_was_made_again_meanwhile(workspace: Workspace, tmp_path: Path) -> None:
    """On a GPU it can have other bytes; a mark would repeat it once more, and all that was made from it."""
    old = make(workspace, {"a": 1})
    (tmp_path / old.ref / "artifact.json").unlink()

    def other(attempt: Attempt) -> dict[str, Any]:
        attempt.put("out.bin", b"rounded", kind="model")
        with pytest.raises(IntegrityError, match=r"out\.bin is damaged"):  # it is not finished yet
            read(old)
        return {"value": 1}

    def read(artifact: Artifact) -> bytes:
        attempt = Attempt(ctx=bare_context(workspace), ref="x/1", label="x")
        return attempt.read(artifact, "out.bin", kind="model")

    new = make(Workspace(workspace.store.uri), {"a": 1}, body=other)
    with pytest.raises(IntegrityError, match=f"{old.ref} has changed: another process has made it again"):
        read(old)
    assert workspace.find(old.ref) == new
    assert read(new) == b"rounded"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"files": {"a": 3}}', '{"files": {}, "inputs": [], "unknown": 1}'])
def test_a_damaged_record_is_one_error(workspace: Workspace, tmp_path: Path, text: str) -> None:
    made = make(workspace, {"a": 1})
    (tmp_path / made.ref / "artifact.json").write_text(text)
    with pytest.raises(IntegrityError, match=made.key):
        workspace.get(made.ref)


@pytest.mark.parametrize("text", ['{"wall_s": 1.5, "flo', "", "[]", '{"wall_s": "long"}', None])
def test_a_stage_whose_cost_is_damaged_or_missing_runs_again(
    workspace: Workspace, tmp_path: Path, text: str | None
) -> None:
    made, path = make(workspace, {"a": 1}), tmp_path / make(workspace, {"a": 1}).ref / "cost.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(IntegrityError, match=r"cost\.json is (damaged|missing)") as caught:
        workspace.cost(made)
    assert "run again" in caught.value.remedy
    assert workspace.find(made.ref) is None
    assert workspace.cost(make(workspace, {"a": 1})).flops == 5


def test_references_that_lead_nowhere(workspace: Workspace) -> None:
    assert workspace.find("demo/0123") is None
    with pytest.raises(MissingObjectError, match="demo/0123"):
        workspace.get("demo/0123")
    for wrong in ("demo", "a/b/c", "../../etc/passwd"):
        with pytest.raises(UsageError):
            workspace.get(wrong)


def test_an_interrupted_attempt_is_paid_for(workspace: Workspace) -> None:
    """What the checkpoint knows of earlier attempts is added to the cost."""
    from lipt.ledger import Cost

    def resumed(attempt: Attempt) -> dict[str, Any]:
        attempt.earlier = Cost(wall_s=100, flops=7, read={"data": 11})
        attempt.flops += 5
        attempt.put("out.bin", b"result", kind="model")
        return {}

    cost = workspace.cost(make(workspace, {"a": 3}, body=resumed))
    assert (cost.flops, cost.read["data"], cost.written["model"]) == (12, 11, 6)
    assert 100 < cost.wall_s < 110
    assert cost.peak_bytes > 1_000_000


def test_the_checkpoint_goes_with_the_commit(workspace: Workspace) -> None:
    def body(attempt: Attempt) -> dict[str, Any]:
        assert attempt.load_checkpoint() is None
        attempt.save_checkpoint(b"state")
        assert attempt.load_checkpoint() == b"state"
        return {}

    made = make(workspace, {"a": 1}, body=body)
    assert workspace.store.list(made.ref) == [f"{made.ref}/artifact.json", f"{made.ref}/cost.json"]


def test_the_reporter_says_one_line_per_stage() -> None:
    stream = io.StringIO()
    reporter = Reporter(stream)
    reporter.done("merge", 1.25, {"accuracy": 0.5, "kept": 1200, "chosen": "soup", "steps": [1]})
    reporter.skipped("score", {"models": 1})
    assert stream.getvalue().splitlines() == [
        "merge                    1.2 s  accuracy 50.00 %  kept 1,200",
        "score               up to date  models 1",
    ]


def test_a_damaged_transfer_is_repeated(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is whole: nothing is marked as damaged."""
    made = make(workspace, {"a": 1})
    attempt = Attempt(ctx=bare_context(workspace, Reporter(io.StringIO())), ref="x/y", label="x")
    read, answers = attempt.store.read, [b"resuIt"]
    monkeypatch.setattr(attempt.store, "read", lambda key, **how: answers.pop() if answers else read(key, **how))
    assert attempt.read(made, "out.bin", kind="model") == b"result"
    assert workspace.find(made.ref) == made


def test_while_a_stage_is_made_again_it_is_not_finished(workspace: Workspace) -> None:
    """A process that looks meanwhile could read files of two attempts."""
    made = make(workspace, {"a": 1})
    workspace.store.delete(f"{made.ref}/cost.json")

    def body(attempt: Attempt) -> dict[str, Any]:
        with pytest.raises(MissingObjectError):
            workspace.get(made.ref)
        attempt.put("out.bin", b"result", kind="model")
        return {"value": 1}

    assert make(workspace, {"a": 1}, body=body) == made


def test_a_process_that_lost_its_lease_writes_nothing(workspace: Workspace) -> None:
    """It was suspended, and another process does the stage now: a late file would not fit the other's record."""
    seen: list[int | None] = []

    def body(attempt: Attempt) -> dict[str, Any]:
        seen.append(workspace.store.size(f"{attempt.ref}/out.bin"))
        if len(seen) == 1:
            for claim in workspace.store.list(f"{attempt.ref}/lease-"):
                workspace.store.delete(claim)
            attempt.put("out.bin", b"late", kind="model")
        attempt.put("out.bin", b"result", kind="model")
        return {}

    make(workspace, {"a": 1}, body=body)
    assert seen == [None, None]


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        (False, "demo stopped: it has no checkpoint, so the next run starts it from the beginning"),
        (True, "demo stopped: continues from its last checkpoint"),
    ],
)
@pytest.mark.parametrize("signalled", [KeyboardInterrupt, Terminated])
def test_a_stopped_stage_says_whether_it_will_start_again(
    saved: bool, said: str, signalled: type[BaseException], tmp_path: Path
) -> None:
    shown = io.StringIO()

    def body(attempt: Attempt) -> dict[str, Any]:
        if saved:
            attempt.save_checkpoint(b"progress")
        raise signalled

    ctx = bare_context(Workspace(str(tmp_path)), Reporter(shown))
    with pytest.raises(signalled):
        Stage(ctx=ctx, name="demo", settings={}, inputs=[], body=body, label="demo").make()
    assert " ".join(shown.getvalue().split()) == said
