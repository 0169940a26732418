"""Which nodes take the pods, as `lipt doctor` concludes it, and the parameters that it names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lipt.adapters.cluster.preflight import UnknownError, scheduling
from lipt.cli.submission import no_node
from lipt.errors import RunError
from tests.unit.cluster.answers import Answers, site

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
PRESSURE = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def node(
    name: str,
    *,
    gpus: int = 0,
    ready: str = "True",
    images: tuple[str, ...] = (),
    taints: tuple[Any, ...] = (),
    size: dict[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"pool": name}},
        "spec": {"taints": list(taints)},
        "status": {
            "allocatable": ({"nvidia.com/gpu": str(gpus)} if gpus else {}) | (size or {}),
            "conditions": [{"type": "Ready", "status": ready}],
            "images": [{"names": list(images)}],
        },
    }


def with_nodes(*found: dict[str, Any]) -> Answers:
    return Answers({"/api/v1/nodes": {"items": list(found)}})


GPU_NODES = node("a", gpus=4, taints=(TAINT,)), node("b", gpus=8, taints=(TAINT,)), node("c")

SMALL = (node("s", size={"cpu": "4", "memory": "16777215Ki"}),)


def test_gpu_nodes_that_take_the_pods_are_counted() -> None:
    cluster = with_nodes(*GPU_NODES)
    assert scheduling.nodes(site(cluster, gpus=4, tolerations=[TOLERATION])) == "2 of 3 nodes take a pod with 4 GPUs"
    assert scheduling.nodes(site(cluster, gpus=8, tolerations=[TOLERATION])) == "1 of 3 nodes take a pod with 8 GPUs"


def test_a_number_of_gpus_may_be_written_as_a_quantity() -> None:
    """So Kubernetes writes a thousand shares."""
    many = node("a", size={"nvidia.com/gpu": "1k"})
    assert scheduling.nodes(site(with_nodes(many), gpus=900)) == "1 of 1 nodes take a pod with 900 GPUs"


def test_gpus_that_a_run_leaves_idle_are_mentioned_with_the_parameters_that_take_them() -> None:
    text = scheduling.nodes(site(with_nodes(*GPU_NODES)))
    assert text.startswith("1 of 3 nodes take a pod without GPU; 2 with GPUs")
    assert text.endswith(f"-p gpus=4 -p tolerations='{json.dumps([TOLERATION])}'")


def test_a_node_in_trouble_is_named_and_not_tolerated() -> None:
    text = scheduling.nodes(site(with_nodes(node("a", gpus=1, taints=(TAINT, PRESSURE)), node("c"))))
    assert text.startswith("1 of 2 nodes take a pod without GPU; a: disk-pressure; 1 with GPUs")
    assert "disk-pressure" not in text.partition("tolerations")[2]


@pytest.mark.parametrize(
    ("pods", "found", "message", "remedy"),
    [
        ({"gpus": 1}, GPU_NODES, "taints keep it away: nvidia.com/gpu=present:NoSchedule", json.dumps([TOLERATION])),
        ({"gpus": 16}, GPU_NODES, "none has 16 allocatable nvidia.com/gpu", "-p gpus="),
        ({"node_selector": {"pool": "x"}}, GPU_NODES, 'has the labels {"pool": "x"}', "-p node_selector="),
        ({"memory": "16Gi"}, SMALL, "none of them has 1 CPU and 16Gi of memory", "-p memory="),
        ({"cpu": "4001m"}, SMALL, "none of them has 4001m CPU and 2Gi of memory", "-p cpu="),
        ({}, (node("c", ready="Unknown"),), "c: not-ready", "kubectl describe node"),
        ({}, (node("c", taints=(PRESSURE,)),), "they are not healthy; c: disk-pressure", "kubectl describe node"),
    ],
)
def test_why_no_node_takes_the_pods(pods: dict[str, Any], found: Any, message: str, remedy: str) -> None:
    with pytest.raises(RunError) as error:
        scheduling.nodes(site(with_nodes(*found), **pods))
    assert message in error.value.message
    assert remedy in error.value.remedy


def test_gpus_that_no_node_has_may_come_with_an_autoscaler() -> None:
    """`lipt doctor` does not fail, `lipt submit` says it."""
    cluster, amd = with_nodes(*GPU_NODES), {"gpus": 1, "gpu_resource": "amd.com/gpu"}
    with pytest.raises(
        UnknownError, match=r"no node of 3 has amd.com/gpu\n  -> nothing, if an autoscaler .* -p gpu_res"
    ):
        scheduling.nodes(site(cluster, **amd))
    assert "has amd.com/gpu" in str(no_node(cluster, "argo", "vision", amd))


def test_a_run_whose_parameters_lipt_would_refuse_has_a_state_all_the_same() -> None:
    """Somebody may have started it in the user interface of its engine."""
    assert no_node(with_nodes(*GPU_NODES), "argo", "vision", {"gpus": 16, "memory": "8GB"}) is None


def test_a_node_that_is_just_large_enough_takes_the_pods() -> None:
    assert scheduling.nodes(site(with_nodes(*SMALL), cpu="4", memory="15Gi")) == "1 of 1 nodes take a pod without GPU"


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        (TOLERATION, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "value": "absent"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_as_the_scheduler_reads_them(toleration: dict[str, Any], tolerated: bool) -> None:
    assert (scheduling._refused_by(GPU_NODES[0], [toleration]) == []) is tolerated


def test_images_go_by_their_full_name() -> None:
    names = {
        "lipt:1": "docker.io/library/lipt:1",
        "me/lipt:1": "docker.io/me/lipt:1",
        "localhost:5000/lipt:1": "localhost:5000/lipt:1",
        "ghcr.io/me/lipt:1": "ghcr.io/me/lipt:1",
    }
    assert {name: scheduling._full(name) for name in names} == names
    cluster = with_nodes(node("a", images=("docker.io/library/lipt:1",)), node("b"))
    assert scheduling.image(site(cluster)) == "lipt:1: on 1 of 2 nodes"
    with pytest.raises(UnknownError):
        scheduling.image(site(with_nodes(node("a"))))
