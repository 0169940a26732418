"""How a box spreads its work over worker pods; only the Job is ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lipt.adapters.cluster.fanout import ThisPod
from lipt.adapters.cluster.job_manifest import Pods
from lipt.errors import RunError
from lipt.pods import workers
from lipt.pods.spec import RunSpec
from lipt.pods.workers import spread
from lipt.runtime.context import Context
from lipt.runtime.stage import Stage
from lipt.runtime.workspace import Workspace
from tests.tiny import bare_context, demo_stage

ADDRESS = "runs/specs/0.json"


class Box:
    """A box with items whose stages do nothing, and the Jobs that it started."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **pods: Any) -> None:
        self.ctx: Context = bare_context(Workspace(str(folder)))
        self.spec = RunSpec(
            config={}, dataset="", initial=(), shards=None, engine="argo", pods=Pods(image="lipt:1", **pods)
        )
        self.jobs: list[dict[str, Any]] = []
        self.running: list[list[str]] = []
        self.pod: Callable[[int], str] = lambda _item: ""
        """Does an item; returns why its pod is lost, or nothing."""
        monkeypatch.setattr(ThisPod, "find", lambda: ThisPod(namespace="lipt", pod="box"))
        monkeypatch.setattr(workers, "running_arguments", lambda _here, _stage: self.running)
        monkeypatch.setattr(workers, "run_job", self._run_job)

    def stage(self, index: int) -> Stage:
        return demo_stage(self.ctx.workspace, lambda _attempt: {}, settings={"index": index})

    def make(self, index: int) -> str:
        self.stage(index).make()
        return ""

    def spread(self, count: int, **options: Any) -> dict[int, str]:
        lost = spread(self.spec, ADDRESS, self.ctx, "pretrain", range(count), stage_of=self.stage, **options)
        return {item: loss.noted.message if loss.noted else loss.why for item, loss in lost.items()}

    def note(self, index: int) -> str:
        """The key of the object in which its pod says why an item is lost."""
        return f"{self.stage(index).ref}/lost.json"

    def _run_job(self, _here: ThisPod, _pods: Pods, *, arguments: list[str], **job: Any) -> dict[int, str]:
        self.jobs.append(job | {"arguments": arguments})
        items: list[int] = json.loads(arguments[arguments.index("--items") + 1])
        lost = {}
        for share in range(job["completions"]):
            for item in items[share :: job["completions"]]:
                if why := self.pod(item):
                    lost[share] = why
                    break
        return lost


def test_only_what_a_lost_pod_left_undone_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pod 0 does items 0, 2 and 4, and ends at item 2."""
    box = Box(tmp_path, monkeypatch, nodes=2)
    box.pod = lambda item: "out of memory" if item == 2 else box.make(item)
    assert box.spread(6) == {2: "out of memory", 4: "out of memory"}


def test_without_a_cluster_only_what_is_missing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(tmp_path, monkeypatch)
    monkeypatch.setattr(ThisPod, "find", lambda: None)

    def work(_address: str, _stage: str, items: list[int], _merged: str | None) -> None:
        for item in items[:-1]:
            box.make(item)
        raise RunError("GPU 2 failed")

    monkeypatch.setattr(workers, "worker", work)
    assert box.spread(3) == {2: "GPU 2 failed"}


def test_a_reason_of_an_earlier_attempt_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The box notes why a pod was lost only if its worker did not."""
    box, seen = Box(tmp_path, monkeypatch), list[int | None]()
    note = box.note(1)
    box.ctx.workspace.store.write(note, b'{"error": "GPU 1 failed"}', kind="other")

    def evicted(item: int) -> str:
        seen.append(box.ctx.workspace.store.size(note))
        return box.make(item) if item == 0 else "evicted by its node"

    box.pod = evicted
    assert box.spread(2) == {1: "evicted by its node"}
    assert seen == [None, None]


def test_what_another_box_did_meanwhile_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(tmp_path, monkeypatch)
    box.pod, stage, looks = box.make, box.stage, list[int]()

    def made_meanwhile(index: int) -> Stage:
        looks.append(index)
        if looks.count(0) == 2:  # the lease is taken after the first look at all items
            stage(1).make()
        return stage(index)

    monkeypatch.setattr(box, "stage", made_meanwhile)
    assert box.spread(3) == {}
    (job,) = box.jobs
    assert job["arguments"][-1] == "[0,2]"


def test_a_box_that_comes_back_takes_over_the_job_that_does_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a Job depends on its arguments: those of the running one are asked for."""
    box = Box(tmp_path, monkeypatch)
    box.make(0)
    box.pod = lambda item: "exit code 1" if item == 1 else box.make(item)
    note, why = box.note(1), b'{"error": "GPU 1 failed"}'
    box.ctx.workspace.store.write(note, why, kind="other")  # by a pod of this Job
    ours = ["box", "worker", ADDRESS, "pretrain", "--of", "2", "--items", "[0, 1, 2]"]
    box.running = [
        ["box", "worker", "runs/specs/1.json", *ours[3:]],
        [*ours[:-1], "[1]"],
        ours,
    ]
    assert box.spread(3) == {1: "GPU 1 failed"}
    (job,) = box.jobs
    assert (job["arguments"], job["completions"]) == (ours, 2)
    assert box.ctx.workspace.store.read(note, kind="other") == why


def test_what_a_pod_noted_is_read_before_the_next_run_can_delete_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The box of another run has its turn as soon as this one gives back the lease, and tries the item again."""
    box = Box(tmp_path, monkeypatch)
    store, leased = box.ctx.workspace.store, Stage.leased

    def lose(item: int) -> str:
        store.write(box.note(item), b'{"error": "the training loss is nan"}', kind="other")
        return "exit code 1"

    @contextmanager
    def then_another(stage: Stage, *given: Any) -> Iterator[None]:
        with leased(stage, *given):
            yield
        store.delete(box.note(0))

    box.pod = lose
    monkeypatch.setattr(Stage, "leased", then_another)
    assert box.spread(1) == {0: "the training loss is nan"}


@pytest.mark.parametrize(
    ("nodes", "may_fail", "quorum", "most"),
    [(0, 2, 4, 2), (3, 2, 2, 3), (2, 1, 2, 2), (3, 6, 0, 3), (3, None, None, 3)],
)
def test_the_quorum_is_of_pods(
    nodes: int, may_fail: int | None, quorum: int | None, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many pods that even those with the fewest items do what is needed; of six items."""
    box = Box(tmp_path, monkeypatch, nodes=nodes)
    box.pod = box.make
    assert box.spread(6, may_fail=may_fail) == {}
    (job,) = box.jobs
    assert (job["quorum"], job["may_fail"]) == (quorum, most)
