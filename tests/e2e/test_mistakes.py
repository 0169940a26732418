"""What people get wrong: requests that no node, quota or store can meet, and settings that contradict each other. The
run, `lipt status` and `lipt doctor` say what is wrong and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Run, items, kubectl, shell, until


@pytest.fixture
def wrong_secret() -> Any:
    kubectl(
        "create", "secret", "generic", "wrong-s3", "--from-literal=accesskey=lipt", "--from-literal=secretkey=wrong"
    )
    endpoint = json.loads(kubectl("get", "configmap", "lipt-s3", "-o", "json"))["data"]["endpoint"]
    kubectl("create", "configmap", "wrong-s3", f"--from-literal=endpoint={endpoint}")
    yield "wrong-s3"
    kubectl("delete", "secret/wrong-s3", "configmap/wrong-s3")


def test_a_run_that_no_node_takes_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path, "too-large", gpus=8)  # within the quota of 16
    message = until(lambda: run.message("dispatch"), why="status says what dispatch waits for", every=2)
    assert message.startswith("1 pod waits for a node: 0/3 nodes are available")
    assert "Insufficient nvidia.com/gpu" in message
    assert "-> -p gpus=N, -p gpu_resource=NAME, or install the device plugin" in message
    assert "no node of 3 takes a pod with 8 GPUs" in run.told
    assert "is being stopped" in shell(f"lipt cancel {run.handle}")
    assert run.wait()["phase"] == "Failed"


def test_a_quota_that_refuses_the_workers(tmp_path: Path, same: Any) -> None:
    """The box, `lipt status` and `lipt doctor` tell it within half a minute; the run goes on when there is room."""
    run = Run(tmp_path, "quota")
    run.running(lambda: run.pods("dispatch"), why="dispatch")
    kubectl("create", "quota", "tight", "--hard=requests.nvidia.com/gpu=0")
    try:
        until(lambda: items("jobs", f"lipt.dev/run={run.workflow}"), why="the Job of the swarm exists")
        told = "4 pods are not admitted: exceeded quota: tight"
        until(lambda: told in run.message("pretrain"), why="status tells it", seconds=30)
        assert "`kubectl -n lipt describe quota`" in run.message("pretrain")
        until(lambda: "pretrain: 4 of 4 pods are not admitted" in run.logs(), why="the box tells it", seconds=15)
        assert "exceeded quota: tight" in run.doctor("admission")["finding"]
    finally:
        kubectl("delete", "quota", "tight")
    run.succeeds()
    same(run)


def test_mistakes_are_told_once_and_not_repeated(tmp_path: Path, wrong_secret: str) -> None:
    """Wrong credentials, a missing bucket, a setting that contradicts itself: one pod each, one line each.

    What can be known without the cluster, `lipt submit` refuses by itself.
    """
    with pytest.raises(AssertionError, match="1000 jigsaws of 32 images need 32,000 candidates"):
        Run(tmp_path, "many", {"dispatch": {"jigsaws": 1000}})
    runs = {
        "credentials": Run(tmp_path, "credentials", s3=wrong_secret),
        "bucket": Run(tmp_path, "bucket", {"workspace": "s3://no-such-bucket/x"}),
    }
    created = kubectl("create", "-o", "name", "-f", "-", stdin=CONTRADICTION).strip().rsplit("/", 1)[1]
    expected = {
        "credentials": "refuses the credentials",
        "bucket": "no-such-bucket",
    }
    for name, run in runs.items():
        state = run.wait()
        assert state["phase"] == "Failed"
        (dispatch, *others) = state["boxes"]
        assert "lipt: " in dispatch["message"]
        assert expected[name] in dispatch["message"]
        assert len(run.pods("dispatch")) == 1
        assert {box["phase"] for box in others} <= {"Skipped", "Pending"}
        (pod,) = run.pods("dispatch")
        main = next(state for state in pod["status"]["containerStatuses"] if state["name"] == "main")
        assert expected[name] in main["state"]["terminated"]["message"]
    until(lambda: phase(created) == "Failed", why=f"{created} fails")
    text = kubectl("get", "wf", created, "-o", "jsonpath={.status.nodes.*.message}")
    assert "parameter fraction is 0.05, config says select.fraction: 0.5" in text
    assert len(items("pods", f"workflows.argoproj.io/workflow={created}")) == 1


def phase(workflow: str) -> str:
    return kubectl("get", "wf", workflow, "-o", "jsonpath={.status.phase}")


CONTRADICTION = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: contradiction-}
spec:
  workflowTemplateRef: {name: lipt}
  arguments:
    parameters:
    - {name: workspace, value: "s3://lipt/contradiction"}
    - {name: config, value: "select: {fraction: 0.5}"}
"""


def test_a_worker_out_of_memory(tmp_path: Path) -> None:
    """The shard's batch does not fit; the run says so, and with more memory the same run ends."""
    big = {"model": {"width": 8}, "data": {"image_size": 48}, "initialise": {"batch_size": 16}}
    big |= {"dispatch": {"jigsaws": 2, "batch_size": 640}, "pretrain": {"passes": 1}}
    big |= {"merge": {"quorum": 1.0, "search_images": 64}, "train": {"epochs": 1, "random_baseline": False}}
    run = Run(tmp_path, "memory", big, memory="780Mi")  # theta needs 500, a jigsaw 1,100
    state = run.wait()
    assert state["phase"] == "Failed"
    message = next(box["message"] for box in state["boxes"] if box["name"] == "merge")
    assert "0 of 2 jigsaws arrived, the quorum is 2" in message
    assert "out of memory (OOMKilled): raise `memory`" in message
    again = Run(tmp_path, "memory", big, memory="4Gi")
    again.succeeds()
    assert "initialise          up to date" in again.logs()
