"""Runs on Kubeflow Pipelines, from the uploaded pipeline `lipt`."""

import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TypeVar

from lipt.adapters.cluster.api import Api, MissingError, drawn_name
from lipt.adapters.cluster.engine import BoxState, RunState, check_version
from lipt.errors import LiptError, RunError, TransientError, UsageError
from lipt.pipeline import BOXES
from lipt.version import __version__

T = TypeVar("T")
_PIPELINE = "lipt"
_UPLOAD = f"upload it: kfp pipeline create -p {_PIPELINE} pipelines/lipt.yaml (create-version if it exists)"
_PHASES = {"SUCCEEDED": "Succeeded", "FAILED": "Failed", "CANCELED": "Failed", "RUNNING": "Running"} | {
    "CANCELING": "Running",
    "PAUSED": "Running",
    "CACHED": "Succeeded",
    "SKIPPED": "Skipped",
}


class Kubeflow:
    """Kubeflow Pipelines, through the API server of the cluster or at KFP_ENDPOINT."""

    def __init__(self, cluster: Api, namespace: str) -> None:
        try:
            import kfp
        except ImportError:
            raise UsageError("the Kubeflow client is not installed", "pip install 'lipt[kubeflow]'") from None
        self.cluster, self.namespace = cluster, namespace
        self.client = _call(lambda: kfp.Client(host=os.environ.get("KFP_ENDPOINT"), namespace=namespace))

    def parameters(self) -> dict[str, Any]:
        _, spec = self._version()
        inputs = spec["root"]["inputDefinitions"]["parameters"]
        defaults = {name: entry.get("defaultValue") for name, entry in inputs.items()}
        check_version(
            str(defaults.get("image", "")).rpartition(":")[2],
            what=f"the newest version of pipeline {_PIPELINE}",
            remedy=f"kfp pipeline create-version -n {_PIPELINE} -v {__version__} pipelines/lipt.yaml",
        )
        return defaults

    def submit(self, name: str, parameters: Mapping[str, Any]) -> str:
        version, _ = self._version()
        experiment = _call(lambda: self.client.create_experiment(_PIPELINE, namespace=self.namespace))
        title = drawn_name(name)
        try:
            run = _call(
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
            found = _call(
                lambda: self.client.list_runs(sort_by="created_at desc", page_size=100, namespace=self.namespace)
            )
            return next((run for run in found.runs or [] if run.display_name == title), None)
        return None

    def state(self, run: str) -> RunState:
        found = _call(lambda: self.client.get_run(run))
        tasks = {task.display_name: task for task in (found.run_details.task_details or []) if found.run_details}
        boxes = []
        for box in BOXES:
            if (task := tasks.get(box)) is None:
                boxes.append(BoxState(name=box, phase="Pending"))
                continue
            started, finished = _iso(task.start_time), _iso(task.end_time)
            why = str(task.error.message) if task.error else ""
            boxes.append(BoxState(name=box, phase=_phase(task.state), started=started, finished=finished, message=why))
        spec = found.pipeline_spec or {}
        spec = spec.get("pipeline_spec", spec)
        inputs = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
        defaults = {name: entry.get("defaultValue") for name, entry in inputs.items()}
        return RunState(
            phase=_phase(found.state),
            parameters=defaults | dict((found.runtime_config and found.runtime_config.parameters) or {}),
            boxes=boxes,
            message=str(found.error.message) if found.error else "",
        )

    def cancel(self, run: str) -> None:
        _call(lambda: self.client.terminate_run(run))

    def workflow(self, run: str) -> str:
        path = f"/apis/argoproj.io/v1alpha1/namespaces/{self.namespace}/workflows"
        items = self.cluster.get(path, labelSelector=f"pipeline/runid={run}")["items"]
        if not items:
            raise MissingError(
                f"no workflow of run {run} in {self.namespace}", "check the handle; the workflow may have been deleted"
            )
        return str(items[0]["metadata"]["name"])

    def _version(self) -> tuple[Any, dict[str, Any]]:
        """The newest version of the pipeline, and its specification."""
        pipeline = _call(lambda: self.client.get_pipeline_id(_PIPELINE))
        if pipeline is None:
            raise UsageError(f"Kubeflow Pipelines has no pipeline {_PIPELINE!r}", _UPLOAD)
        versions = _call(
            lambda: self.client.list_pipeline_versions(pipeline, page_size=1, sort_by="created_at desc")
        ).pipeline_versions
        if not versions:
            raise UsageError(f"pipeline {_PIPELINE!r} has no version", _UPLOAD)
        spec = versions[0].pipeline_spec
        return versions[0], spec.get("pipeline_spec", spec)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the client. It prints links to stdout, which must carry only the result. It also logs a traceback for
    every attempt, although its final error says the same."""
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _call(function: Callable[[], T]) -> T:
    """Call the client silently; its errors become errors of lipt."""
    from kfp_server_api import ApiException
    from urllib3.exceptions import HTTPError

    try:
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")  # a hint about its versions
            return function()
    except ApiException as error:
        raise _translated(error) from None
    except (HTTPError, OSError) as error:
        raise TransientError(
            f"Kubeflow Pipelines is unreachable: {' '.join(str(error).split())}",
            "set KFP_ENDPOINT, or check the cluster",
        ) from None


def _translated(error: Any) -> LiptError:
    text = " ".join(str(error.body or error.reason).split())[:300]
    if error.status in (401, 403):
        return UsageError(f"Kubeflow Pipelines refuses: {text}", "log in, or grant the permission")
    if error.status == 404:
        return MissingError(f"Kubeflow Pipelines does not know it: {text}", "check the run's handle")
    if error.status == 400:
        return UsageError(f"Kubeflow Pipelines rejects it: {text}", "correct that value")
    if error.status >= 500:
        return TransientError(f"Kubeflow Pipelines answers {error.status}: {text}", "try again")
    return RunError(f"Kubeflow Pipelines answers {error.status}: {text}")


def _phase(state: str | None) -> str:
    return _PHASES.get(state or "", "Pending")


def _iso(time: Any) -> str | None:
    return time.isoformat() if time and time.year > 1970 else None
