"""Runs on Argo Workflows, from the WorkflowTemplate `lipt` of a namespace."""

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import yaml

from lipt.adapters.cluster.api import Cluster, MissingError, RefusedError, drawn_name
from lipt.adapters.cluster.engine import BoxState, RunState, check_version, repeated, said
from lipt.adapters.cluster.job_manifest import labels_of
from lipt.adapters.cluster.shared_metadata import SharedMetadata, of_template
from lipt.errors import RunError, UsageError
from lipt.pipeline import BOXES

_INSTALL = "kubectl apply -k manifests/overlays/kind, or your own overlay (docs/howto/cluster-install.md)"
#: Annotation that identifies our workflow, if the answer to an attempt was lost.
SUBMISSION = "lipt.dev/submission"
#: Names to draw for a workflow. Two in a row that exist already are a sign of something else.
_DRAWS = 3
_PHASES = {"Error": "Failed", "": "Pending", "Omitted": "Skipped"}


class Argo:
    """Argo Workflows of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._path = f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}"

    def parameters(self) -> dict[str, Any]:
        return _values(self._template()["spec"]["arguments"]["parameters"])

    def _template(self) -> dict[str, Any]:
        """The installed pipeline.

        Raises:
            UsageError: there is none, or it is for another version of lipt.
        """
        try:
            template = self.cluster.get(f"{self._path}/workflowtemplates/lipt")
        except MissingError:
            self._check_installed()
            raise UsageError(f"namespace {self.namespace} has no WorkflowTemplate lipt", _INSTALL) from None
        found = template["metadata"].get("labels", {}).get("app.kubernetes.io/version", "")
        check_version(found, what=f"the WorkflowTemplate lipt in {self.namespace}", remedy=_INSTALL)
        return template

    def shared_metadata(self) -> SharedMetadata:
        """What the installed pipeline gives all pods of a run."""
        return of_template(self.cluster.get(f"{self._path}/workflowtemplates/lipt")["spec"])

    def added_containers(self) -> dict[str, list[dict[str, Any]]]:
        """What the installed pipeline sets of the containers that Argo adds to a box, by field of the pod."""
        patch = self.cluster.get(f"{self._path}/workflowtemplates/lipt")["spec"].get("podSpecPatch", "{}")
        try:
            fields = yaml.safe_load(patch)  # Argo reads JSON and YAML
            return {key: fields.get(key, []) for key in ("initContainers", "containers")}
        except (yaml.YAMLError, AttributeError):  # somebody has put variables of Argo into it
            return {}

    def _check_installed(self) -> None:
        """Raises UsageError if the cluster has no Argo Workflows. (Argo CD has the same API group.)"""
        found = dict[str, Any]()
        with suppress(MissingError):
            found = self.cluster.get("/apis/argoproj.io/v1alpha1")
        if not any(resource["name"] == "workflowtemplates" for resource in found.get("resources", [])):
            raise UsageError("the cluster has no Argo Workflows", "install it: manifests/README.md has the command")

    def submit(self, name: str, parameters: Mapping[str, Any]) -> str:
        self._template()  # it may have been replaced since a sweep began
        values = [
            {"name": key, "value": value if isinstance(value, str) else json.dumps(value)}
            for key, value in parameters.items()
        ]
        submission, drawn = secrets.token_hex(16), list[str]()
        while len(drawn) < _DRAWS:  # again if another workflow has the drawn name
            drawn.append(drawn_name(name))
            made = self.cluster.create(
                f"{self._path}/workflows",
                {
                    "apiVersion": "argoproj.io/v1alpha1",
                    "kind": "Workflow",
                    "metadata": {
                        "name": drawn[-1],
                        "labels": labels_of("workflow"),
                        "annotations": {SUBMISSION: submission},
                    },
                    "spec": {"workflowTemplateRef": {"name": "lipt"}, "arguments": {"parameters": values}},
                },
            )
            if made["metadata"].get("annotations", {}).get(SUBMISSION) == submission:
                return drawn[-1]
        raise RunError(
            f"the workflows {', '.join(drawn)} in {self.namespace} lack the annotation {SUBMISSION} of this submission",
            "let the admission webhooks of the namespace keep annotations, and delete these workflows",
        )

    def state(self, run: str) -> RunState:
        try:
            workflow = self.cluster.get(f"{self._path}/workflows/{run}")
        except MissingError:
            self._check_namespace()
            raise MissingError(
                f"namespace {self.namespace} has no run {run}",
                "check the handle. Argo deletes a run seven days after its end, but not its results: "
                "lipt ls WORKSPACE lists them, lipt report WORKSPACE/reports/RUN shows one",
            ) from None
        status = workflow.get("status", {})
        nodes, phase = status.get("nodes", {}).values(), _phase(status.get("phase", ""))
        unreached = "Skipped" if phase in ("Succeeded", "Failed") else "Pending"
        boxes = []
        for box in BOXES:
            tried = [node for node in nodes if node["displayName"].partition("(")[0] == box]
            whole: dict[str, Any] = next((node for node in tried if node["displayName"] == box), {})
            told = [node for node in tried if said(node)]
            # The last attempt has the reason; the node above it only says that there is no further attempt.
            told.sort(key=lambda node: (node["type"] == "Pod", _began(node)))
            reached = _phase(whole.get("phase", "")) if whole else unreached
            message = told[-1]["message"] if told and reached != "Succeeded" else ""  # else that of an earlier attempt
            attempts = sorted((node for node in tried if node["type"] == "Pod"), key=_began)
            if message and reached == "Running" and len(attempts) > 1 and not said(attempts[-1]):
                message = repeated(len(attempts), message)
            if phase in ("Succeeded", "Failed") and reached in ("Pending", "Running"):
                reached = "Failed"  # Argo does not complete the nodes of a run that was terminated
            started, finished = whole.get("startedAt"), whole.get("finishedAt")
            boxes.append(BoxState(name=box, phase=reached, started=started, finished=finished, message=message))
        suspended = "" if phase in ("Succeeded", "Failed") else self._suspended(run, workflow)
        template = status.get("storedWorkflowTemplateSpec", {}).get("arguments", {}).get("parameters", [])
        return RunState(
            phase=phase,
            parameters=_values(template) | _values(workflow["spec"].get("arguments", {}).get("parameters", [])),
            boxes=boxes,
            message=suspended or status.get("message", ""),
            suspended=bool(suspended),
        )

    def _check_namespace(self) -> None:
        """
        Raises:
            MissingError: the namespace does not exist.
        """
        try:
            self.cluster.get(f"/api/v1/namespaces/{self.namespace}")
        except MissingError:
            raise MissingError(
                f"the cluster has no namespace {self.namespace}",
                "check the handle, and which cluster you use: kubectl config current-context",
            ) from None
        except RefusedError:
            pass  # users of one namespace may not see namespaces

    def _suspended(self, run: str, workflow: dict[str, Any]) -> str:
        """That somebody has suspended the run, and how it goes on: its phase stays `Running`, with no further pods.

        Empty if the run is not suspended.
        """
        if workflow["spec"].get("suspend"):
            resumed = json.dumps({"spec": {"suspend": False}})
            where, command = "", f"kubectl -n {self.namespace} patch workflow {run} --type=merge -p '{resumed}'"
        else:
            nodes = workflow.get("status", {}).get("nodes", {}).values()
            steps = [node["displayName"] for node in nodes if (node["type"], node["phase"]) == ("Suspend", "Running")]
            if not steps:
                return ""
            where, command = f" at {steps[0]}", f"argo -n {self.namespace} resume {run}"
        return f"suspended{where}, so no further box starts -> Resume in Argo's UI, or `{command}`"

    def cancel(self, run: str) -> None:
        self.cluster.request("PATCH", f"{self._path}/workflows/{run}", body={"spec": {"shutdown": "Terminate"}})

    def workflow(self, run: str) -> str:
        return run


def _values(parameters: list[dict[str, Any]]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in parameters}


def _began(node: dict[str, Any]) -> str:
    return node.get("startedAt") or ""


def _phase(phase: str) -> str:
    return _PHASES.get(phase, phase)
