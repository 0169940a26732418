"""The small pod that `lipt doctor` starts, and what it makes of its end."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lipt import __version__
from lipt.adapters.cluster.api import NotAdmittedError
from lipt.adapters.cluster.job_manifest import Pods
from lipt.adapters.cluster.preflight import UnknownError, trial
from lipt.errors import RunError
from tests.unit.cluster.answers import Answers, site
from tests.unit.cluster.installed import TEMPLATE

POD = "/api/v1/namespaces/vision/pods/lipt-doctor-x"


def ended(log: str, *, phase: str = "Succeeded") -> Answers:
    status = {"phase": phase, "containerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}
    return Answers({POD: {"status": status, "spec": {"nodeName": "a"}}, f"{POD}/log": log})


def findings(**changes: Any) -> str:
    well = {"packages": f"python 3, lipt {__version__}, torch 2", "workspace": "s3://b/x: write, read, list, delete"}
    found = {name: {"ok": True, "finding": text} for name, text in well.items()}
    # The pod has the default number of jigsaws, the run another one.
    found["selection"] = {"ok": False, "finding": "10 jigsaws of 256 images need 2,560 candidates"}
    return json.dumps(found | changes, indent=1)


def test_a_pod_tells_how_the_store_looks_from_inside_and_is_deleted() -> None:
    cluster = ended(f"a warning {{}}\n{findings()}\n")
    assert "s3://b/x: write, read, list, delete" in trial.pod(site(cluster), workspace="s3://b/x", data="digits")
    (body,) = cluster.created
    spec, (container,) = body["spec"], body["spec"]["containers"]
    assert container["args"] == [
        "doctor",
        "/dev/null",
        "-o",
        "json",
        "--set",
        'workspace="s3://b/x"',
        "--set",
        'device="cpu"',
    ]
    assert spec["activeDeadlineSeconds"] == 120
    retry = [entry.get("value") for entry in container["env"] if entry["name"] == "LIPT_S3_RETRY_S"]
    assert retry == ["10"]
    assert "lipt.dev/job" in body["metadata"]["labels"]  # else the network would let it reach more than a worker
    assert (spec["securityContext"]["runAsNonRoot"], spec["automountServiceAccountToken"]) == (True, False)
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert cluster.deleted == [POD]


def test_the_pod_has_the_labels_that_the_template_gives_boxes() -> None:
    """Else a rule of the cluster that demands them would refuse this pod alone."""
    labels = {"example.com/cost-center": "vision", "example.com/run": "{{workflow.name}}"}
    spec = {"podMetadata": {"labels": labels, "annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    cluster = ended(findings())
    cluster.documents["/apis/argoproj.io/v1alpha1/namespaces/vision/workflowtemplates/lipt"] = {"spec": spec}
    trial.pod(site(cluster), workspace="s3://b/x", data="digits")
    metadata = cluster.created[0]["metadata"]
    assert metadata["labels"]["example.com/cost-center"] == "vision"
    assert "example.com/run" not in metadata["labels"]  # only a workflow has a name
    assert metadata["labels"]["app.kubernetes.io/component"] == "doctor"
    assert metadata["annotations"] == {"karpenter.sh/do-not-disrupt": "true", "sidecar.istio.io/inject": "false"}


class Minimum(Answers):
    """A namespace whose LimitRange has a minimum of 100m CPU; `dry`: the pod of the last dry run."""

    dry: dict[str, Any]

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if body["kind"] == "Pod" and body["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "50m":
            raise NotAdmittedError("minimum cpu usage per Container is 100m, but request is 50m", "")
        return super().create(path, body)

    def request(self, method: str, path: str, **options: Any) -> str:
        if options.get("query") == {"dryRun": "All"}:
            self.dry = options["body"]
            return "{}"
        return super().request(method, path, **options)


def test_where_the_small_pod_is_too_small_one_like_a_worker_starts() -> None:
    cluster = Minimum(ended(findings()).documents)
    trial.pod(site(cluster, cpu="2", memory="3Gi"), workspace="s3://b/x", data="digits")
    (body,) = cluster.created
    assert body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "3Gi"}


@pytest.mark.parametrize(
    ("engine", "patch", "found"),
    [
        ("argo", TEMPLATE["spec"]["podSpecPatch"], (["init"], ["worker", "wait"])),
        ("argo", "containers: [{name: wait, resources: {}}]", ([], ["worker", "wait"])),
        ("argo", "{{workflow.parameters.patch}} [", ([], ["worker"])),
        ("kubeflow", TEMPLATE["spec"]["podSpecPatch"], ([], ["worker"])),
    ],
)
def test_the_containers_that_argo_adds_to_a_box_must_be_admitted_too(
    engine: str, patch: str, found: tuple[list[str], list[str]]
) -> None:
    """They request 10m CPU, which a minimum refuses that all other containers meet."""
    path = "/apis/argoproj.io/v1alpha1/namespaces/vision/workflowtemplates/lipt"
    cluster = Minimum({path: {"spec": {"podSpecPatch": patch}}})
    trial.admission(site(cluster, engine=engine))
    spec = cluster.dry["spec"]
    assert tuple([each["name"] for each in spec.get(key, [])] for key in ("initContainers", "containers")) == found
    assert all(each["image"] == "lipt:1" for key in ("initContainers", "containers") for each in spec.get(key, []))


@pytest.mark.parametrize(
    ("log", "message", "remedy"),
    [
        (
            findings(workspace={"ok": False, "finding": "s3://b/x: out of reach\n  -> check the store"}),
            "workspace, checked in a pod: s3://b/x: out of reach",
            "check the store",
        ),
        (findings(packages={"ok": True, "finding": "python 3, lipt 0.0.1"}), "holds python 3, lipt 0.0.1", "-p image="),
        ("exec: lipt: not found\n", "(Error, exit code 1): exec: lipt: not found", "-p image="),
        ("", "no output", "-p image="),
    ],
)
def test_what_a_pod_complains_about(log: str, message: str, remedy: str) -> None:
    cluster = ended(log, phase="Failed")
    with pytest.raises(RunError) as error:
        trial.pod(site(cluster), workspace="s3://b/x", data="digits")
    assert message in error.value.message
    assert remedy in error.value.remedy
    assert cluster.deleted == [POD]


@pytest.mark.parametrize(
    ("first", "waiting", "message", "remedy"),
    [
        (
            "",
            {"reason": "ErrImagePull", "message": "not\nfound"},
            "lipt:1: not found",
            "push the image that it names where the nodes can read it (on kind: kind load docker-image), or take "
            "another image: -p image=…",
        ),
        (
            "",
            {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'},
            'lipt:1 does not start: secret "x" not found',
            "make the Secret or ConfigMap that it names, or add the key",
        ),
        ("", {"reason": "RunContainerError"}, "lipt:1 does not start: RunContainerError", "try again"),
        (
            "",
            {"reason": "ImageInspectError"},
            "lipt:1 does not start: ImageInspectError",
            "mend the container runtime of its node",
        ),
        (
            "mesh",
            {"reason": "ImagePullBackOff", "message": "no such image"},
            "container mesh (proxy:1), which your cluster adds to pods, cannot start: no such image",
            "ask those who add it, or push the image that it names where the nodes can read it",
        ),
        (
            "mesh",
            {"reason": "RunContainerError", "message": "denied"},
            "container mesh (proxy:1), which your cluster adds to pods, cannot start: denied",
            "ask those who add it",
        ),
    ],
)
def test_a_pod_whose_container_cannot_start(first: str, waiting: dict[str, str], message: str, remedy: str) -> None:
    status: dict[str, Any] = {"phase": "Pending", "containerStatuses": [{"name": "worker", "state": {}}]}
    spec: dict[str, Any] = {"containers": [{"name": "worker", "image": "lipt:1"}]}
    if first:
        spec["initContainers"] = [{"name": first, "image": "proxy:1"}]
        status["initContainerStatuses"] = [{"name": first, "state": {"waiting": waiting}}]
        waiting = {"reason": "PodInitializing"}
    status["containerStatuses"][0]["state"]["waiting"] = waiting
    cluster = Answers({POD: {"status": status, "spec": spec}})
    with pytest.raises(RunError) as error:
        trial.pod(site(cluster), workspace="s3://b/x", data="digits")
    assert error.value.message == message
    assert error.value.remedy.startswith(remedy)
    assert cluster.deleted == [POD]


def test_a_pod_that_does_not_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_PATIENCE_S", -1.0)
    status: dict[str, Any] = {"phase": "Pending"}
    cluster = Answers({POD: {"status": status}})
    with pytest.raises(UnknownError):
        trial.pod(site(cluster), workspace="s3://b/x", data="digits")
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    status["conditions"] = [unschedulable]
    with pytest.raises(RunError, match="0/3 nodes"):
        trial.pod(site(cluster), workspace="s3://b/x", data="digits")
    assert cluster.deleted == [POD, POD]


def test_the_pods_parameters_reach_the_pod() -> None:
    cluster = ended(findings())
    changed = replace(site(cluster), pods=Pods(image="lipt:2", gpus=8, node_selector={"pool": "a"}, s3="mine"))
    trial.pod(changed, workspace="s3://b/x", data="s3://b/data")
    spec = cluster.created[0]["spec"]
    assert (spec["nodeSelector"], spec["containers"][0]["image"]) == ({"pool": "a"}, "lipt:2")
    assert spec["containers"][0]["args"][-1] == 'data.source="s3://b/data"'
    assert spec["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "mine"
