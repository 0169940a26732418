"""Worker pods: parameters, and what is asked of Kubernetes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lipt.adapters.cluster.job_manifest import Pods, job_manifest
from lipt.adapters.cluster.job_status import indexes, note
from lipt.adapters.cluster.runs import Handle, _box_of
from lipt.adapters.cluster.shared_metadata import SharedMetadata
from lipt.errors import UsageError

PODS = Pods(image="lipt:1", gpus=1, tolerations=[{"key": "gpu"}], node_selector={"pool": "a"})


def job(pods: Pods = PODS, **changes: Any) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "run": "digits-x",
        "owner": None,
        "shared": SharedMetadata(),
        "name": "pretrain",
        "arguments": ["box", "worker"],
        "completions": 4,
        "may_fail": 2,
        "together": False,
        "user": 1000,
    }
    return job_manifest(pods, **chosen | changes)


def test_parameters_may_be_text() -> None:
    text = {"image": "lipt:1", "gpus": "1", "tolerations": '[{"key": "gpu"}]', "node_selector": '{"pool": "a"}'}
    assert Pods.parse(text) == PODS
    assert (
        Pods.parse({"image": "lipt:1", "gpus": 1, "tolerations": [{"key": "gpu"}], "node_selector": {"pool": "a"}})
        == PODS
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"gpus": "one"}, "parameter gpus is 'one'\n  -> write it like 1"),
        ({"gpus": "-1"}, "parameter gpus is '-1'"),
        ({"deadline": "0"}, "parameter deadline is '0'\n  -> write it like 720"),
        (
            {"gpu_resource": "gpu"},
            """parameter gpu_resource is 'gpu'\n  -> write it like "nvidia.com/gpu\"""",
        ),
        ({"cpu": 4}, 'parameter cpu is 4\n  -> write it like "1"'),
        ({"tolerations": "{}"}, "parameter tolerations is '{}'"),
        ({"tolerations": "[{"}, "parameter tolerations is '[{'"),
        ({"tolerations": [{"kye": "gpu", "operator": "Exists"}]}, "parameter tolerations is"),  # would tolerate all
        ({"tolerations": [{"key": "gpu", "operator": "exists"}]}, "parameter tolerations is"),
        (
            {"node_selector": '{"pool": 1}'},
            """parameter node_selector is '{"pool": 1}'\n  -> write it like {"pool": "gpu"}""",
        ),
        ({"nodse": "1"}, "did you mean 'nodes'"),
        ({"memory": "8GB"}, "parameter memory is '8GB'\n  -> write it like \"2Gi\""),
        ({"memory": "0"}, "parameter memory is '0'"),
        ({"memory": "8"}, "parameter memory is '8'\n  -> write it like \"2Gi\""),  # eight bytes
        ({"cpu": "4Gi"}, "parameter cpu is '4Gi'\n  -> write it like \"1\""),
        ({"cpu": "0"}, "parameter cpu is '0'"),
        ({"cpu": "four"}, "parameter cpu is 'four'"),
        ({"image": ""}, "parameter image is ''"),
        ({"image": "https://registry.example/lipt:1"}, "parameter image is 'https://registry.example/lipt:1'"),
        ({"image": "registry.example/Team/lipt:1"}, "parameter image is 'registry.example/Team/lipt:1'"),
        ({"image": "lipt:1:cpu"}, "parameter image is 'lipt:1:cpu'"),
        ({"s3": "../secrets"}, "parameter s3 is '../secrets'"),
        ({"queue": "Team A"}, "parameter queue is 'Team A'\n  -> write it like \"team-a\""),
        ({"priority": "low!"}, "parameter priority is 'low!'"),
    ],
)
def test_a_wrong_parameter_is_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Pods.parse({"image": "x"} | parameters)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "lipt:0.1.0",
        "REGISTRY/lipt:0.1.0",
        "registry.example:5000/team/li-pt__x.y:V1.0_a",
        f"ghcr.io/me/lipt:1@sha256:{'a' * 64}",
        f"REGISTRY/lipt:1@sha512:{'a' * 128}",
        "[::1]:5000/lipt",
        "quay.io/minio/minio:RELEASE.2025-09-07T16-13-09Z",
    ],
)
def test_every_name_that_a_node_can_pull_is_accepted(name: str) -> None:
    assert Pods.parse({"image": name}).image == name


def test_gpu_workers_never_share_a_node_and_cpu_workers_prefer_not_to() -> None:
    affinity = job()["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = job()["spec"]["template"]["metadata"]["labels"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    spec = job(Pods(image="x"))["spec"]["template"]["spec"]
    assert "preferredDuringSchedulingIgnoredDuringExecution" in spec["affinity"]["podAntiAffinity"]
    assert "nvidia.com/gpu" not in spec["containers"][0]["resources"]["limits"]


def test_workers_with_slices_of_gpus_may_share_a_node_unless_they_train_together() -> None:
    pods = Pods(image="x", gpus=1, gpu_resource="nvidia.com/mig-2g.20gb")
    swarm, training = (job(pods, together=together)["spec"]["template"]["spec"] for together in (False, True))
    assert list(swarm["affinity"]["podAntiAffinity"]) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    assert list(training["affinity"]["podAntiAffinity"]) == ["requiredDuringSchedulingIgnoredDuringExecution"]


def test_gpus_have_the_name_under_which_nodes_offer_them() -> None:
    amd = job(Pods(image="x", gpus=2, gpu_resource="amd.com/gpu"))["spec"]["template"]["spec"]
    assert amd["containers"][0]["resources"]["limits"] == {"memory": "2Gi", "amd.com/gpu": 2}


def test_a_worker_runs_as_the_user_of_its_box_or_of_its_image() -> None:
    """OpenShift refuses a pod with a user that is not one of its namespace's."""
    context = job(user=1000660000)["spec"]["template"]["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (1000660000, 1000660000, True)
    assert job(user=0)["spec"]["template"]["spec"]["securityContext"].keys() == {"runAsNonRoot", "seccompProfile"}


def test_names_are_short_stable_and_differ_between_runs_and_work() -> None:
    long = job(run="x" * 90)["metadata"]["name"]
    assert len(long) + len("-00000-abcde") <= 63 + 6
    assert job()["metadata"]["name"] == job()["metadata"]["name"]
    assert (
        len({job()["metadata"]["name"], job(run="b")["metadata"]["name"], job(arguments=["c"])["metadata"]["name"]})
        == 3
    )


def test_the_pods_of_a_run_whose_name_has_dots_have_valid_host_names() -> None:
    name = job(run=f"photos.v2-{'x' * 28}.-y")["metadata"]["name"]
    assert re.fullmatch(r"[a-z0-9-]{1,63}", f"{name}-3")


def test_permanent_errors_are_answers_and_lost_pods_do_not_count() -> None:
    ignore, fail = job()["spec"]["podFailurePolicy"]["rules"]
    assert ignore["action"] == "Ignore"
    assert (fail["action"], fail["onExitCodes"]["values"]) == ("FailIndex", [1, 2])
    assert job()["spec"]["maxFailedIndexes"] == 2


def test_a_repeat_with_fewer_pods_than_may_fail_is_a_valid_job() -> None:
    """Kubernetes refuses a Job with more failed indexes than completions: then a lost jigsaw could not be repeated."""
    assert job(completions=1, may_fail=2)["spec"]["maxFailedIndexes"] == 1


def test_a_queued_job_starts_with_fewer_workers_but_a_training_needs_all() -> None:
    pods = PODS.model_copy(update={"queue": "team-a", "priority": "low"})
    swarm, training = job(pods), job(pods, together=True)
    for one in (swarm, training):
        assert one["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
        assert "kueue.x-k8s.io/queue-name" not in one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["template"]["spec"]["priorityClassName"] == "low"
    least = int(swarm["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"])
    assert 0 < least < swarm["spec"]["parallelism"]
    assert training["metadata"]["annotations"] == {}
    assert job(pods, completions=1)["metadata"]["annotations"] == {}
    assert "kueue.x-k8s.io/queue-name" not in job()["metadata"]["labels"]
    assert "priorityClassName" not in job()["spec"]["template"]["spec"]


def test_a_training_has_a_deadline_that_its_box_moves_and_is_repeated_often() -> None:
    training = job(together=True)["spec"]
    assert training["activeDeadlineSeconds"] == 1800
    assert job()["spec"]["activeDeadlineSeconds"] == 720 * 60
    assert training["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == [1, 2]  # not when it is killed
    assert training["backoffLimitPerIndex"] > 10 * job()["spec"]["backoffLimitPerIndex"]
    affinity = training["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert "requiredDuringSchedulingIgnoredDuringExecution" in affinity


def test_indexes() -> None:
    assert indexes("") == set()
    assert indexes("0,2-4,7") == {0, 2, 3, 4, 7}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "out of memory (OOMKilled): raise `memory`"),
        ({"terminated": {"exitCode": 1, "reason": "Error", "message": "lipt: no\n such file"}}, "lipt: no such file"),
        ({"terminated": {"exitCode": 3, "reason": "Error"}}, "exit code 3"),
    ],
)
def test_the_reason_of_a_failed_pod_is_kept(status: dict[str, Any], reason: str) -> None:
    reasons: dict[int, str] = {}
    pod = {
        "metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": "3"}},
        "status": {"phase": "Failed", "containerStatuses": [{"state": status}]},
    }
    note(pod, reasons)
    assert reasons == {3: reason}


def test_an_evicted_pod_says_what_its_node_had_too_little_of() -> None:
    """It may be a limit that the namespace gives every container by default."""
    ended = {"terminated": {"exitCode": 137, "reason": "Error", "message": "lipt: terminated"}}
    status = {"phase": "Failed", "reason": "Evicted", "containerStatuses": [{"state": ended}]}
    pod = {"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": "3"}}, "status": status}
    reasons: dict[int, str] = {}
    note(pod, reasons)
    assert reasons == {3: "evicted by its node"}
    status["message"] = "Pod ephemeral local storage usage exceeds\nthe total limit of containers 8Ki. "
    note(pod, reasons)
    assert reasons == {
        3: "evicted by its node: Pod ephemeral local storage usage exceeds the total limit of containers 8Ki."
    }


def test_handles() -> None:
    assert str(Handle.parse("argo/lipt/digits-x7")) == "argo/lipt/digits-x7"
    for text in (
        "digits-x7",
        "argo/lipt",
        "argo//x",
        "helm/lipt/x",
        "argo/lipt/..",
        "argo/lipt/x?watch=1",
        "argo/a b/x",
    ):
        with pytest.raises(UsageError, match="is not a run"):
            Handle.parse(text)


@pytest.mark.parametrize(("stage", "box"), [("pretrain", "pretrain"), ("group", "merge"), ("score", "select")])
def test_a_worker_belongs_to_the_box_of_its_stage(stage: str, box: str) -> None:
    assert _box_of(job(name=stage)["spec"]["template"]) == box


@pytest.mark.parametrize(("cpu", "threads"), [("200m", "1"), ("1", "1"), ("2.5", "3"), ("4", "4")])
def test_a_pod_computes_with_as_many_threads_as_it_requests_cpus(cpu: str, threads: str) -> None:
    (container,) = job(Pods(image="lipt:1", cpu=cpu))["spec"]["template"]["spec"]["containers"]
    assert {"name": "OMP_NUM_THREADS", "value": threads} in container["env"]
    assert container["resources"]["requests"]["cpu"] == cpu


def test_workers_take_from_the_installation_for_how_long_they_ask_a_store_again() -> None:
    (container,) = job()["spec"]["template"]["spec"]["containers"]
    taken = {entry["name"]: entry.get("valueFrom") for entry in container["env"]}
    assert taken["LIPT_S3_RETRY_S"] == {"configMapKeyRef": {"name": "lipt-s3", "key": "retry_s", "optional": True}}


def test_a_missing_parameter_is_called_missing_and_hides_no_unknown_one() -> None:
    with pytest.raises(UsageError, match=r"parameter image is missing\n  -> -p image=lipt:"):
        Pods.parse({"cpu": "2"})
    with pytest.raises(UsageError, match="no parameter 'foo'"):
        Pods.parse({"foo": "2"})
