"""What goes wrong on a cluster. Every test ends with a look at the result: right to the bit, or one clear error and a
run that, started again, ends right."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from minio.commonconfig import CopySource

from tests.e2e.cluster import (
    BUCKET,
    NAMESPACE,
    STORE,
    Run,
    driver,
    is_running,
    items,
    kubectl,
    minio_pod,
    outcome,
    read,
    shell,
    signal,
    store,
    trained,
    until,
)


def test_a_pod_killed_in_every_stage(tmp_path: Path, same: Any) -> None:
    """Boxes are deleted as an eviction does it. A worker is killed before it can react, which gives it the exit code
    of one that is out of memory."""
    run = Run(tmp_path, "killed")
    for box in ("dispatch", "pretrain", "worker", "merge", "select", "train"):
        victim = run.running(run.workers if box == "worker" else lambda box=box: run.pods(box), why=box)
        how = ["--grace-period=10"]
        if box == "pretrain":  # as when its node is drained: its workers go on
            run.running(run.workers, why="a worker")
            (job,) = items("jobs", f"lipt.dev/run={run.workflow}")
        if box == "worker":
            signal("STOP", victim)
            how = ["--grace-period=0", "--force"]
        kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false", *how)
    run.succeeds(seconds=600)
    same(run)
    (left,) = items("jobs", f"lipt.dev/run={run.workflow}")
    assert left["metadata"]["uid"] == job["metadata"]["uid"]
    kubectl("delete", "workflow", run.workflow)
    until(lambda: not items("jobs", f"lipt.dev/run={run.workflow}"), why="the Job is deleted with the workflow")


def test_a_node_lost_with_a_box_and_its_worker(tmp_path: Path, same: Any) -> None:
    """The plug is pulled; Argo believes that the box still runs. `lipt status` tells what to do. Then the box is
    repeated on the other node, finds its Job, and has the jigsaw trained there; the node comes back."""
    # With the usual grace the swarm may end without that jigsaw.
    run = Run(tmp_path, "node-lost", grace=100)
    box = run.running(lambda: run.pods("pretrain"), why="pretrain")
    node, name = box["spec"]["nodeName"], box["metadata"]["name"]
    worker = run.running(lambda: [pod for pod in run.workers() if pod["spec"].get("nodeName") == node], why="a worker")
    signal("STOP", worker)  # or it might be through before the plug is out
    driver("node-stop", node)
    try:
        told = until(lambda: node in (why := run.message("pretrain")) and why, why="status tells it", every=3)
        remedy = f"kubectl -n {NAMESPACE} delete pod {name} --grace-period=0 --force"
        assert f"run `{remedy}`" in told
        shell(remedy)
        until(lambda: finished(run) == 4, why="all jigsaws are there without that node", seconds=300, every=3)
    finally:
        driver("node-start", node)
    run.succeeds(seconds=600)
    same(run)


def finished(run: Run) -> int:
    """Jigsaws in the store."""
    with store() as client:
        keys = client.list_objects(BUCKET, prefix=f"{run.workspace}/pretrain/", recursive=True)
        return sum(str(entry.object_name).endswith("/artifact.json") for entry in keys)


def test_a_queue_and_then_a_jigsaw_that_never_finishes(tmp_path: Path) -> None:
    """The Job is suspended for longer than the deadline, which does not count; Kueue does the same to a Job that runs.
    Then one jigsaw hangs: at the deadline the merge goes on with the other one, and the report names it."""
    # One for each node: the other has all the time, and does not queue for the nodes that are left.
    run = Run(tmp_path, "queued", {"dispatch": {"jigsaws": 2}}, queue="team")
    selector = f"lipt.dev/run={run.workflow},app.kubernetes.io/component=pretrain"
    (job,) = until(lambda: items("jobs", selector), why="the Job of the swarm exists")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    until(lambda: sum(map(is_running, run.workers())) == 2, why="both workers run")
    for pod in run.workers():  # or they might be through before they are killed
        signal("STOP", pod)
    patch = ("patch", "job", job["metadata"]["name"], "--type=merge", "-p")
    kubectl(*patch, '{"spec": {"suspend": true, "activeDeadlineSeconds": 40}}')  # -p deadline counts in minutes
    kubectl(*patch, '{"status": {"startTime": null}}', "--subresource=status")
    time.sleep(45)
    assert finished(run) == 0
    assert "suspended: waits in its queue" in run.logs()
    kubectl(*patch, '{"spec": {"suspend": false}}')
    pod = run.running(run.workers, why="a worker")
    signal("STOP", pod)
    index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
    run.succeeds()
    with store() as client:
        keys = [str(e.object_name) for e in client.list_objects(BUCKET, prefix="queued/reports/", recursive=True)]
        document = json.loads(read(client, next(key for key in keys if key.endswith(".json"))))
    assert document["merge"]["num_arrived"] == 1
    (missing,) = [step for step in document["merge"]["steps"] if step["missing"]]
    assert (str(missing["index"]), missing["note"]) == (index, "not finished before the deadline")
    events = json.loads(kubectl("get", "events", "--field-selector=reason=WorkersLost", "-o", "json"))["items"]
    (event,) = [one for one in events if one["involvedObject"]["name"] == run.workflow]
    assert (event["involvedObject"]["kind"], event["type"]) == ("Workflow", "Warning")
    assert event["message"] == f"pretrain[{index}]: not finished before the deadline"


def test_a_store_that_restarts_and_one_that_is_away_for_a_minute(tmp_path: Path, same: Any) -> None:
    run = Run(tmp_path, "outage")
    run.running(run.workers, why="a worker")
    minio = minio_pod()
    signal("KILL", minio, "minio")
    until(lambda: restarts() > minio["status"]["containerStatuses"][0]["restartCount"], why="MinIO is restarted")
    run.running(lambda: run.pods("merge"), why="merge")
    selector = '{"spec": {"selector": {"app.kubernetes.io/name": "%s"}}}'
    kubectl("patch", "service", "minio", "--type=merge", "-p", selector % "nobody", namespace=STORE)
    try:
        time.sleep(60)
    finally:
        kubectl("patch", "service", "minio", "--type=merge", "-p", selector % "minio", namespace=STORE)
    run.succeeds(seconds=600)
    same(run)
    assert [len(run.pods(box)) for box in ("dispatch", "select", "train")] == [1, 1, 1]


def restarts() -> int:
    return int(minio_pod()["status"]["containerStatuses"][0]["restartCount"])


def test_a_truncated_object_and_a_flipped_bit(tmp_path: Path, reference: tuple[Run, dict[str, bytes]]) -> None:
    """Neither is used. An object of the wrong size is made again at once; a flipped bit is found by whoever reads it,
    named, and repaired by the next run."""
    good = reference[1]
    with store() as client:
        for entry in client.list_objects(BUCKET, prefix="reference/", recursive=True):
            key = str(entry.object_name)
            copy = key.replace("reference/", "damaged/", 1)
            client.copy_object(
                bucket_name=BUCKET, object_name=copy, source=CopySource(bucket_name=BUCKET, object_name=key)
            )
        keys = [str(e.object_name) for e in client.list_objects(BUCKET, prefix="damaged/", recursive=True)]
        flipped = next(key for key in keys if "/score/" in key and "outputs-0" in key)
        truncated = next(key for key in keys if "/merge/" in key and key.endswith("weights.safetensors"))
        whole = read(client, truncated)
        damage(client, flipped, lambda data: data[:1000] + bytes([data[1000] ^ 4]) + data[1001:])
        damage(client, truncated, lambda data: data[: len(data) // 2])
        run = Run(tmp_path, "damaged", {"select": {"fraction": 0.2}})
        state = run.wait()
        assert state["phase"] == "Failed"
        (message,) = [box["message"] for box in state["boxes"] if box["name"] == "select"]
        assert f"s3://{BUCKET}/{flipped} is damaged" in message
        assert "run again" in message
        assert len(run.pods("select")) == 1  # it would fail the same way again
        assert read(client, truncated) == whole
    last = Run(tmp_path, "damaged", {"select": {"fraction": 0.2}})
    last.succeeds()
    left = outcome("damaged")
    assert {key: left[key] for key in good} == good


def damage(client: Any, key: str, change: Any) -> None:
    import io

    data = change(read(client, key))
    client.put_object(bucket_name=BUCKET, object_name=key, data=io.BytesIO(data), length=len(data))


def test_a_full_disk_and_a_slow_jigsaw(tmp_path: Path) -> None:
    """Two faults in two runs at a time. A pod that fills its scratch space is evicted, and repeated elsewhere; training
    goes on from its checkpoint. A jigsaw never comes to its end, and the swarm ends without it long before the
    deadline."""
    changes = {"select": {"algorithm": "random"}, "train": {"epochs": 150, "checkpoint_s": 1.0}}
    disk = Run(tmp_path, "disk", changes, gpus=0)  # the nodes are the other's
    pod = disk.running(lambda: disk.pods("train"), why="train")
    until(lambda: any(key.endswith("/checkpoint") for key in trained(disk)), why="there is a checkpoint")
    signal("STOP", pod)  # the kubelet looks at the disk once a minute: training would be over by then
    fill = "import os; f = os.open('/tmp/full', os.O_CREAT | os.O_WRONLY); os.posix_fallocate(f, 0, 6 << 30)"
    kubectl("exec", pod["metadata"]["name"], "-c", "main", "--", "python", "-c", fill)

    slow = Run(tmp_path, "slow")
    signal("STOP", slow.running(slow.workers, why="a worker"))
    slow.succeeds(seconds=420)
    assert finished(slow) == 3
    assert "lost: slower than 3 times the median of the finished ones" in slow.logs()

    until(lambda: len(disk.pods("train")) == 2, why="it is evicted and repeated", seconds=240)
    disk.succeeds(seconds=600)
    assert "continues after epoch" in disk.logs()
    keys = trained(disk)
    assert sum(key.endswith("/artifact.json") for key in keys) == 2  # the random subset, and RS2
    assert not [key for key in keys if key.endswith("/checkpoint")]
