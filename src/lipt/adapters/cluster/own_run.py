"""The run that the pod of this process belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lipt.adapters.cluster.api import Cluster
from lipt.adapters.cluster.shared_metadata import SharedMetadata, of_pod


@dataclass(frozen=True, kw_only=True)
class OwnRun:
    """A run as one of its boxes sees it."""

    name: str
    namespace: str
    owner: dict[str, Any]
    """The owner of its objects, as an ownerReference: the workflow, so that deleting it deletes everything."""
    pod: dict[str, Any]
    """Metadata of the box's pod."""

    @classmethod
    def find(cls, cluster: Cluster, *, namespace: str, pod: str) -> OwnRun:
        """The run of a pod; without a workflow, the pod itself."""
        found = cluster.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["metadata"]
        name = found.get("labels", {}).get("workflows.argoproj.io/workflow", pod)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": found["uid"]}
        for reference in found.get("ownerReferences", [])[:1]:
            owner = {key: reference[key] for key in ("apiVersion", "kind", "name", "uid")}
        return cls(name=name, namespace=namespace, owner=owner, pod=found)

    def shared_metadata(self, cluster: Cluster) -> SharedMetadata:
        """What its workers get of the labels and annotations of this box."""
        workflow = self._workflow(cluster)
        if workflow is None:
            return SharedMetadata()
        # With a workflowTemplateRef, Argo puts the specification that it uses into the status.
        return of_pod(self.pod, workflow.get("status", {}).get("storedWorkflowTemplateSpec") or workflow["spec"])

    def is_stopped(self, cluster: Cluster) -> bool:
        """Whether somebody has ended the run, so that this box will not come back."""
        workflow = self._workflow(cluster)
        if workflow is None:
            return False
        spec = workflow["spec"]
        return bool(spec.get("shutdown")) or spec.get("activeDeadlineSeconds") == 0  # Argo's way, and Kubeflow's

    def _workflow(self, cluster: Cluster) -> dict[str, Any] | None:
        if self.owner["kind"] != "Workflow":
            return None
        api, name = self.owner["apiVersion"], self.owner["name"]
        return cluster.get(f"/apis/{api}/namespaces/{self.namespace}/workflows/{name}")
