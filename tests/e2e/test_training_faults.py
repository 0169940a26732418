"""A training on two nodes that loses a pod or a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.cluster import Run, driver, is_running, kubectl, minio_pod, trained, until

#: Nothing has to score before the training.
RANDOM = {"select": {"algorithm": "stratified"}}


def test_a_pod_of_a_training_killed_in_the_middle(tmp_path: Path) -> None:
    """Two pods train; when one is killed the other ends too, and both continue from the checkpoint."""
    changes = RANDOM | {"train": {"epochs": 60, "nodes": 2, "checkpoint_s": 1.0, "random_baseline": False}}
    run = Run(tmp_path, "training", changes)  # both GPUs: the waiting box holds none

    first, second = in_training(run)
    assert is_running(first)
    assert first["spec"]["nodeName"] != second["spec"]["nodeName"]
    kubectl("delete", "pod", second["metadata"]["name"], "--wait=false", "--grace-period=0", "--force")
    run.succeeds(seconds=600)
    codes = [
        (status["state"]["terminated"]["exitCode"], status["state"]["terminated"].get("message", ""))
        for pod in trainers(run)
        for status in pod["status"]["containerStatuses"]
    ]
    assert [code for code, _ in codes].count(0) == 2
    assert "another pod of this training was lost" in next(message for code, message in codes if code == 3)
    assert "continues after epoch" in run.logs()
    components = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in run.workers()}
    assert components == {"train", "evaluate"}
    assert {gpus_of(pod) for pod in run.workers()} == {"1"}
    assert {gpus_of(pod) for box in ("dispatch", "train") for pod in run.pods(box)} == {"0"}
    assert sorted(key.rsplit("/", 1)[1] for key in trained(run)) == [
        "artifact.json",
        "cost.json",
        "weights.safetensors",
    ]


def gpus_of(pod: dict[str, Any]) -> str:
    """Of its own container."""
    container = next(entry for entry in pod["spec"]["containers"] if entry["name"] in ("main", "worker"))
    return str(container["resources"]["limits"].get("nvidia.com/gpu", "0"))


def test_a_node_lost_while_it_trains(tmp_path: Path) -> None:
    """Its connections stay open: the other pod notices by itself, and the training continues on other nodes."""
    changes = RANDOM | {"train": {"epochs": 1500, "nodes": 2, "checkpoint_s": 1.0, "random_baseline": False}}
    stores = minio_pod()["spec"]["nodeName"]
    run = Run(tmp_path, "training-node", changes, gpus=0)
    run.running(lambda: run.pods("select"), why="the selection")
    kubectl("cordon", stores)  # so the box and the two pods share the other two nodes, and one pod is alone on its node
    try:
        pods = in_training(run)
    finally:
        kubectl("uncordon", stores)
    (box,) = run.pods("train")
    (lost,) = [pod for pod in pods if pod["spec"]["nodeName"] != box["spec"]["nodeName"]]
    other = next(pod["metadata"]["name"] for pod in pods if pod is not lost)
    driver("node-stop", lost["spec"]["nodeName"])
    try:
        ended = "{.status.containerStatuses[0].state.terminated.exitCode}"
        found = until(
            lambda: kubectl("get", "pod", other, "-o", f"jsonpath={ended}", check=False),
            why=f"{other} notices",
            seconds=90,
        )
        assert found == "3"
        until(lambda: "continues after epoch" in run.logs(), why="the training continues", seconds=300, every=3)
    finally:
        driver("node-start", lost["spec"]["nodeName"])
    kubectl("delete", "workflow", run.workflow)


def trainers(run: Run) -> list[dict[str, Any]]:
    """The pods of its main training, by name."""
    pods = [pod for pod in run.workers() if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "train"]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def in_training(run: Run) -> list[dict[str, Any]]:
    """These pods, when there is a checkpoint."""
    until(lambda: any(key.endswith("/checkpoint") for key in trained(run)), why="there is a checkpoint", seconds=420)
    return trainers(run)
