"""The pods of a run: documents with the API's own names, shared by the fan-out and the Argo workflow."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Json, NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError

from lipt import liveness, metrics
from lipt.adapters.cluster.shared_metadata import SharedMetadata
from lipt.adapters.cluster.values import Bytes, Cpus, ImageName, ObjectName, Toleration, amount
from lipt.errors import UsageError, did_you_mean
from lipt.version import __version__

#: Their ServiceAccount. It has no rights.
WORKER = "lipt-worker"
#: Labels of worker pods, in addition to the recommended ones.
RUN_LABEL, JOB_LABEL = "lipt.dev/run", "lipt.dev/job"
_RETRIES = 3
#: Exit codes of lipt after which no repeat helps.
_FOR_GOOD = {"operator": "In", "values": [1, 2]}
#: Retries of pods that train together. If one is lost, all restart and continue from the last checkpoint.
_TRAINING_RETRIES = 100
#: The Service that gives the pods of a training their names, and the label that it selects.
SERVICE, SERVICE_LABEL = "lipt-training", "lipt.dev/service"
#: Variable with the number of CPU threads, which PyTorch reads when it is imported.
THREADS = "OMP_NUM_THREADS"
#: Tells them the name and port of the first pod.
FIRST_POD, _PORT = "LIPT_FIRST_POD", 29400
#: The file of `lipt.liveness`.
_PROGRESS_FILE = "/tmp/progress"
#: A training has no deadline of its own. That of its Job is moved on by its box (`JobWatch`), so that the pods do not
#: train for days if the box was killed and never came back.
LEASE_S = 1800
#: In the name that NVIDIA's device plugin gives a slice of a GPU (MIG, strategy `mixed`): nvidia.com/mig-1g.5gb.
_SLICE = "/mig-"
#: Above `data.resident_mb`: the processes of one main training share the decoded images in a file there.
SCRATCH = "5Gi"

POD_SECURITY: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
VOLUME_MOUNTS = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"}]


class Pods(BaseModel):
    """How the pods of a fan-out run: parameters of the pipeline, in the format of Kubernetes, or as text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: ImageName = Field(examples=[f"lipt:{__version__}"])
    gpus: NonNegativeInt = Field(0, examples=[1])
    gpu_resource: str = Field("nvidia.com/gpu", pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")
    """Name under which nodes offer GPUs: `amd.com/gpu`, `nvidia.com/mig-2g.20gb` …"""
    cpu: Cpus = "1"
    memory: Bytes = "2Gi"
    tolerations: list[Toleration] | Json[list[Toleration]] = Field(
        [], examples=[[{"key": "nvidia.com/gpu", "operator": "Exists"}]]
    )
    node_selector: dict[str, str] | Json[dict[str, str]] = Field({}, examples=[{"pool": "gpu"}])
    s3: ObjectName = "lipt-s3"
    """Name of the Secret and of the ConfigMap of the object store."""
    nodes: NonNegativeInt = 0
    """Pods that share a fan-out; 0: one per part of work, or with k GPUs one per k parts."""
    deadline: PositiveInt = 720
    """Minutes after which the run continues without the missing workers."""
    grace: NonNegativeFloat = 3.0
    """After the quorum, a worker is lost if it runs for more than this multiple of the median of the finished ones."""
    queue: ObjectName | Literal[""] = Field("", examples=["team-a"])
    """Kueue's LocalQueue for the worker pods."""
    priority: ObjectName | Literal[""] = Field("", examples=["low"])
    """PriorityClass of the worker pods."""

    @classmethod
    def parse(cls, parameters: Mapping[str, Any]) -> Pods:
        """Check the parameters of a user or an engine.

        Raises:
            UsageError: a parameter is wrong; the message names the first one and what was expected.
        """
        try:
            return cls.model_validate(parameters)
        except ValidationError as error:
            names = [str(each["loc"][0]) for each in error.errors()]
        if unknown := [name for name in names if name not in cls.model_fields]:
            raise UsageError(f"no parameter {unknown[0]!r}", did_you_mean(unknown[0], cls.model_fields))
        name = names[0]
        (example,) = cls.model_fields[name].examples or [cls.model_fields[name].default]
        if name not in parameters:
            raise UsageError(f"parameter {name} is missing", f"-p {name}={example}")
        raise UsageError(f"parameter {name} is {parameters.get(name)!r}", f"write it like {json.dumps(example)}")


def labels_of(component: str) -> dict[str, str]:
    """The recommended labels of an object that belongs to a run."""
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": "lipt",
        f"{prefix}/part-of": "lipt",
        f"{prefix}/component": component,
        f"{prefix}/version": __version__,
        f"{prefix}/managed-by": "lipt",
    }


def environment(s3: str) -> list[dict[str, Any]]:
    """The object store's credentials and address, and where figures go, from the Secret and the ConfigMap of that name.

    They are optional: a pod waits forever for a missing required object, but lipt names the missing variable.
    """

    def taken(variable: str, source: str, key: str) -> dict[str, Any]:
        return {"name": variable, "valueFrom": {source: {"name": s3, "key": key, "optional": True}}}

    return [
        taken("AWS_ACCESS_KEY_ID", "secretKeyRef", "accesskey"),
        taken("AWS_SECRET_ACCESS_KEY", "secretKeyRef", "secretkey"),
        taken("LIPT_S3_ENDPOINT", "configMapKeyRef", "endpoint"),
        taken("AWS_REGION", "configMapKeyRef", "region"),
        taken("LIPT_S3_RETRY_S", "configMapKeyRef", "retry_s"),
        taken(metrics.VARIABLE, "configMapKeyRef", "metrics"),
        {"name": "GOMP_SPINCOUNT", "value": "30000"},  # threads that spin endlessly starve the other pods of the node
    ]


def threads_of(cpu: str) -> str:
    """The number of CPU threads of a pod, the value of `THREADS`: the CPUs that it requests, rounded up.

    PyTorch would start one for each core of the node. The threads of several pods would wait for each other, and the
    last digits of what a CPU computes would depend on the node.
    """
    return str(math.ceil(amount(cpu)))


def volumes(scratch: str) -> list[dict[str, Any]]:
    """Scratch space, because the root file system is read-only. A pod that fills it is evicted."""
    return [
        {"name": "tmp", "emptyDir": {"sizeLimit": scratch}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]


def unreachable() -> list[dict[str, Any]]:
    """Tolerations that limit how long a pod stays on a node that does not answer."""
    toleration = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    return [{"key": f"node.kubernetes.io/{state}"} | toleration for state in ("not-ready", "unreachable")]


def job_manifest(
    pods: Pods,
    *,
    run: str,
    owner: dict[str, Any] | None,
    shared: SharedMetadata,
    name: str,
    arguments: Sequence[str],
    completions: int,
    may_fail: int,
    together: bool,
    user: int,
) -> dict[str, Any]:
    """The Job of `run_job`.

    Args:
        shared: what Job and pods have in common with the boxes of the run.
        user: as in `pod_spec`; 0 for that of the image.
    """
    digest = hashlib.sha256(json.dumps([run, name, list(arguments), completions]).encode()).hexdigest()[:6]
    # No dot, which a workflow's name may have: Kubernetes refuses an Indexed Job whose pods' host names had one.
    job_name = f"{run[:40].replace('.', '-').rstrip('-')}-{name}-{digest}"
    labels = shared.labels | labels_of(name) | {RUN_LABEL: run, JOB_LABEL: job_name}
    annotations = shared.annotations | {"sidecar.istio.io/inject": "false"}  # a sidecar would outlive the worker
    if together:
        labels[SERVICE_LABEL] = SERVICE
    metadata: dict[str, Any] = {"name": job_name, "labels": dict(labels), "annotations": dict(shared.annotations)}
    if owner:
        metadata["ownerReferences"] = [owner]
    if pods.queue:
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = pods.queue
        if completions > 1 and not together:  # Kueue may start with fewer pods
            metadata["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = "1"
    # Kubernetes stops this clock while the Job is suspended.
    limit = LEASE_S if together else pods.deadline * 60
    spec = pod_spec(pods, job=job_name, arguments=arguments, user=user, together=together)
    if together:
        spec["subdomain"] = SERVICE
        (container,) = spec["containers"]
        container["env"].append({"name": FIRST_POD, "value": f"{job_name}-0.{SERVICE}:{_PORT}"})
        container["env"].append({"name": liveness.VARIABLE, "value": _PROGRESS_FILE})
        container["livenessProbe"] = {
            "exec": {"command": liveness.stalled_check(_PROGRESS_FILE)},
            "periodSeconds": 30,
            "timeoutSeconds": 20,
            "failureThreshold": 2,
        }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": completions,
            "parallelism": completions,
            "backoffLimitPerIndex": _TRAINING_RETRIES if together else _RETRIES,
            "maxFailedIndexes": min(may_fail, completions),  # Kubernetes refuses more; a repeat has fewer pods
            "activeDeadlineSeconds": limit,
            "ttlSecondsAfterFinished": 24 * 3600,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    # Not 137: a pod that is deleted by force or killed because it hangs has it, too, not only one
                    # that is out of memory. Who watches the Job sees the difference.
                    {"action": "FailIndex", "onExitCodes": {"containerName": "worker", **_FOR_GOOD}},
                ]
            },
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }


def pod_spec(
    pods: Pods, *, job: str, arguments: Sequence[str], user: int | None = None, together: bool = False
) -> dict[str, Any]:
    """A worker: it gets the store's credentials, but no cluster token.

    With GPUs it shares a node with no other worker of its Job. With slices of GPUs it may, unless the workers train
    together: CUDA gives a process one slice only, so a node has room for several workers.

    Args:
        user: number of the user and of its group; None: those of the image.
        together: the workers share one training; NCCL may refuse two processes on one GPU.
    """
    limits = {"memory": pods.memory} | ({pods.gpu_resource: pods.gpus} if pods.gpus else {})
    apart = {"labelSelector": {"matchLabels": {JOB_LABEL: job}}, "topologyKey": "kubernetes.io/hostname"}
    own_node = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    spread = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]}
    alone = pods.gpus > 0 and (together or _SLICE not in pods.gpu_resource)
    return {
        "restartPolicy": "Never",
        **({"priorityClassName": pods.priority} if pods.priority else {}),
        "serviceAccountName": WORKER,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": POD_SECURITY | ({"runAsUser": user, "runAsGroup": user} if user else {}),
        "nodeSelector": pods.node_selector,
        "tolerations": [*pods.tolerations, *unreachable()],
        "affinity": {"podAntiAffinity": own_node if alone else spread},
        "containers": [
            {
                "name": "worker",
                "image": pods.image,
                "command": ["lipt"],
                "args": list(arguments),
                "env": [*environment(pods.s3), {"name": THREADS, "value": threads_of(pods.cpu)}],
                "resources": {"requests": {"cpu": pods.cpu, "memory": pods.memory}, "limits": limits},
                "securityContext": CONTAINER_SECURITY,
                "volumeMounts": VOLUME_MOUNTS,
            }
        ],
        "volumes": volumes(SCRATCH),
    }
