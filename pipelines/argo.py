"""The pipeline `lipt` for Argo Workflows without Kubeflow: a WorkflowTemplate that `kubectl` can apply.

Parameters (names, defaults, descriptions) are taken from the Kubeflow pipeline. Boxes and their order are repeated
here; a test compares them with the compiled Kubeflow pipeline.
"""

from __future__ import annotations

import json
from typing import Any

from lipt.adapters.cluster.job_manifest import (
    CONTAINER_SECURITY,
    POD_SECURITY,
    SCRATCH,
    VOLUME_MOUNTS,
    environment,
    labels_of,
    unreachable,
    volumes,
)
from pipelines.lipt_pipeline import lipt

_HOUR = 3600
#: Of the containers that Argo adds to a box.
_EXECUTOR = {
    "securityContext": CONTAINER_SECURITY,
    "resources": {
        "requests": {"cpu": "10m", "memory": "64Mi"},
        "limits": {"cpu": "500m", "memory": "256Mi"},
    },
}
_GPUS_UNLESS_IN_PODS = "{{=asInt(workflow.parameters.train_nodes) > 1 ? '0' : workflow.parameters.gpus}}"
#: The tolerations of a box that waits: it does not stay on a node that does not answer.
_SOON_ELSEWHERE = f"{{{{=toJson(concat(fromJSON(workflow.parameters.tolerations), {json.dumps(unreachable())}))}}}}"


def workflow_template() -> dict[str, Any]:
    """The WorkflowTemplate."""
    parameters = lipt.component_spec.inputs
    spec, merged = "{{tasks.dispatch.outputs.result}}", "{{tasks.merge.outputs.result}}"
    settings = [text for name in sorted(parameters) for text in ("-p", f"{name}={_parameter(name)}")]
    tasks = {
        "dispatch": ([], {}),
        "pretrain": (["dispatch"], {"spec": spec}),
        "merge": (["pretrain"], {"spec": spec}),
        "select": (["merge"], {"spec": spec, "merged": merged}),
        "train": (["select"], {"spec": spec, "merged": merged, "subset": "{{tasks.select.outputs.result}}"}),
    }
    report = {"name": "report", "valueFrom": {"parameter": "{{tasks.train.outputs.result}}"}}
    verdict = {"name": "verdict", "valueFrom": {"parameter": "{{tasks.train.outputs.parameters.verdict}}"}}
    dag = {
        "name": "lipt",
        "dag": {"tasks": [_task(name, *entry) for name, entry in tasks.items()]},
        "outputs": {"parameters": [report, verdict]},
    }
    labels = labels_of("workflow")
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "WorkflowTemplate",
        "metadata": {"name": "lipt", "labels": labels},
        "spec": {
            "workflowMetadata": {"labels": labels},
            "podMetadata": {
                "labels": {name: value for name, value in labels.items() if not name.endswith("/component")},
                "annotations": {"sidecar.istio.io/inject": "false"},
            },
            "entrypoint": "lipt",
            "serviceAccountName": "lipt-run",
            # The user of all containers, Argo's too: they share files.
            "securityContext": POD_SECURITY | {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532},
            # Argo adds containers that have neither a security context nor resources by default. The Pod Security level
            # `restricted` would refuse every pod with such a container; so would a quota.
            "podSpecPatch": json.dumps(
                {
                    "initContainers": [{"name": "init", **_EXECUTOR}],
                    "containers": [{"name": "wait", **_EXECUTOR}],
                }
            ),
            # Otherwise a controller that archives logs wants the Secret of its store in the namespace of the runs, and
            # each box waits for it without end. Boxes have no artifacts of Argo's.
            "artifactRepositoryRef": {"configMap": "lipt-artifacts", "key": "none"},
            "ttlStrategy": {"secondsAfterCompletion": 7 * 24 * _HOUR},
            "arguments": {"parameters": [_argument(name, parameters[name]) for name in sorted(parameters)]},
            "volumes": volumes(SCRATCH),
            "templates": [
                dag,
                _box("dispatch", ["dispatch", *settings], [], trains=True),
                _box("pretrain", ["pretrain"], ["spec"], waits=True),
                _box("merge", ["merge"], ["spec"]),
                _box("select", ["select"], ["spec", "merged"]),
                _box("train", ["train"], ["spec", "merged", "subset"], trains=True, verdict=True),
            ],
        },
    }


def _parameter(name: str) -> str:
    return f"{{{{workflow.parameters.{name}}}}}"


def _argument(name: str, spec: Any) -> dict[str, str]:
    """A parameter of the workflow. Argo's parameters are text; one without a value is required."""
    argument = {"name": name, "description": spec.description}
    if spec.optional:
        argument["value"] = spec.default if isinstance(spec.default, str) else json.dumps(spec.default)
    return argument


def _task(name: str, after: list[str], arguments: dict[str, str]) -> dict[str, Any]:
    task: dict[str, Any] = {"name": name, "template": name}
    if after:
        task["dependencies"] = after
    if arguments:
        task["arguments"] = {"parameters": [{"name": key, "value": value} for key, value in arguments.items()]}
    return task


def _box(
    name: str,
    command: list[str],
    inputs: list[str],
    *,
    waits: bool = False,
    trains: bool = False,
    verdict: bool = False,
) -> dict[str, Any]:
    """A pod that runs `lipt box NAME`.

    Args:
        waits: the box only waits for its worker pods, so it gets little memory and no GPU.
        trains: the box trains by batches. With `train_nodes` above 1 its pods do, so it gets no GPU.
        verdict: the box writes the verdict, an output of the workflow, into a file.
    """
    args = ["box", *command]
    for key in inputs:
        value = f"{{{{inputs.parameters.{key}}}}}"
        args += [value] if key == "spec" else [f"--{key}={value}"]
    template: dict[str, Any] = {
        "name": name,
        "metadata": {"labels": {"app.kubernetes.io/component": name}},
        # Exit codes that are retried. 3: transient error; 143: stopped; -1: no exit code, the pod or node was lost;
        # 137: killed, for example evicted, but not out of memory. All other errors would occur again.
        "retryStrategy": {
            "limit": "10",  # a training on nodes that may be taken away goes on each time from its checkpoint
            "retryPolicy": "Always",
            "expression": 'lastRetry.status == "Error" || asInt(lastRetry.exitCode) in [-1, 3, 143] || '
            '(asInt(lastRetry.exitCode) == 137 && !(lastRetry.message contains "OOMKilled"))',
            "backoff": {"duration": "5s", "factor": "2", "cap": "1m"},
        },
        "podSpecPatch": _patch(waits, trains),
        "container": {
            "image": _parameter("image"),
            "command": ["lipt"],
            "args": args,
            "env": [
                *environment(_parameter("s3")),
                {"name": "LIPT_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "LIPT_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            ],
            "securityContext": CONTAINER_SECURITY,
            "volumeMounts": VOLUME_MOUNTS,
        },
    }
    if inputs:
        template["inputs"] = {"parameters": [{"name": key} for key in inputs]}
    if verdict:
        template["outputs"] = {"parameters": [{"name": "verdict", "valueFrom": {"path": "/tmp/verdict"}}]}
    return template


def _patch(waits: bool, trains: bool) -> str:
    """Resources and placement as a JSON patch, the only field where Argo accepts parameters for them."""
    gpus = _GPUS_UNLESS_IN_PODS if trains else _parameter("gpus")
    cpu, memory = ("100m", "1Gi") if waits else (_parameter("cpu"), _parameter("memory"))
    limits = f'{{"memory": "{memory}"' + ("}" if waits else f', "{_parameter("gpu_resource")}": "{gpus}"}}')
    resources = f'{{"requests": {{"cpu": "{cpu}", "memory": "{memory}"}}, "limits": {limits}}}'
    container = f'"containers": [{{"name": "main", "resources": {resources}}}]'
    tolerations = _SOON_ELSEWHERE if waits else _parameter("tolerations")
    return f'{{"tolerations": {tolerations}, "nodeSelector": {_parameter("node_selector")}, {container}}}'
