"""A server that answers as a cluster does on which Argo, Kubeflow Pipelines and LiPT are installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from lipt.version import __version__
from tests.unit.cluster.servers import JsonHandler

ROOT = Path(__file__).parents[3]
TEMPLATE = yaml.safe_load((ROOT / "manifests/base/workflowtemplate.yaml").read_text())
PIPELINE = next(yaml.safe_load_all((ROOT / "pipelines/lipt.yaml").read_text()))
_NAMED = {"display_name": "lipt", "created_at": "2026-01-01T00:00:00Z"}
_PIPELINE = _NAMED | {"pipeline_id": "p1"}
_VERSION = _PIPELINE | {"pipeline_version_id": "v1", "pipeline_spec": PIPELINE}
_RUN = _NAMED | {"run_id": "r1", "experiment_id": "e1"}


class Installed(JsonHandler):
    """Knows one pipeline, with one version. `sent`: what it was told to make or remove, as (METHOD path, body)."""

    sent: list[tuple[str, bytes]]

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        template = TEMPLATE | {"metadata": {"labels": {"app.kubernetes.io/version": __version__}}}
        answers: dict[str, dict[str, Any]] = {
            "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
            "/namespaces/NAMESPACE": {},
            "/namespaces/lipt": {},
            "/apis/argoproj.io/v1alpha1": {},
            "/workflowtemplates/lipt": template,
            "/pipelines": {"pipelines": [_PIPELINE], "total_size": 1},
            "/versions": {"pipeline_versions": [_VERSION], "total_size": 1},
            "/healthz": {"multi_user": False},
            "/runs/r1": _RUN,
            "/runs": {"runs": [], "total_size": 0},
            "/experiments": {"experiments": [], "total_size": 0},
        }
        document = next((answers[end] for end in answers if path.endswith(end)), None)
        if document is None:
            self.send_error(404)
        else:
            self.answer(document)

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.sent.append((f"POST {self.path}", body))
        if path.endswith("/pipelines/upload"):
            self.answer(_PIPELINE)
        elif path.endswith("/pipelines/upload_version"):
            self.answer(_VERSION)
        elif path.endswith("/experiments"):
            self.answer(_NAMED | {"experiment_id": "e1"})
        elif path.endswith("/runs"):
            self.answer(_RUN)
        elif path.endswith("reviews"):
            self.answer({"status": {"allowed": True}})
        else:
            made = json.loads(body)  # a Kubernetes object, as it was sent
            self.answer(made | {"metadata": {"name": "made-1"} | made["metadata"]})

    def do_DELETE(self) -> None:
        self.sent.append((f"DELETE {self.path}", b""))
        self.answer({})
