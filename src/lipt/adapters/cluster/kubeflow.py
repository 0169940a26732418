"""Runs on Kubeflow Pipelines, from the uploaded pipeline `lipt`."""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from lipt.adapters.cluster.api import Cluster, MissingError, RefusedError, drawn_name
from lipt.adapters.cluster.engine import BoxState, RunState, check_version, repeated, said
from lipt.adapters.cluster.kubeflow_client import call, connect
from lipt.adapters.cluster.last_words import LastWords
from lipt.adapters.cluster.patience import FIRST_ANSWER_S, PATIENCE_S, Patience
from lipt.errors import TransientError, UsageError
from lipt.pipeline import BOXES
from lipt.version import __version__

T = TypeVar("T")
_PIPELINE = "lipt"
_NAMED = {"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": _PIPELINE}]}
_UPLOAD = f"upload it: kfp pipeline create -p {_PIPELINE} pipelines/lipt.yaml (create-version if it exists)"
_PHASES = {
    "SUCCEEDED": "Succeeded",
    "FAILED": "Failed",
    "CANCELED": "Failed",
    "RUNNING": "Running",
    "CANCELING": "Running",
    "PAUSED": "Running",
    "CACHED": "Succeeded",
    "SKIPPED": "Skipped",
}


class Kubeflow:
    """Kubeflow Pipelines: at KFP_ENDPOINT; in a notebook of Kubeflow at its usual address; else through the API server.

    Questions are repeated for `patience_s` seconds while Kubeflow Pipelines is unreachable (at most `FIRST_ANSWER_S`
    until it has answered once). Changes are not repeated: a lost answer does not tell whether they were made.
    """

    def __init__(self, cluster: Cluster, namespace: str, *, patience_s: float = PATIENCE_S) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._patience = Patience(FIRST_ANSWER_S, patience_s)
        self._specs: dict[tuple[str, str], dict[str, Any]] = {}
        self._last_words = LastWords(cluster, namespace)
        self.client = connect(cluster, namespace)

    def parameters(self) -> dict[str, Any]:
        _, spec = self._version()
        inputs = spec["root"]["inputDefinitions"]["parameters"]
        return {name: entry.get("defaultValue") for name, entry in inputs.items()}

    def submit(self, name: str, parameters: Mapping[str, Any]) -> str:
        version, _ = self._version()
        experiment = self._ask(lambda: self.client.create_experiment(_PIPELINE, namespace=self.namespace))
        title = drawn_name(name)
        try:
            run = call(
                lambda: self.client.run_pipeline(
                    experiment.experiment_id,
                    title,
                    params=dict(parameters),
                    pipeline_id=version.pipeline_id,
                    version_id=version.pipeline_version_id,
                )
            )
        except TransientError:  # not retried: the run may have started
            run = self._newest(title)
            if run is None:
                raise
        return str(run.run_id)

    def _newest(self, title: str) -> Any | None:
        """The run of that title among the latest. The title is drawn at random, so there is only one."""
        with suppress(TransientError):
            found = self._ask(
                lambda: self.client.list_runs(sort_by="created_at desc", page_size=100, namespace=self.namespace)
            )
            return next((run for run in found.runs or [] if run.display_name == title), None)
        return None

    def state(self, run: str) -> RunState:
        found = self._ask(lambda: self.client.get_run(run))
        phase = _phase(found.state)
        spec = self._spec(found)
        names = _boxes(spec)
        details = found.run_details  # None until the run starts
        tasks = {task.display_name: task for task in (details and details.task_details) or []}
        told = self._messages(run, names) if phase != "Succeeded" else {}
        boxes, over = [], phase in ("Succeeded", "Failed")
        for box in names:
            task = tasks.get(box)
            reached = "Skipped" if over and not (task and task.state) else _phase(task and task.state)
            started, finished = (_iso(task.start_time), _iso(task.end_time)) if task else (None, None)
            boxes.append(
                BoxState(name=box, phase=reached, started=started, finished=finished, message=told.get(box, ""))
            )
        inputs = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
        defaults = {name: entry.get("defaultValue") for name, entry in inputs.items()}
        return RunState(
            phase=phase,
            parameters=defaults | dict((found.runtime_config and found.runtime_config.parameters) or {}),
            boxes=boxes,
            message=told.get(None, ""),
        )

    def _messages(self, run: str, boxes: Collection[str]) -> dict[str | None, str]:
        """Box -> why its last pod failed or cannot start, or is repeated; None: why a pod of no box did. Kubeflow
        Pipelines does not say it, but the workflow does. Empty without the workflow, or without the right to see it."""
        try:
            workflow = self._workflow(run)
        except (MissingError, RefusedError):
            return {}
        if workflow.get("spec", {}).get("activeDeadlineSeconds") == 0:  # so KFP ends a workflow, and calls it FAILED
            return {None: "cancelled"}
        nodes = workflow.get("status", {}).get("nodes", {}).values()
        pods = sorted((node for node in nodes if node["type"] == "Pod"), key=lambda node: str(node.get("startedAt")))
        last = {_box_of(node["name"], boxes): node for node in pods}
        told = dict[str | None, str]()
        for box, newest in last.items():
            if newest["phase"] == "Succeeded":
                continue
            attempts = [node for node in pods if _step_of(node) == _step_of(newest)]
            failed = next((node for node in reversed(attempts) if said(node)), None)
            if failed is not None:
                why = self._last_words.of(str(workflow["metadata"]["name"]), failed)
                again = failed is not newest and newest["phase"] in ("Running", "Pending")
                told[box] = repeated(len(attempts), why) if again else why
        return told

    def cancel(self, run: str) -> None:
        if self._ask(lambda: self.client.get_run(run)).state != "CANCELING":  # it refuses to end a run twice
            call(lambda: self.client.terminate_run(run))

    def workflow(self, run: str) -> str:
        return str(self._workflow(run)["metadata"]["name"])

    def _workflow(self, run: str) -> dict[str, Any]:
        path = f"/apis/argoproj.io/v1alpha1/namespaces/{self.namespace}/workflows"
        items = self.cluster.get(path, labelSelector=f"pipeline/runid={run}")["items"]
        if not items:
            raise MissingError(
                f"no workflow of run {run} in {self.namespace}",
                "check the handle. A run that was just submitted has no workflow yet. A day after the end Kubeflow "
                "deletes it with its logs, but not the results: lipt ls WORKSPACE lists them, lipt report "
                "WORKSPACE/reports/RUN shows one",
            )
        workflow: dict[str, Any] = items[0]
        return workflow

    def _spec(self, run: Any) -> dict[str, Any]:
        """The pipeline of a run. A run that was started from an uploaded pipeline has only a reference to it."""
        spec = run.pipeline_spec
        if spec is None and (version := run.pipeline_version_reference):
            ids = version.pipeline_id, version.pipeline_version_id
            if ids not in self._specs:
                with suppress(MissingError):  # deleted since
                    self._specs[ids] = self._ask(lambda: self.client.get_pipeline_version(*ids)).pipeline_spec
            spec = self._specs.get(ids)
        found: dict[str, Any] = (spec or {}).get("pipeline_spec", spec or {})
        return found

    def _ask(self, question: Callable[[], T]) -> T:
        return self._patience(lambda: call(question))

    def _version(self) -> tuple[Any, dict[str, Any]]:
        """The newest version of the pipeline, and its specification.

        Raises:
            UsageError: there is none, or it is for another version of lipt.
        """
        pipeline = self._pipeline(self.namespace) or self._pipeline(None)  # of the profile, or of all
        if pipeline is None:
            raise UsageError(f"Kubeflow Pipelines has no pipeline {_PIPELINE!r}", _UPLOAD)
        versions = self._ask(
            lambda: self.client.list_pipeline_versions(pipeline, page_size=1, sort_by="created_at desc")
        ).pipeline_versions
        if not versions:
            raise UsageError(f"pipeline {_PIPELINE!r} has no version", _UPLOAD)
        whole = versions[0].pipeline_spec
        spec = whole.get("pipeline_spec", whole)
        check_version(
            _built_for(whole.get("platform_spec") or {}, spec),
            what=f"the newest version of pipeline {_PIPELINE}",
            remedy=f"kfp pipeline create-version -n {_PIPELINE} -v {__version__} pipelines/lipt.yaml",
        )
        return versions[0], spec

    def _pipeline(self, namespace: str | None) -> str | None:
        """The identifier of the pipeline; None: there is none. Without profiles the namespace does not count."""
        found = self._ask(lambda: self.client.list_pipelines(filter=json.dumps(_NAMED), namespace=namespace)).pipelines
        return str(found[0].pipeline_id) if found else None


def _built_for(platform: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """The version of lipt that compiled a pipeline: a label of its pods. Without it, the tag of the default image."""
    executors = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    for executor in executors.values():
        if found := executor.get("podMetadata", {}).get("labels", {}).get("app.kubernetes.io/version"):
            return str(found)
    inputs = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    image = inputs.get("image", {}).get("defaultValue", "")
    return str(image).partition("@")[0].rpartition(":")[2]


def _boxes(spec: Mapping[str, Any]) -> list[str]:
    """The boxes of a pipeline, from its specification; without it, those of `lipt`. `lipt-ingest` has another box."""
    names = [name.removeprefix("comp-") for name, part in spec.get("components", {}).items() if "executorLabel" in part]
    return names if set(names) - set(BOXES) else list(BOXES)


def _box_of(node: str, boxes: Collection[str]) -> str | None:
    """The box to which a node of a workflow belongs, by the name of the node; None: to none.

    Nodes are nested, `tiny(0).root(0).merge(0).executor(0)`. Before each box runs a driver,
    `tiny(0).root(0).merge-driver(0)`.
    """
    parts = [part.partition("(")[0].removesuffix("-driver") for part in node.split(".")]
    return next((part for part in reversed(parts) if part in boxes), None)


def _step_of(pod: dict[str, Any]) -> str:
    """What the attempts of a step have in common: the name of their node without its last number."""
    return str(pod["name"]).rpartition("(")[0]


def _phase(state: str | None) -> str:
    return _PHASES.get(state or "", "Pending")


def _iso(time: Any) -> str | None:
    return time.isoformat() if time and time.year > 1970 else None
