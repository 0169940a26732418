"""What LiPT says of a run on Kubeflow Pipelines, and why it failed."""

from __future__ import annotations

from typing import Any

import pytest

from lipt.adapters.cluster.admission import explained
from lipt.adapters.cluster.engine import repeated
from lipt.adapters.cluster.kubeflow import Kubeflow
from lipt.cli import main
from lipt.errors import TransientError
from tests.unit.cluster.answers import Answers
from tests.unit.cluster.kubeflow_server import Server

_WORKFLOWS = "/apis/argoproj.io/v1alpha1/namespaces/vision/workflows"


def _node(name: str, phase: str, message: str | None = None, started: str = "1") -> dict[str, Any]:
    return {"name": name, "type": "Pod", "phase": phase, "message": message, "startedAt": started}


_TIMES = {"start_time": "2026-01-02T03:04:05Z", "end_time": "1970-01-01T00:00:00Z"}
_FAILED = {
    "run_id": "ours",
    "state": "FAILED",
    "run_details": {
        "task_details": [
            {"display_name": "dispatch", "state": "SUCCEEDED"},
            {"display_name": "merge", "state": "FAILED"} | _TIMES,
            {"display_name": "select"} | _TIMES,
        ]
    },
}


def test_a_failed_run_names_the_reason_that_its_workflow_has(server: type[Server]) -> None:
    nodes = [
        _node("t(0).root(0).merge(0).executor(1)", "Failed", "no quorum", started="2"),
        _node("t(0).root(0).merge(0).executor(0)", "Error", "pod deleted"),
        _node("t(0).root(0).dispatch-driver(0)", "Succeeded", "was late"),
        _node("t(0).root-driver(0)", "Pending", "exceeded quota"),
    ]
    workflow = {"metadata": {"name": "t"}, "status": {"nodes": {str(i): node for i, node in enumerate(nodes)}}}
    cluster = Answers({_WORKFLOWS: {"items": [workflow]}})
    server.runs.append(_FAILED)
    state = Kubeflow(cluster, "vision").state("ours")
    assert [box.message for box in state.boxes] == ["", "", "no quorum", "", ""]
    assert state.message == "exceeded quota"


def test_a_box_that_is_repeated_shows_the_reason_of_the_attempt_before_as_such(server: type[Server]) -> None:
    nodes = [
        _node("t(0).root(0).dispatch-driver(0)", "Error", "pod deleted", started="1"),
        _node("t(0).root(0).dispatch-driver(1)", "Succeeded", started="2"),
        _node("t(0).root(0).dispatch(0).executor(0)", "Error", "pod deleted", started="3"),
        _node("t(0).root(0).dispatch(0).executor(1)", "Succeeded", started="4"),
        _node("t(0).root(0).merge-driver(0)", "Error", "pod deleted", started="5"),
        _node("t(0).root(0).merge-driver(1)", "Succeeded", started="6"),
        _node("t(0).root(0).merge(0).executor(0)", "Error", "node lost", started="7"),
        _node("t(0).root(0).merge(0).executor(1)", "Running", started="8"),
    ]
    workflow: dict[str, Any] = {"metadata": {"name": "t"}, "status": {}}
    workflow["status"]["nodes"] = {str(i): node for i, node in enumerate(nodes)}
    cluster = Answers({_WORKFLOWS: {"items": [workflow]}})
    server.runs.append({"run_id": "ours", "state": "RUNNING"})
    state = Kubeflow(cluster, "vision").state("ours")
    assert [box.message for box in state.boxes] == ["", "", "attempt 2 (before: node lost)", "", ""]
    newest = nodes[-1]
    for changes in ({"message": "PodInitializing"}, {"phase": "Pending", "startedAt": None}):
        workflow["status"]["nodes"]["7"] = newest | changes
        state = Kubeflow(cluster, "vision").state("ours")
        assert [box.message for box in state.boxes] == ["", "", "attempt 2 (before: node lost)", "", ""]
    waits = {"phase": "Pending", "message": "Unschedulable: 0/3 nodes are available"}
    workflow["status"]["nodes"]["7"] = newest | waits
    assert Kubeflow(cluster, "vision").state("ours").boxes[2].message == waits["message"]
    workflow["status"]["nodes"]["7"] = newest | {"phase": "Failed"}
    assert Kubeflow(cluster, "vision").state("ours").boxes[2].message == "node lost"
    workflow["status"]["nodes"]["7"] = newest | {"phase": "Succeeded"}
    assert not any(box.message for box in Kubeflow(cluster, "vision").state("ours").boxes)
    del workflow["status"]["nodes"]["6"], workflow["status"]["nodes"]["7"]  # its second driver has succeeded
    assert not any(box.message for box in Kubeflow(cluster, "vision").state("ours").boxes)


def test_the_refusal_of_the_attempt_before_is_over() -> None:
    refused = 'pods "t-merge-7" is forbidden: exceeded quota: q'
    assert explained(refused, "vision").startswith("1 pod is not admitted: exceeded quota: q -> ")
    assert explained(repeated(2, refused), "vision") == repeated(2, refused)


_DRIVER = """\
time="2026-11-24T03:02:57.809Z" level=info msg="capturing logs" argo=true
I1124 03:02:57.838765      14 main.go:67] Setting log level to: '1'
F1124 03:02:58.019000      14 main.go:79] KFP driver: driver.RootDAG(pipelineName=lipt) failed: no parameter fraction
time="2026-11-24T03:02:59.441Z" level=info msg="sub-process exited" argo=true error="<nil>"
"""
_BOX = """\
Traceback (most recent call last):
ModuleNotFoundError: No module named 'lipt'
F1124 03:05:19.000000      14 main.go:58] failed to execute component: exit status 1
"""


@pytest.mark.parametrize(
    ("name", "said", "log", "reason"),
    [
        (
            "t(0).root-driver(0)",
            "main: Error",
            _DRIVER,
            "KFP driver: driver.RootDAG(pipelineName=lipt) failed: no parameter fraction",
        ),
        ("t(0).root(0).merge-driver(0)", "main: Error (exit code 1)", _DRIVER.replace("no parameter", "x" * 600), None),
        (
            "t(0).root(0).merge(0).executor(0)",
            "main: Error (exit code 1)",
            _BOX,
            "ModuleNotFoundError: No module named 'lipt'",
        ),
        ("t(0).root-driver(0)", "main: Error", "", ""),
    ],
)
def test_a_failure_without_a_message_has_the_last_error_of_the_log(
    server: type[Server], name: str, said: str, log: str, reason: str | None
) -> None:
    node = _node(name, "Failed", said) | {"id": "t-1"}
    metadata = {"name": "t-driver-1", "annotations": {"workflows.argoproj.io/node-id": "t-1"}}
    ended = {"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    pods = "/api/v1/namespaces/vision/pods"
    cluster = Answers(
        {
            _WORKFLOWS: {"items": [{"metadata": {"name": "t"}, "status": {"nodes": {"0": node}}}]},
            pods: {"items": [{"metadata": metadata, "status": {"containerStatuses": [ended]}}]},
            f"{pods}/t-driver-1/log": log,
        }
    )
    server.runs.append(_FAILED)
    state = Kubeflow(cluster, "vision").state("ours")
    told = state.message or state.boxes[2].message
    if reason is None:  # a long one is cut at its beginning
        assert told.startswith("main: Error (exit code 1): … xxx")
        assert told.endswith("x fraction")
    else:
        assert told == f"main: Error (exit code 1){f': {reason}' if reason else ''}"
    cluster.documents[pods] = {"items": []}  # deleted since
    state = Kubeflow(cluster, "vision").state("ours")
    assert (state.message or state.boxes[2].message) == said


def test_the_log_of_a_failed_attempt_is_read_once(server: type[Server]) -> None:
    """`lipt submit --wait` asks for the state every few seconds, for as long as the next attempt takes."""
    name = "t(0).root(0).merge(0).executor"
    nodes = [
        _node(f"{name}(0)", "Failed", "main: Error (exit code 1)") | {"id": "t-1"},
        _node(f"{name}(1)", "Running", started="2") | {"id": "t-2"},
    ]
    workflow = {"metadata": {"name": "t"}, "status": {"nodes": dict(enumerate(nodes))}}
    metadata = [{"name": node["id"], "annotations": {"workflows.argoproj.io/node-id": node["id"]}} for node in nodes]
    pods = "/api/v1/namespaces/vision/pods"
    unreachable: dict[str, Any] = {_WORKFLOWS: {"items": [workflow]}, pods: TransientError("unreachable")}
    listed = {"items": [{"metadata": each, "status": {}} for each in metadata]}
    cluster = Answers(unreachable)
    server.runs.append({"run_id": "ours", "state": "RUNNING"})
    client = Kubeflow(cluster, "vision")

    def message() -> str:
        return client.state("ours").boxes[2].message

    assert message() == "attempt 2 (before: main: Error (exit code 1))"
    cluster.documents |= {pods: listed, f"{pods}/t-1/log": "first", f"{pods}/t-2/log": "second"}
    assert message() == "attempt 2 (before: main: Error (exit code 1): first)"
    for path in (pods, f"{pods}/t-1/log"):
        del cluster.documents[path]
    assert message() == "attempt 2 (before: main: Error (exit code 1): first)"
    nodes[1] |= {"phase": "Failed", "message": "main: Error (exit code 1)"}
    cluster.documents[pods] = listed
    workflow["status"] = {"nodes": dict(enumerate(nodes))}
    assert message() == "main: Error (exit code 1): second"


def test_a_cancelled_run_is_called_so(server: type[Server]) -> None:
    nodes = {"0": _node("t(0).root(0).merge(0).executor(0)", "Failed", "Step exceeded its deadline")}
    workflow = {"metadata": {"name": "t"}, "spec": {"activeDeadlineSeconds": 0}, "status": {"nodes": nodes}}
    server.runs.append(_FAILED)
    state = Kubeflow(Answers({_WORKFLOWS: {"items": [workflow]}}), "vision").state("ours")
    assert state.message == "cancelled"
    assert not any(box.message for box in state.boxes)


@pytest.mark.parametrize("more", [[], ["--follow"]], ids=" ".join)
def test_who_asks_for_the_logs_of_a_run_whose_workflow_is_gone_is_told_what_is_left(
    server: type[Server], more: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.runs.append(_FAILED)
    monkeypatch.setattr("lipt.cli.cluster.Cluster", lambda: Answers({_WORKFLOWS: {"items": []}}))
    with pytest.raises(SystemExit) as ended:
        main(["logs", "kubeflow/vision/ours", *more])
    assert ended.value.code == 1
    message, remedy = capsys.readouterr().err.splitlines()
    assert message == "lipt: no workflow of run ours in vision"
    assert "deletes it with its logs, but not the results: lipt ls WORKSPACE lists them" in remedy


def test_the_state_does_not_need_the_workflow(server: type[Server]) -> None:
    server.runs.append(_FAILED)
    state = Kubeflow(Answers(), "vision").state("ours")
    assert [box.phase for box in state.boxes] == ["Succeeded", "Skipped", "Failed", "Skipped", "Skipped"]
    assert str(state.boxes[2].started).startswith("2026-01-02T03:04:05")
    assert state.boxes[2].finished is None
    assert state.over


def test_a_run_of_an_uploaded_pipeline_has_that_pipelines_boxes_and_defaults(server: type[Server]) -> None:
    """Kubeflow Pipelines does not repeat the pipeline in such a run."""
    server.specs = {
        "v2": {
            "root": {"inputDefinitions": {"parameters": {"data": {"defaultValue": "digits"}, "store": {}}}},
            "components": {"comp-ingest": {"executorLabel": "exec-ingest"}, "comp-condition-2": {"dag": {}}},
        }
    }
    reference = {"pipeline_id": "p1", "pipeline_version_id": "v2"}
    server.runs.append({"run_id": "ours", "state": "RUNNING", "pipeline_version_reference": reference})
    state = Kubeflow(Answers(), "vision").state("ours")
    assert [(box.name, box.phase) for box in state.boxes] == [("ingest", "Pending")]
    assert state.parameters == {"data": "digits", "store": None}
