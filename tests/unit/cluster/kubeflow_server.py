"""A server that answers as Kubeflow Pipelines does."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from lipt.version import __version__
from tests.unit.cluster.servers import JsonHandler

_API = "/apis/v2beta1"

_LABELS = {"podMetadata": {"labels": {"app.kubernetes.io/version": __version__}}}
#: Of a pipeline that this version compiled.
_OURS = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": {"exec-dispatch": _LABELS}}}}}


class Server(JsonHandler):
    """Keeps the runs that are posted, or loses them as well; the connection breaks before a POST is answered."""

    runs: list[dict[str, Any]]
    specs: dict[str, dict[str, Any]]
    """Version -> its pipeline."""
    posts: int
    keeps: bool
    refusals: list[tuple[int, dict[str, Any]]]
    """Answers that come before the true ones."""
    profile = ""
    """The namespace that has the pipeline; empty: all have it."""
    asked_with: list[str | None]
    """The credentials of each question."""

    def do_GET(self) -> None:
        if self.refusals:
            status, document = self.refusals.pop(0)
            self.answer(document, status)
            return
        self.asked_with.append(self.headers["Authorization"])
        url = urlsplit(self.path)
        path = url.path.removeprefix(_API)
        if path == "/pipelines" and self.profile and parse_qs(url.query).get("namespace") != [self.profile]:
            self.answer({})
            return
        version = {
            "pipeline_id": "p1",
            "pipeline_version_id": "v1",
            "pipeline_spec": {"pipeline_spec": {"root": {"inputDefinitions": {}}}, "platform_spec": _OURS},
        }
        versions = {f"/pipelines/p1/versions/{name}": {"pipeline_spec": spec} for name, spec in self.specs.items()}
        self.answer(
            versions.get(path)
            or {
                "/pipelines": {"pipelines": [{"pipeline_id": "p1", "display_name": "lipt"}], "total_size": 1},
                "/pipelines/p1/versions": {"pipeline_versions": [version], "total_size": 1},
                "/experiments": {"experiments": [{"experiment_id": "e1", "display_name": "lipt"}], "total_size": 1},
                "/runs": {"runs": [{"run_id": "another", "display_name": "tiny"}, *self.runs]},
            }.get(path, next((run for run in self.runs if path == f"/runs/{run['run_id']}"), {}))
        )

    def do_POST(self) -> None:
        body = self.body()
        type(self).posts += 1
        if self.keeps:
            self.runs.append(body | {"run_id": "ours"})
        self.close_connection = True
