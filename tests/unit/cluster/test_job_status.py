"""What is concluded from the status of a Job and its pods."""

from __future__ import annotations

from typing import Any

import pytest

from lipt.adapters.cluster import job_status
from lipt.adapters.cluster.job_watch import JobWatch
from lipt.adapters.cluster.waiting import Waiting, advice, by_cause
from tests.unit.cluster.answers import Answers

JOB = "/apis/batch/v1/namespaces/vision/jobs/x-pretrain"
PODS = "/api/v1/namespaces/vision/pods"


def failed(name: str, made: str, message: str) -> dict[str, Any]:
    """A failed pod of index 0."""
    ended = {"exitCode": 1, "reason": "Error", "message": message}
    return {
        "metadata": {
            "name": name,
            "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
            "creationTimestamp": made,
        },
        "spec": {"nodeName": "n"},
        "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]},
    }


def test_pods_that_a_queue_lets_start_later_are_not_missing() -> None:
    """Kueue may admit two pods of eight, and then lowers the parallelism."""
    job = {"spec": {"completions": 8, "parallelism": 2}, "status": {"active": 2}}
    assert job_status.missing(job) == 0
    assert job_status.missing(job | {"status": {"active": 1}}) == 1
    assert job_status.missing(job | {"status": {"succeeded": 7, "active": 0}}) == 1


def test_of_several_pods_of_an_index_the_last_one_tells_why_it_is_lost() -> None:
    """The names of pods end at random, and the API lists them by name."""
    late = failed("x-0-a", "2026-01-01T00:02:00Z", "lipt: unexpected ZeroDivisionError")
    early = failed("x-0-b", "2026-01-01T00:01:00Z", "lipt: the store was away")
    condition = {"type": "Failed", "status": "True", "message": "too many"}
    job = {
        "spec": {"completions": 1, "parallelism": 1},
        "status": {"failed": 2, "failedIndexes": "0", "conditions": [condition]},
    }
    watch = JobWatch(
        cluster=Answers({JOB: job, PODS: {"items": [late, early]}}),  # type: ignore[arg-type]
        namespace="vision",
        path=JOB,
        completions=1,
        may_fail=1,
        name="pretrain",
        say=lambda _text: None,
        advance=lambda _done, _total: None,
    )
    lost = watch.wait(room_within_s=None, quorum=None, grace=3.0, together=False)
    assert lost == {0: "lipt: unexpected ZeroDivisionError"}


def test_few_pods_are_asked_why_they_have_no_containers() -> None:
    class Counting(Answers):
        asked = 0

        def get(self, path: str, **query: str) -> dict[str, Any]:
            self.asked += 1
            return super().get(path, **query)

    cluster = Counting({"/api/v1/namespaces/vision/events": {"items": []}})
    creating = failed("x", "2026-01-01T00:00:00Z", "")
    creating["status"] = {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}
    assert job_status.not_starting(cluster, "vision", [creating] * 1000) == []
    assert cluster.asked == 5


def test_a_pod_whose_init_container_cannot_start_is_told() -> None:
    """Such as one of Argo or of a mesh, whose image is not in the registry of the cluster."""
    pod = failed("x", "2026-01-01T00:00:00Z", "")
    pod["status"] = {
        "initContainerStatuses": [
            {"state": {"terminated": {"exitCode": 0}}},
            {"name": "mesh", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such\nimage"}}},
        ],
        "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    pod["spec"]["initContainers"] = [{"name": "mesh", "image": "proxy:1"}]
    found = Waiting(reason="ImagePullBackOff", message="no such image", container="mesh", image="proxy:1")
    assert job_status.not_starting(Answers({}), "vision", [pod]) == [(pod, found)]


AGAIN = "`lipt cancel HANDLE`, then `lipt submit` again"
CORRECT = "correct that (docs/howto/cluster-failures.md, A pod does not start): the pod then starts by itself"
BY_ITSELF = ": the pod then starts by itself"


@pytest.mark.parametrize(
    ("reason", "message", "container", "told"),
    [
        (
            "ErrImagePull",
            "",
            "main",
            "push the image that it names where the nodes can read it (on kind: kind load docker-image)"
            f"{BY_ITSELF}. For a pull",
        ),
        ("ImagePullBackOff", "", "worker", "push the image that it names"),
        ("ImagePullBackOff", "", "mesh", "container mesh is not part of lipt: push the image that it names"),
        ("InvalidImageName", "couldn't parse", "main", f"correct the name of the image (-p image=…): {AGAIN}"),
        (
            "InvalidImageName",
            "couldn't parse",
            "mesh",
            f"container mesh is not part of lipt: correct the name of the image. Then {AGAIN}",
        ),
        (
            "ErrImageNeverPull",
            "",
            "main",
            "load the image that it names onto the nodes (on kind: kind load docker-image)",
        ),
        ("RegistryUnavailable", "", "main", f"let the nodes reach the registry of the image{BY_ITSELF}"),
        ("SignatureValidationFailed", "", "main", f"sign the image, as its node demands{BY_ITSELF}"),
        ("ImageInspectError", "", "main", "mend the container runtime of its node"),
        ("CreateContainerConfigError", 'secret "x" not found', "main", "make the Secret or ConfigMap that it names"),
        ("CreateContainerConfigError", "couldn't find key k in ConfigMap v/x", "main", "make the Secret or ConfigMap"),
        (
            "CreateContainerConfigError",
            'container has runAsNonRoot and image will run as root (pod: "p-0_lipt(6f0a)", container: main)',
            "main",
            f"take an image whose user is a number other than 0 (-p image=…): {AGAIN}",
        ),
        ("CreateContainerConfigError", "failed to prepare subPath", "main", CORRECT),
        (
            "CreateContainerError",
            "executable file `lipt` not found in $PATH",
            "main",
            "take an image that has this program",
        ),
        ("CreateContainerError", "the container name is reserved", "main", CORRECT),
        ("RunContainerError", "no space left on device", "main", CORRECT),
    ],
)
def test_each_reason_of_a_container_that_cannot_start_has_its_remedy(
    reason: str, message: str, container: str, told: str
) -> None:
    found = advice(Waiting(reason, message, container))
    assert found.startswith(told)
    assert "push" not in found or "Pull" in reason


def test_a_deadline_does_not_hide_why_others_had_failed_before() -> None:
    status = {"completedIndexes": "0", "failedIndexes": "2"}
    reasons = {1: "lipt: the store was away", 2: job_status.NO_MEMORY}  # 1 was repeated, and hangs
    late = {"type": "Failed", "reason": "DeadlineExceeded", "message": "was active longer than specified deadline"}
    assert job_status.lost(status, late, 3, reasons) == {
        2: job_status.NO_MEMORY,
        1: "not finished before the deadline",
    }


@pytest.mark.parametrize(
    ("completed", "failed", "short", "together", "lost"),
    [
        ("0", "", [1], False, [1]),  # the other is done
        ("", "", [1], False, []),  # the other still runs; meanwhile Kubernetes tries this one again
        ("", "0", [1], False, [0, 1]),
        ("1", "", [1], False, []),  # there was enough memory the second time
        ("", "0", [], False, []),
        ("", "", [1], True, [1]),  # the others wait for it
        ("", "", [], True, []),
    ],
)
def test_memory_ends_a_job_when_nothing_else_is_left_and_a_training_at_once(
    completed: str, failed: str, short: list[int], together: bool, lost: list[int]
) -> None:
    status = {"completedIndexes": completed, "failedIndexes": failed}
    reasons = dict.fromkeys(job_status.indexes(failed), "the loss is nan") | dict.fromkeys(short, job_status.NO_MEMORY)
    ended = job_status.out_of_memory(status, 2, 1, reasons, together=together)
    assert ended == {index: reasons[index] for index in lost}


def test_memory_ends_a_job_when_more_are_lost_than_may_be() -> None:
    """The others have not even started: each of them would meet the same limit."""
    reasons = {0: job_status.NO_MEMORY, 3: "the loss is nan"}
    status = {"failedIndexes": "3"}
    assert job_status.out_of_memory(status, 100, 2, reasons, together=False) == {}
    ended = job_status.out_of_memory(status, 100, 1, reasons, together=False)
    assert (len(ended), ended[0], ended[3]) == (100, job_status.NO_MEMORY, "the loss is nan")
    assert ended[99] == "too many others ran out of memory"


def test_a_job_that_is_about_to_fail_is_not_taken_over() -> None:
    """Its condition is `Failed` only when all its pods have ended."""
    job = {"status": {"conditions": [{"type": "FailureTarget", "status": "True"}]}}
    assert job_status.is_over(job)
    assert job_status.condition(job) is None
    assert not job_status.is_over({"status": {"conditions": [{"type": "Suspended", "status": "True"}]}})


def test_pods_that_wait_for_one_cause_are_counted_together_though_each_message_names_its_pod() -> None:
    said = "container has runAsNonRoot and image will run as root (pod: p-{}, container: main)"
    images = [Waiting("CreateContainerConfigError", said.format(index), "main", "lipt") for index in range(3)]
    secrets = [Waiting("CreateContainerConfigError", f'secret "{name}" not found', "main", "lipt") for name in "ab"]
    assert [count for count, _ in by_cause([*images, *secrets])] == [3, 1, 1]
