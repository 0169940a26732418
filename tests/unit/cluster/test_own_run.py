"""What a box takes over from its run: labels for its workers, and the news that somebody has ended it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from lipt.adapters.cluster import job_watch
from lipt.errors import Terminated
from tests.unit.cluster.installed import TEMPLATE
from tests.unit.cluster.job_server import PODS, Server, start
from tests.unit.cluster.servers import serving, use_cluster

WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "tiny-x", "uid": "2"}
PATH = "/apis/argoproj.io/v1alpha1/namespaces/vision/workflows/tiny-x"
#: As an overlay adds them to the delivered template.
DECLARED = yaml.safe_load("""
labels: {example.com/cost-center: vision, example.com/run: "{{workflow.name}}", kueue.x-k8s.io/queue-name: boxes}
annotations: {karpenter.sh/do-not-disrupt: "true"}
""")


class InAWorkflow(Server):
    """The box is one of a workflow, whose specification is in the status."""

    job: dict[str, Any]
    spec: dict[str, Any]

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        delivered = TEMPLATE["spec"]["podMetadata"]
        if path == PATH:
            merged = {"podMetadata": {kind: values | DECLARED[kind] for kind, values in delivered.items()}}
            self.answer({"spec": self.spec, "status": {"storedWorkflowTemplateSpec": merged}})
        elif path == f"{PODS}/box":
            own = {"app.kubernetes.io/component": "pretrain", "workflows.argoproj.io/workflow": "tiny-x"}
            labels = delivered["labels"] | DECLARED["labels"] | own | {"example.com/run": "tiny-x"}
            given = {"k8s.ovn.org/pod-networks": "10.0.0.7", "kubectl.kubernetes.io/default-container": "main"}
            annotations = delivered["annotations"] | DECLARED["annotations"] | given
            metadata = {"name": "box", "uid": "1", "labels": labels, "annotations": annotations}
            self.answer({"metadata": metadata | {"ownerReferences": [WORKFLOW]}})
        else:
            super().do_GET()

    def do_POST(self) -> None:
        body, self.body = self.body(), lambda: body  # type: ignore[method-assign]
        if body["kind"] == "Job":
            type(self).job = body
        super().do_POST()


def stop(_done: int, _total: int) -> None:
    raise Terminated


def stopped(spec: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The server after a box of such a workflow was stopped."""
    monkeypatch.setattr(job_watch, "_SHORTEST_S", 0.01)
    handler = type("Handler", (InAWorkflow,), {"asked": Counter(), "events": [], "spec": spec})
    with serving(handler) as address:
        use_cluster(address, folder, monkeypatch)
        with pytest.raises(Terminated):
            start(say=lambda _text: None, advance=stop)
    return handler


def test_workers_get_the_labels_that_the_workflow_gives_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that say which pod it is, nor what others wrote on the box: its address fits no other pod."""
    job = stopped({}, tmp_path, monkeypatch).job
    pod, given = job["spec"]["template"]["metadata"], {"example.com/cost-center": "vision", "example.com/run": "tiny-x"}
    for labels in (job["metadata"]["labels"], pod["labels"]):
        assert {name: value for name, value in labels.items() if name.startswith("example.com/")} == given
        assert "kueue.x-k8s.io/queue-name" not in labels  # the parameter `queue` is for workers
        assert labels["app.kubernetes.io/managed-by"] == "lipt"
    assert pod["annotations"] == {"karpenter.sh/do-not-disrupt": "true", "sidecar.istio.io/inject": "false"}
    assert job["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"


@pytest.mark.parametrize(
    ("spec", "deleted"),
    [({}, 0), ({"shutdown": "Terminate"}, 1), ({"activeDeadlineSeconds": 0}, 1)],
    ids=["its node is drained", "ended in Argo", "ended in Kubeflow"],
)
def test_the_job_of_a_run_that_was_ended_is_deleted_at_once(
    spec: dict[str, Any], deleted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its workers would hold their GPUs for ten minutes."""
    assert stopped(spec, tmp_path, monkeypatch).asked["deleted"] == deleted
