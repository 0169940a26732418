"""The pod of a box: image, resources, placement, credentials, retries."""

from __future__ import annotations

from typing import Any, TypeAlias

from kfp import kubernetes
from kfp.dsl import PipelineTask
from kfp.dsl.pipeline_channel import PipelineChannel

from lipt.adapters.cluster.job_manifest import labels_of
from lipt.metrics import VARIABLE

#: A parameter of the pipeline. While KFP compiles, a channel stands for its value.
Parameter: TypeAlias = str | int | dict[str, Any] | list[Any] | PipelineChannel


def as_pod(
    task: PipelineTask,
    *,
    image: Parameter,
    s3: Parameter,
    cpu: Parameter,
    memory: Parameter,
    gpus: Parameter | None = None,
    gpu_resource: Parameter | None = None,
    tolerations: Parameter | None = None,
    node_selector: Parameter | None = None,
    hours: int | None = None,
) -> PipelineTask:
    """Apply the pipeline's parameters to a task; returns it.

    Args:
        hours: the pod's deadline. None for a box that may wait while its worker pods are queued.
        gpus, gpu_resource: parameters of the pipeline; None for a box that uses no GPU.
        image, s3, cpu, memory, tolerations, node_selector: parameters of the pipeline.
    """
    task.set_container_image(image).set_cpu_request(cpu).set_memory_request(memory).set_memory_limit(memory)
    if gpus is not None:
        task.set_accelerator_type(gpu_resource).set_accelerator_limit(gpus)
    if tolerations is not None:
        kubernetes.add_toleration_json(task, tolerations)
        kubernetes.add_node_selector_json(task, node_selector)
    # KFP 2.17 does not count resources among a task's inputs. Inside a condition or a loop they would be missing, and
    # its driver would stop with "parent DAG does not have input parameter".
    resources = [cpu, memory, gpus, gpu_resource]
    task.register_pipeline_channels([value for value in resources if isinstance(value, PipelineChannel)])
    # KFP stores and shows parameters, so credentials come from a Secret and the endpoint from a ConfigMap, once per
    # namespace. Both are optional: without one the pod would never start, whereas lipt names the missing variable.
    secret = {"accesskey": "AWS_ACCESS_KEY_ID", "secretkey": "AWS_SECRET_ACCESS_KEY"}
    kubernetes.use_secret_as_env(task, s3, secret, optional=True)
    config_map = {
        "endpoint": "LIPT_S3_ENDPOINT",
        "region": "AWS_REGION",
        "retry_s": "LIPT_S3_RETRY_S",
        "metrics": VARIABLE,
    }
    kubernetes.use_config_map_as_env(task, s3, config_map, optional=True)
    # Without this, OpenMP threads spin endlessly and slow down other pods on the node.
    task.set_env_variable("GOMP_SPINCOUNT", "30000")
    # A box looks up its own pod by these names, to set itself as the owner of its worker pods.
    kubernetes.use_field_path_as_env(task, "LIPT_POD", "metadata.name")
    kubernetes.use_field_path_as_env(task, "LIPT_NAMESPACE", "metadata.namespace")
    for name, value in labels_of(task.name).items():  # network rules and `kubectl get pods -l` find the box by them
        kubernetes.add_pod_label(task, name, value)
    # The image says so too, but Pod Security `restricted` wants to read it in the pod, and KFP writes it for its own
    # pods alone. No user: OpenShift gives each namespace its own.
    kubernetes.set_security_context(task, run_as_non_root=True)
    kubernetes.empty_dir_mount(task, "shm", "/dev/shm", medium="Memory")
    kubernetes.empty_dir_mount(task, "tmp", "/tmp")
    if hours is not None:
        kubernetes.set_timeout(task, hours * 3600)
    task.set_retry(num_retries=2, backoff_duration="2s", backoff_factor=2.0)
    # The workspace already caches finished work, by settings, inputs and version of the package. KFP's cache ignores
    # these. It would return references into a workspace that was emptied, and keep a result with lost workers.
    return task.set_caching_options(False)
