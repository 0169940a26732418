"""Refusals of Kubernetes 1.34, word for word, and what is told about them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lipt.adapters.cluster import preflight
from lipt.adapters.cluster.admission import explained, reason_of, remedy_of
from lipt.adapters.cluster.api import Cluster, NotAdmittedError, RefusedError
from lipt.adapters.cluster.job_manifest import JOB_LABEL
from lipt.adapters.cluster.job_status import refusal
from lipt.adapters.cluster.runs import waiting_reasons
from tests.unit.cluster.answers import Answers, site
from tests.unit.cluster.servers import JsonHandler, serving, use_cluster

CREATING = 'Error creating: pods "x-pretrain-1f-0-" is forbidden: '
QUOTA = "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        (QUOTA, "kubectl -n vision describe quota"),
        ("failed quota: q: must specify limits.cpu for: worker", "add a LimitRange"),
        ('error looking up service account vision/w: serviceaccount "w" not found', "kubectl apply -k"),
        ('violates PodSecurity "restricted:latest": seccompProfile', "restricted"),
        ("no PriorityClass with name low was found", "kubectl get priorityclasses"),
        ("maximum memory usage per Container is 1Gi, but limit is 2Gi", "kubectl -n vision describe limits"),
        ("minimum cpu usage per Container is 100m, but request is 10m", "raise `podSpecPatch` in the WorkflowTemplate"),
        ("cpu max limit to request ratio per Container is 4, but provided ratio is 50.0", "describe limits"),
        ("anything else", "kubectl -n vision get events"),
    ],
)
def test_each_refusal_has_its_own_remedy(why: str, remedy: str) -> None:
    assert reason_of(f"{CREATING}{why}") == why
    assert remedy in remedy_of(why, "vision")


def test_a_box_that_is_refused_is_told_like_its_workers() -> None:
    told = explained(f'pods "x-dispatch-207" is forbidden: {QUOTA}', "vision")
    assert told.startswith(f"1 pod is not admitted: {QUOTA} -> `kubectl -n vision describe quota`")
    assert explained("lipt: no such bucket", "vision") == "lipt: no such bucket"


def test_a_webhook_and_a_limit_below_the_request() -> None:
    denied = 'admission webhook "w.example" denied the request: no'
    assert reason_of(f"Error creating: {denied}") == denied
    assert "webhook" in remedy_of(denied, "vision")
    invalid = (
        'Error creating: Pod "x-0" is invalid: spec.containers[0].resources.requests: Invalid value: "4": must be '
    )
    invalid += "less than or equal to cpu limit of 2"
    assert reason_of(invalid).startswith("spec.containers[0].resources.requests")
    assert "LimitRange" in remedy_of(reason_of(invalid), "vision")


def test_a_refusal_counts_until_a_newer_pod_exists() -> None:
    bare = {"metadata": {"creationTimestamp": "2026-01-01T00:00:30Z"}, "message": "nobody says when this was"}
    events = [{"message": f"{CREATING}{QUOTA}", "lastTimestamp": None, "eventTime": "2026-01-01T00:01:00.5Z"}, bare]
    cluster = Answers({"/api/v1/namespaces/vision/events": {"items": events}})
    older, newer = ({"metadata": {"creationTimestamp": f"2026-01-01T00:0{minute}:00Z"}} for minute in (1, 2))
    assert refusal(cluster, "vision", "x-pretrain", [older]) == QUOTA
    assert refusal(cluster, "vision", "x-pretrain", [older, newer]) == ""
    assert refusal(Answers({"/api/v1/namespaces/vision/events": {"items": []}}), "vision", "x-pretrain", []) == ""


def reasons_of(cluster: Answers) -> dict[str, str]:
    return waiting_reasons(cluster, "vision", "x", lambda: "wait")


def test_status_tells_which_box_waits_and_for_what() -> None:
    labels = {"lipt.dev/run": "x", "app.kubernetes.io/component": "initialise"}
    job = {"metadata": {"name": "x-initialise", "labels": labels}, "spec": {"completions": 2, "parallelism": 2}}
    event = {"message": f"{CREATING}{QUOTA}", "lastTimestamp": "2026-01-01T00:00:00Z"}
    answers: dict[str, Any] = {
        "/api/v1/namespaces/vision/pods": {"items": []},
        "/apis/batch/v1/namespaces/vision/jobs": {"items": [job]},
        "/api/v1/namespaces/vision/events": {"items": [event]},
    }
    (told,) = reasons_of(Answers(answers)).items()
    assert told[0] == "dispatch"
    assert told[1].startswith(f"2 pods are not admitted: {QUOTA} -> `kubectl -n vision describe quota`")
    refused = Answers(answers | {"/api/v1/namespaces/vision/events": RefusedError("forbidden", "ask")})
    assert reasons_of(refused) == {}
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image lipt:1"}
    status = {"containerStatuses": [{"state": {"waiting": waiting}}]}
    pod = {"metadata": {"labels": labels, "creationTimestamp": "2026-01-01T00:01:00Z"}, "status": status}
    stuck = answers | {"/api/v1/namespaces/vision/pods": {"items": [pod]}}
    (told,) = reasons_of(Answers(stuck)).items()
    assert told[0] == "dispatch"
    assert told[1].startswith(
        "2 pods cannot start: ImagePullBackOff: Back-off pulling image lipt:1 -> push the image that it names where"
    )
    ended = {"conditions": [{"type": "Failed", "status": "True"}]}
    answers["/apis/batch/v1/namespaces/vision/jobs"] = {"items": [{**job, "status": ended}]}
    assert reasons_of(Answers(answers)) == {}


def test_each_reason_why_pods_cannot_start_has_its_number() -> None:
    """Pods that try again to pull an image have one reason; its name alternates."""
    reasons = [
        {"reason": "ErrImagePull", "message": "lipt:1: not found"},
        {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'},
        {"reason": "ImagePullBackOff", "message": "Back-off pulling image lipt:1"},
    ]
    metadata = {"labels": {"app.kubernetes.io/component": "merge"}, "creationTimestamp": "2026-01-01T00:01:00Z"}
    pods = [
        {"metadata": metadata, "status": {"containerStatuses": [{"state": {"waiting": waiting}}]}}
        for waiting in reasons
    ]
    answers: dict[str, Any] = {
        "/api/v1/namespaces/vision/pods": {"items": pods[:2]},  # the answer to both questions: boxes and workers
        "/apis/batch/v1/namespaces/vision/jobs": {"items": []},
    }
    cluster = Answers(answers)
    image, secret = reasons_of(cluster)["merge"].split("; ")
    assert image.startswith("2 pods cannot start: ErrImagePull: lipt:1: not found -> push the image")
    assert secret.startswith('2 pods cannot start: CreateContainerConfigError: secret "x" not found -> make the Secret')
    cluster.documents["/api/v1/namespaces/vision/pods"] = {"items": [pods[0], pods[2]]}
    assert reasons_of(cluster)["merge"].startswith("4 pods cannot start: ErrImagePull: ")


def status_of_a_pod(pod: dict[str, Any], *events: dict[str, Any]) -> dict[str, str]:
    """What is told about a run with this pod."""
    answers = {
        "/api/v1/namespaces/vision/pods": {"items": [pod]},
        "/apis/batch/v1/namespaces/vision/jobs": {"items": []},
        "/api/v1/namespaces/vision/events": {"items": list(events)},
    }
    return reasons_of(Answers(answers))


def test_a_pod_of_the_engine_that_waits_for_a_node_is_told_with_what_to_do() -> None:
    """Kubeflow Pipelines starts a pod of its own before each box, which is none of ours."""
    why = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)"
    message = f"Unschedulable: {why}. preemption: 0/3 nodes are available: 3 No victims."
    assert explained(message, "vision") == (
        f"1 pod waits for a node: {why} -> wait until a node is free, or lower -p gpus, memory, cpu (a pod of the "
        "engine can only wait)"
    )


def test_status_tells_that_the_containers_of_a_pod_are_not_created() -> None:
    metadata = {"name": "x-1", "labels": {"app.kubernetes.io/component": "merge"}}
    waiting = {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}
    old = {"metadata": metadata | {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": waiting}
    new = {"metadata": metadata | {"creationTimestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}, "status": waiting}
    first, second, other = (
        {"reason": reason, "message": text, "lastTimestamp": f"2026-01-01T00:0{minute}:00Z"}
        for minute, (reason, text) in enumerate(
            [("FailedMount", "no such volume"), ("FailedCreatePodSandBox", "no network"), ("Scheduled", "to gpu-1")]
        )
    )
    (told,) = status_of_a_pod(old, second, first).items()
    assert told[0] == "merge"
    assert told[1].endswith(
        "cannot start: FailedCreatePodSandBox: no network -> correct that (docs/howto/cluster-failures.md, A pod does "
        "not start): the pod then starts by itself"
    )
    assert status_of_a_pod(old, other) == {}  # its image may be on its way
    pulling = {"reason": "Pulling", "message": "lipt:1", "lastTimestamp": "2026-01-01T00:05:00Z"}
    assert status_of_a_pod(old, first, second, pulling) == {}  # a later attempt succeeded
    assert status_of_a_pod(new, first) == {}  # the next attempt may succeed


def test_status_tells_that_the_node_of_a_box_is_lost() -> None:
    labels = {"app.kubernetes.io/component": "pretrain"}
    gone = {"name": "x-7", "creationTimestamp": "2026-01-01T00:01:00Z", "deletionTimestamp": "2026-01-01T00:02:00Z"}
    pod = {"metadata": gone | {"labels": labels}, "spec": {"nodeName": "gpu-1"}, "status": {"phase": "Running"}}
    told = status_of_a_pod(pod)["pretrain"]
    assert told.startswith("node gpu-1 does not answer -> ")
    assert "`kubectl -n vision delete pod x-7 --grace-period=0 --force`" in told
    assert status_of_a_pod(pod | {"status": {"phase": "Succeeded"}}) == {}
    assert status_of_a_pod(pod | {"spec": {}, "status": {"phase": "Pending"}}) == {}  # it never had a node
    worker = {"metadata": gone | {"labels": labels | {JOB_LABEL: "x-pretrain"}}}
    assert status_of_a_pod(pod | worker) == {}  # its box starts it elsewhere


class Refusing(JsonHandler):
    """Refuses every POST with `message`."""

    message, status = "", 403

    def do_POST(self) -> None:
        self.answer({"message": self.message}, self.status)


def test_a_quota_is_not_taken_for_a_missing_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/api/v1/namespaces/vision/pods"
    with serving(Refusing) as address:
        use_cluster(address, tmp_path, monkeypatch)
        Refusing.message = f'pods "lipt-doctor-x" is forbidden: {QUOTA}'
        with pytest.raises(NotAdmittedError, match=re.escape(f"vision does not admit it: {QUOTA}")) as error:
            Cluster().create(path, {"metadata": {"name": "x"}})
        assert "describe quota" in error.value.remedy
        Refusing.message = 'pods is forbidden: User "me" cannot create resource "pods" in API group ""'
        with pytest.raises(RefusedError, match="cannot create"):
            Cluster().create(path, {"metadata": {"name": "x"}})


def test_a_policy_refuses_with_another_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = "ValidatingAdmissionPolicy 'cost' with binding 'cost' denied request: pods need a cost-center"
    handler = type("Handler", (Refusing,), {"message": f'pods "x" is forbidden: {denied}', "status": 422})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        with pytest.raises(NotAdmittedError, match=f"vision does not admit it: {denied}\n  -> if it wants labels"):
            Cluster().create("/api/v1/namespaces/vision/pods", {"metadata": {"name": "x"}})


def test_doctor_asks_for_a_pod_of_the_size_of_a_worker_and_creates_none() -> None:
    class DryRun(Answers):
        def request(self, method: str, path: str, *, query: Any = None, body: Any = None) -> str:
            self.asked = (method, path, query, body["spec"]["containers"][0]["resources"]["limits"])
            return "{}"

    cluster = DryRun()
    assert preflight.CHECKS["admission"](site(cluster, gpus=8, memory="64Gi")).endswith("1 CPU, 64Gi, 8 GPUs")
    limits = {"memory": "64Gi", "nvidia.com/gpu": 8}
    assert cluster.asked == ("POST", "/api/v1/namespaces/vision/pods", {"dryRun": "All"}, limits)
    assert cluster.created == []
