"""A sweep on a cluster that is interrupted, or whose store or cluster does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lipt.adapters.cluster.engine import RunState
from lipt.adapters.store import Store, open_store
from lipt.adapters.store.file import FileStore
from lipt.errors import RunError, TransientError
from tests.pipeline.test_sweep_runs import Engine, runs


@pytest.fixture(scope="module", autouse=True)
def without_waiting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lipt.pods.sweep.POLL_S", 0.0)
        yield


def test_runs_in_progress_are_found_again(tmp_path: Path) -> None:
    said: list[str] = []
    engine = Engine()
    first = runs(tmp_path, engine, at_once=2, said=said)

    def stopped() -> Any:
        raise KeyboardInterrupt

    first._wait = stopped  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.run(lambda _: None)
    assert said[-1] == "these runs go on, and the same command finds them: argo/vision/tiny-1, argo/vision/tiny-2"
    second = runs(tmp_path, engine, at_once=2, said=said)
    second._wait = stopped  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        second.run(lambda _: None)
    assert len(engine.started) == 2
    assert said[-2].endswith("is in progress")


def test_a_run_whose_handle_cannot_be_stored_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else would lead to it."""

    def write(self: FileStore, key: str, data: bytes) -> None:
        raise TransientError("the store is away", "try again")

    monkeypatch.setattr(FileStore, "_write", write)
    said: list[str] = []
    with pytest.raises(TransientError):
        runs(tmp_path, Engine(), said=said).run(lambda _: None)
    assert said == ["these runs go on, and the same command finds them: argo/vision/tiny-1"]


class Suspending(Engine):
    """Its runs are suspended at the second and third look, and fail then."""

    def state(self, run: str) -> RunState:
        self.looks[run] += 1
        if self.looks[run] in (2, 3):
            return RunState(phase="Running", parameters={}, message="suspended -> Resume", suspended=True)
        return RunState(phase="Running" if self.looks[run] < 5 else "Failed", parameters={}, message="out of luck")


def test_a_sweep_says_once_that_a_run_is_suspended(tmp_path: Path) -> None:
    said = list[str]()
    with pytest.raises(RunError, match="out of luck"):
        runs(tmp_path, Suspending(), said=said).run(lambda _: None)
    started = [text.removesuffix(" has started") for text in said if text.endswith(" has started")]
    told = sorted(text for text in said if "suspended" in text)
    assert told == sorted(f"{run}: suspended -> Resume" for run in started)


def test_a_handle_that_is_damaged_counts_as_none(tmp_path: Path) -> None:
    """Its run may be in progress still; then the second one waits for the same stages."""
    engine = Suspending()
    keys = runs(tmp_path, engine).cells.keys
    for key in keys:
        (tmp_path / "reports" / key).mkdir(parents=True)
        (tmp_path / "reports" / key / "handle").write_bytes(b"argo/vision/\xff")
    with pytest.raises(RunError, match="out of luck"):
        runs(tmp_path, engine).run(lambda _: None)
    assert len(engine.started) == len(keys)


class Outage:
    """A store that does not answer from its third opening on, as often as said."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder, self.openings, self.away = folder, 0, range(3, 3 + times)

    @contextmanager
    def __call__(self) -> Iterator[Store]:
        self.openings += 1
        if self.openings in self.away:
            raise TransientError("the store does not answer", "try again")
        yield open_store(str(self.folder))


def test_a_sweep_outlives_that_the_store_does_not_answer(tmp_path: Path) -> None:
    engine, said = Engine(), list[str]()
    outlives = runs(tmp_path, engine, said=said)
    outlives.opened = Outage(tmp_path, times=2)
    results = outlives.run(lambda _: None)
    assert said.count("tries again, because the store does not answer") == 2
    assert len(results) == 2
    assert len(engine.started) == len({config.model_dump_json() for config in engine.started})  # none twice


def test_a_sweep_ends_if_the_store_never_answers_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipt.pods.sweep.OUTAGE_S", 0.2)
    ends = runs(tmp_path, Engine())
    ends.opened = Outage(tmp_path, times=10**9)
    with pytest.raises(TransientError, match="the store does not answer"):
        ends.run(lambda _: None)


def test_a_sweep_ends_if_the_cluster_never_answers_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store still does, which does not prolong the hour."""
    engine, said, answered = Engine(), list[str](), list[float | None]()
    ends = runs(tmp_path, engine, said=said)
    there, looks = engine.state, iter(range(6))

    def state(run: str) -> RunState:
        if next(looks, None) is not None:
            return there(run)
        answered.append(ends._answered)
        if len(answered) == 3:  # the hour is over
            monkeypatch.setattr("lipt.pods.sweep.OUTAGE_S", -1.0)
        raise TransientError("the cluster does not answer", "try again")

    monkeypatch.setattr(engine, "state", state)
    with pytest.raises(TransientError, match="the cluster does not answer"):
        ends.run(lambda _: None)
    assert said.count("tries again, because the cluster does not answer") == 2
    assert len(set(answered)) == 1
    assert answered[0] is not None
