"""Labels and annotations that the boxes of a run have and its workers get too.

A rule of a cluster may demand them of every pod: whom to bill, what a mesh or an autoscaler may do with it. An overlay
adds them to the `podMetadata` of the workflow, which Argo copies to the boxes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Prefixes of keys that say which pod it is, and differ between boxes and workers. The parameter `queue` gives workers
#: those of Kueue.
_OWN = (
    "app.kubernetes.io/",
    "kueue.x-k8s.io/",
    "lipt.dev/",
    "pipeline/",
    "pipelines.kubeflow.org/",
    "workflows.argoproj.io/",
)


@dataclass(frozen=True, kw_only=True)
class SharedMetadata:
    """Key -> value."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


def of_pod(pod: Mapping[str, Any], spec: Mapping[str, Any]) -> SharedMetadata:
    """What the `podMetadata` of a workflow gives its boxes.

    Only its keys: later others annotate a pod (its addresses, what a webhook has injected), which fits no other pod.

    Args:
        pod: metadata of a box. It has the values, in which Argo has replaced parameters.
        spec: specification of the workflow.
    """

    def found(kind: str) -> dict[str, str]:
        values = pod.get(kind, {})
        names = spec.get("podMetadata", {}).get(kind, {})
        return {name: values[name] for name in names if name in values and not name.startswith(_OWN)}

    return SharedMetadata(labels=found("labels"), annotations=found("annotations"))


def of_template(spec: Mapping[str, Any]) -> SharedMetadata:
    """The same without a box, of the specification of a WorkflowTemplate, and without values that have parameters."""
    declared: dict[str, dict[str, str]] = spec.get("podMetadata", {})
    fixed = {
        kind: {name: value for name, value in values.items() if "{{" not in value} for kind, values in declared.items()
    }
    return of_pod(fixed, spec)
