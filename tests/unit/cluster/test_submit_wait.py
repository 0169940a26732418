"""`lipt submit --wait` that ends before its run: the same command would start a second run."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from lipt.adapters.cluster.argo import Argo
from lipt.adapters.cluster.engine import BoxState, RunState
from lipt.adapters.cluster.runs import Handle
from lipt.cli import cluster as verbs
from lipt.cli import main
from lipt.errors import TransientError
from tests.tiny import TINY
from tests.unit.cluster.answers import Answers
from tests.unit.cluster.installed import Installed
from tests.unit.cluster.servers import serving, use_cluster

ARGUMENTS = ("submit", "--engine", "argo", "-n", "vision", "-p", "image=lipt:1", "--wait")


class Server(Installed):
    """The run that is submitted goes on without end."""

    asked: Event
    """Somebody has asked for its state."""

    def do_GET(self) -> None:
        if "/workflows/" in urlsplit(self.path).path:
            self.answer({"spec": {}, "status": {"phase": "Running"}})
            self.asked.set()
        else:
            super().do_GET()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Server]]:
    handler: type[Any] = type("Handler", (Server,), {"sent": [], "asked": Event()})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield handler


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY | {"workspace": "s3://lipt/tiny"}), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("sent", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_who_no_longer_waits_is_told_that_the_run_goes_on(
    server: type[Server], config: str, sent: signal.Signals, code: int, said: str
) -> None:
    command = [sys.executable, "-m", "lipt", *ARGUMENTS, config]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.asked.wait(100)
    process.send_signal(sent)
    stdout, stderr = process.communicate(timeout=30)
    handle = stdout.strip()
    assert handle.startswith("argo/vision/tiny-")
    assert process.returncode == code, stderr
    assert stderr.endswith(f"lipt: {said}\n  -> the run goes on: lipt status {handle} --wait\n"), stderr


@pytest.mark.usefixtures("server")
def test_a_cluster_that_is_lost_meanwhile_is_no_reason_to_submit_again(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3 alone would say: the same command again."""

    def lost(*_given: Any) -> RunState:
        raise TransientError("the API server is unreachable", "check the cluster, then try again")

    monkeypatch.setattr(verbs, "_at_end", lost)
    with pytest.raises(SystemExit) as ended:
        main([*ARGUMENTS, config])
    shown = capsys.readouterr()
    assert ended.value.code == 3
    assert shown.err.endswith(
        f"lipt: the API server is unreachable\n  -> the run goes on: lipt status {shown.out.strip()} --wait\n"
    )


class Suspended(Server):
    """Somebody has suspended the run, resumes it, suspends it again, and lets it end."""

    looks = 0

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path.endswith("/pods"):
            self.answer({"items": []})
            return
        if "/workflows/" not in path:
            super().do_GET()
            return
        type(self).looks += 1
        phase = "Running" if self.looks < 7 else "Succeeded"
        self.answer({"spec": {"suspend": self.looks in (2, 3, 5, 6, 7)}, "status": {"phase": phase}})


@pytest.mark.parametrize("verb", [["status", "--wait"], ["logs", "--follow"]], ids=" ".join)
def test_who_waits_for_a_run_that_is_suspended_is_told_so_once(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its phase stays `Running`, and nothing else shows that it never ends."""
    monkeypatch.setattr(verbs, "_POLL_S", 0)
    handler: type[Any] = type("Handler", (Suspended,), {"sent": []})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        main([*verb, "argo/vision/tiny"])
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" -> ")[0] for line in told] == ["tiny: suspended, so no further box starts"] * 2


def test_messages_of_a_state_say_what_to_do() -> None:
    refused = 'pods "x-driver" is forbidden: exceeded quota: team, requested: pods=1'
    boxes = [
        BoxState(name="dispatch", phase="Failed", message="main: Error (exit code 143)"),
        BoxState(name="merge", phase="Failed", message="OOMKilled (exit code 137)"),
        BoxState(name="pretrain", phase="Failed", message="Error (exit code 1): lipt: lost (OOMKilled) -> -p x"),
        BoxState(name="select", phase="Running", message="attempt 2 (before: main: Error (exit code 143))"),
        BoxState(name="train", phase="Running", message="main: Error (exit code 143)"),  # about to be repeated
    ]
    state = verbs._with_remedies(RunState(phase="Running", parameters={}, boxes=boxes, message=refused), {}, "vision")
    assert state.message.startswith(
        "1 pod is not admitted: exceeded quota: team, requested: pods=1 -> `kubectl -n vision"
    )
    stopped, memory, lost, *others = [box.message for box in state.boxes]
    assert stopped.endswith(
        "(exit code 143) -> its pod was stopped (evicted, drained or deleted): `lipt submit` again continues it"
    )
    assert memory == "OOMKilled (exit code 137) -> `lipt submit` again with more memory: -p memory=…"
    assert lost.endswith(" -> -p x")
    assert not any("->" in message for message in others)


def test_a_run_that_is_over_waits_for_no_node() -> None:
    box = BoxState(name="merge", phase="Failed", message="Unschedulable: 0/3 nodes are available")
    state = RunState(phase="Failed", parameters={}, boxes=[box], message="Unschedulable: 0/3 nodes are available")
    assert verbs._with_remedies(state, {}, "vision") == state


def test_who_waits_is_told_why_no_node_takes_the_pods_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workflow: dict[str, Any] = {"spec": {}, "status": {"phase": "Running"}}
    metadata = {"labels": {"app.kubernetes.io/component": "merge"}, "creationTimestamp": "2026-01-01T00:01:00Z"}
    why = {"type": "PodScheduled", "status": "False", "message": "0/3 are available. preemption: none"}
    cluster = Answers(
        {
            "/apis/argoproj.io/v1alpha1/namespaces/vision/workflows/x": workflow,
            "/api/v1/namespaces/vision/pods": {"items": [{"metadata": metadata, "status": {"conditions": [why]}}]},
            "/apis/batch/v1/namespaces/vision/jobs": {"items": []},
        }
    )
    monkeypatch.setattr(verbs, "_REASONS_S", 0)
    monkeypatch.setattr(verbs, "no_node", lambda *_args: None)
    monkeypatch.setattr("lipt.cli.cluster.time.sleep", lambda _s: workflow.update(status={"phase": "Succeeded"}))
    verbs._at_end(Argo(cluster, "vision"), Handle(engine="argo", namespace="vision", run="x"), cluster)
    assert (
        "pods wait for a node: 0/3 are available -> wait until a node is free, or lower -p gpus"
        in capsys.readouterr().err
    )


def test_who_waits_is_told_once_why_pods_do_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image lipt:1"}
    labels = {"app.kubernetes.io/component": "merge"}
    metadata = {"name": "x-1", "labels": labels, "creationTimestamp": "2026-01-01T00:01:00Z"}
    pod = {"metadata": metadata, "status": {"containerStatuses": [{"state": {"waiting": waiting}}]}}
    workflow: dict[str, Any] = {"spec": {}, "status": {"phase": "Running"}}
    cluster = Answers(
        {
            "/apis/argoproj.io/v1alpha1/namespaces/vision/workflows/x": workflow,
            "/api/v1/namespaces/vision/pods": {"items": [pod]},
            "/apis/batch/v1/namespaces/vision/jobs": {"items": []},
            "/api/v1/namespaces/vision/events": {"items": []},
        }
    )
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            workflow["status"] = {"phase": "Succeeded"}

    monkeypatch.setattr(verbs, "_REASONS_S", 0)
    monkeypatch.setattr("lipt.cli.cluster.time.sleep", pause)
    handle = Handle(engine="argo", namespace="vision", run="x")
    state = verbs._at_end(Argo(cluster, "vision"), handle, cluster)
    assert state.phase == "Succeeded"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "x: merge: 2 pods cannot start: ImagePullBackOff: Back-off pulling image lipt:1 -> push the image"
    )


@pytest.mark.parametrize("scheduled", ["False", "True"])
def test_a_pod_that_has_its_node_by_now_waits_for_none(
    scheduled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine notes a while later that a pod has its node. Here it is one of its own pods, which has no box."""
    node = {"displayName": "merge", "type": "Pod", "phase": "Pending", "message": "Unschedulable: 0/3 are available"}
    workflow = {"spec": {}, "status": {"phase": "Running", "nodes": {"0": node}}}
    metadata = {"labels": {}, "creationTimestamp": "2026-01-01T00:01:00Z"}
    pod = {"metadata": metadata, "status": {"conditions": [{"type": "PodScheduled", "status": scheduled}]}}
    cluster = Answers(
        {
            "/apis/argoproj.io/v1alpha1/namespaces/vision/workflows/x": workflow,
            "/api/v1/namespaces/vision/pods": {"items": [pod]},
            "/apis/batch/v1/namespaces/vision/jobs": {"items": []},
        }
    )
    monkeypatch.setattr(verbs, "Cluster", lambda: cluster)
    main(["status", "argo/vision/x"])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("merge"))
    assert ("waits for a node: 0/3 are available" in line) == (scheduled == "False")
    assert "Unschedulable" not in line
    assert line.split()[:2] == ["merge", "Pending"]
