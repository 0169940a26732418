"""Runs that nothing disturbs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import shlex
import time
from collections import Counter
from copy import copy
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.e2e.cluster import (
    BUCKET,
    ROOT,
    STORE,
    Run,
    credentials,
    items,
    outcome,
    read,
    shell,
    store,
    tunnel,
)
from tests.examples import asks_a_cluster, commands

BOXES = ["dispatch", "pretrain", "merge", "select", "train"]


def test_jigsaws_never_share_a_node(reference: tuple[Run, dict[str, bytes]]) -> None:
    """Four jigsaws, two GPU nodes: two at a time, and the others wait."""
    pods = [pod for pod in reference[0].workers() if "pretrain" in pod["metadata"]["name"]]
    assert len(pods) == 4
    by_node: dict[str, list[tuple[datetime, datetime]]] = {}
    for pod in pods:
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        span = datetime.fromisoformat(ended["startedAt"]), datetime.fromisoformat(ended["finishedAt"])
        by_node.setdefault(pod["spec"]["nodeName"], []).append(span)
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert len(by_node) == 2
    for spans in by_node.values():
        ordered = sorted(spans)
        assert all(before[1] <= after[0] for before, after in pairwise(ordered))


def test_labels_logs_and_owners(reference: tuple[Run, dict[str, bytes]]) -> None:
    run = reference[0]
    for box in BOXES:
        (pod,) = run.pods(box)
        labels = pod["metadata"]["labels"]
        assert (labels["app.kubernetes.io/name"], labels["app.kubernetes.io/part-of"]) == ("lipt", "lipt")
        assert labels["example.com/cost-center"] == "e2e"
    assert {pod["metadata"]["labels"]["example.com/cost-center"] for pod in run.workers()} == {"e2e"}
    logs = run.logs()
    assert all(f"pretrain[{index}] " in logs for index in range(4))
    assert "4 of 4" in logs
    jobs = items("jobs", f"lipt.dev/run={run.workflow}")
    assert [job["metadata"]["ownerReferences"][0]["name"] for job in jobs] == [run.workflow] * len(jobs)


def test_shared_scoring_and_pretraining_choose_the_same_subset(tmp_path: Path, same: Any) -> None:
    """Two pods share the jigsaws, and then the score blocks; every artifact is that of one pod alone."""
    run = Run(tmp_path, "shared", nodes=2)
    followed = run.follow()
    run.succeeds()
    same(run)
    output, _ = followed.communicate(timeout=60)
    assert _printed(output) == _printed(run.logs())
    workers = [pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in run.workers()]
    assert sorted(workers) == ["pretrain", "pretrain", "score", "score"]


def _printed(logs: str) -> Counter[str]:
    """The lines of the pods, without the names of the pods and what else `lipt` says about them, in parentheses."""
    return Counter(line for line in logs.splitlines() if not line.startswith(("== ", "(")))


def test_pods_share_scorers_and_a_race(tmp_path: Path) -> None:
    """Two disjoint models, one per pod; then a race of two subsets, one per pod, with a draw that needs a parameter."""
    changes = {
        "score": {"model": "trajectory", "runs": 2, "epochs": 2, "disjoint": True, "block_images": 2048},
        "select": {"race": {"rounds": [0.5]}},
        "train": {"random_baseline": False, "draw": "ordered", "epoch_fraction": 0.05},  # epochs of two steps
    }
    run = Run(tmp_path, "scorers", changes, nodes=2)
    run.succeeds()
    workers = [pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in run.workers()]
    assert sorted(workers) == ["initialise", "initialise", "race", "race"]
    with store() as client:
        names = [str(entry.object_name) for entry in client.list_objects(BUCKET, prefix="scorers/", recursive=True)]
        records = {key: json.loads(read(client, key)) for key in names if key.endswith("/artifact.json")}
    models = [record for key, record in records.items() if "/initialise/" in key]
    assert [record["summary"]["images"] for record in models] == [2 * 647] * 2  # two epochs on half of 1,294 candidates
    steps = {
        stage: [record["summary"]["steps"] for key, record in records.items() if f"/{stage}/" in key]
        for stage in ("race", "train")
    }
    assert steps == {"race": [4, 4], "train": [8]}


def test_the_example_of_several_nodes(reference: tuple[Run, dict[str, bytes]]) -> None:
    """The commands in its first lines, with the digits and fewer epochs, on the two GPU nodes that are here."""
    example = ROOT / "examples/08-several-nodes.yaml"
    doctor, submit = (words for words in commands(example) if asks_a_cluster(words))
    fewer = {
        "data.source": "digits",
        "data.image_size": 8,
        "model.width": 4,
        "initialise.batch_size": 64,
        "dispatch.batch_size": 32,
        "merge.search_images": 64,
        "train.epochs": 4,
        "train.batch_size": 32,
        "train.random_baseline": "false",
    }
    changes = ["-p", "cpu=200m", "-p", "memory=1Gi"]
    changes += [word for name, value in fewer.items() for word in ("--set", f"{name}={value}")]

    def smaller(words: list[str]) -> str:
        """The command as it is, but for nodes=4."""
        return shlex.join(["nodes=2" if word == "nodes=4" else word for word in [*words, *changes]])

    found = json.loads(shell(f"{smaller(doctor)} -o json", folder=example.parent))
    assert not [name for name, check in found.items() if check["ok"] is False]
    run = copy(reference[0])
    run.handle, run.workspace = shell(smaller(submit), folder=example.parent).strip(), "several-nodes"
    run.succeeds()
    components = Counter(pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in run.workers())
    # theta_* and the main training share each batch; two pods share 16 jigsaws, and then four groups.
    assert components == {"initialise": 2, "pretrain": 2, "group": 2, "train": 2, "evaluate": 1}
    left = [key.partition("/")[0] for key in outcome(run.workspace)]
    assert (left.count("pretrain"), left.count("group")) == (16, 4)


def test_two_runs_side_by_side_do_the_work_once(tmp_path: Path, same: Any) -> None:
    """Submitted one after the other: the second waits for the boxes and pods of the first."""
    runs = [Run(tmp_path, "twins"), Run(tmp_path, "twins")]
    for run in runs:
        run.succeeds()
        same(run)
    assert len([pod for run in runs for pod in run.workers()]) == 4
    logs = [run.logs() for run in runs]
    assert any("which does the same work" in log for log in logs)
    for box in ("initialise", "merge", "train ccs"):
        made = re.compile(rf"^{box} +[0-9.]+ s  ", re.MULTILINE)
        assert sum(len(made.findall(log)) for log in logs) == 1, box


def test_traffic_is_what_the_ledger_says(tmp_path: Path) -> None:
    """MinIO's own counters over a whole run, against the sum of all artifacts' costs: within 2 %. Merged in groups."""
    changes = {"model": {"width": 16}, "train": {"random_baseline": False}, "merge": {"groups": 2}}
    before = counters()
    run = Run(tmp_path, "traffic", changes)
    run.succeeds()
    after = counters()
    with store() as client:
        keys = [str(entry.object_name) for entry in client.list_objects(BUCKET, prefix="traffic/", recursive=True)]
        # The data set repeats the cost of the chunks that it names.
        priced = [key for key in keys if key.endswith("/cost.json") and "/chunks/" not in key]
        costs = [json.loads(read(client, key)) for key in priced]
        rest = sum(
            client.stat_object(bucket_name=BUCKET, object_name=key).size or 0 for key in keys if "reports/" in key
        )
        deltas = [
            client.stat_object(bucket_name=BUCKET, object_name=key).size or 0
            for key in keys
            if "/pretrain/" in key and key.endswith(".zst")
        ]
        weights = next(
            key for key in keys if key.startswith("traffic/initialise/") and key.endswith("weights.safetensors")
        )
        theta = client.stat_object(bucket_name=BUCKET, object_name=weights).size or 0
    workers = [cost for key, cost in zip(priced, costs, strict=True) if "/pretrain/" in key]
    assert [cost["read"]["model"] for cost in workers] == [theta] * 4
    components = [pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in run.workers()]
    assert sorted(components) == ["group"] * 2 + ["pretrain"] * 4
    assert max(deltas) < 0.4 * theta  # bf16, compressed
    ledger = {verb: sum(sum(cost[verb].values()) for cost in costs) for verb in ("read", "written")}
    ledger["written"] += rest
    assert after["received"] - before["received"] == pytest.approx(ledger["written"], rel=0.02)
    assert after["sent"] - before["sent"] == pytest.approx(ledger["read"], rel=0.02)


def counters() -> dict[str, float]:
    """Bytes that MinIO received and sent for S3 requests; steady when two readings agree."""
    user, password = credentials(STORE, "minio-root", ("user", "password"))
    header, claims = {"alg": "HS512", "typ": "JWT"}, {"exp": int(time.time()) + 3600, "sub": user, "iss": "prometheus"}
    text = b".".join(_part(json.dumps(part).encode()) for part in (header, claims))
    token = text + b"." + _part(hmac.new(password.encode(), text, hashlib.sha512).digest())

    def once() -> dict[str, float]:
        with tunnel() as port:
            request = Request(f"http://127.0.0.1:{port}/minio/v2/metrics/cluster")
            request.add_header("Authorization", f"Bearer {token.decode()}")
            lines = urlopen(request, timeout=30).read().decode().splitlines()
        return {
            name: sum(
                float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"minio_s3_traffic_{name}_bytes")
            )
            for name in ("received", "sent")
        }

    last = once()
    while True:  # they are gathered every few seconds
        time.sleep(12)
        if (now := once()) == last:
            return now
        last = now


def _part(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def test_the_configuration_in_the_report_is_the_one_submitted(reference: tuple[Run, dict[str, bytes]]) -> None:
    run = reference[0]
    with store() as client:
        keys = [str(e.object_name) for e in client.list_objects(BUCKET, prefix="reference/reports/", recursive=True)]
        document = json.loads(read(client, next(key for key in keys if key.endswith(".json"))))
    shown = yaml.safe_load(document["provenance"]["config_yaml"])
    assert (shown["model"]["width"], shown["workspace"]) == (4, f"s3://{BUCKET}/reference")
    assert document["engine"] == "argo"
    assert document["provenance"]["host"]["cpu threads"] == "1"  # requested: 200m
    assert outcome(run.workspace) == reference[1]
