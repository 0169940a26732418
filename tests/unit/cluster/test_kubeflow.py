"""Starting a run on Kubeflow Pipelines, against a server that loses the answer."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from lipt.adapters.cluster.admission import explained
from lipt.adapters.cluster.engine import repeated
from lipt.adapters.cluster.kubeflow import Kubeflow
from lipt.cli import main
from lipt.errors import LiptError, TransientError, UsageError
from lipt.version import __version__
from tests.conftest import free_port
from tests.unit.cluster.answers import Answers
from tests.unit.cluster.servers import JsonHandler, Login, serving

_API = "/apis/v2beta1"
_WORKFLOWS = "/apis/argoproj.io/v1alpha1/namespaces/vision/workflows"


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


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Server]]:
    empty = {"runs": [], "specs": {}, "posts": 0, "keeps": True, "refusals": [], "asked_with": []}
    handler = type("Handler", (Server,), empty)
    with serving(handler) as address:
        monkeypatch.setenv("KFP_ENDPOINT", address)
        yield handler


def test_a_run_whose_answer_was_lost_is_found_and_not_started_again(server: type[Server]) -> None:
    assert Kubeflow(Answers(), "vision").submit("tiny", {}) == "ours"
    assert server.posts == 1
    assert server.runs[0]["display_name"].startswith("tiny-")


def test_a_pipeline_that_only_a_profile_has_is_found_with_the_token_of_a_notebook(
    server: type[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.profile = "vision"
    token = tmp_path / "token"
    token.write_text("of-monday")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(token))
    client = Kubeflow(Answers(), "vision")
    assert client.submit("tiny", {}) == "ours"
    token.write_text("of-tuesday")  # the kubelet renews it
    client.submit("tiny", {})
    assert list(dict.fromkeys(server.asked_with)) == ["Bearer of-monday", "Bearer of-tuesday"]
    with pytest.raises(UsageError, match="has no pipeline 'lipt'"):
        Kubeflow(Answers(), "speech").submit("tiny", {})


def test_a_token_of_the_user_is_sent(server: type[Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_EXISTING_TOKEN", "mine")
    Kubeflow(Answers(), "vision").submit("tiny", {})
    assert set(server.asked_with) == {"Bearer mine"}


def test_a_token_that_cannot_be_sent_is_in_no_message(server: type[Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_EXISTING_TOKEN", "mine\n")  # a Secret that was made from a file
    Kubeflow(Answers(), "vision").submit("tiny", {})
    assert set(server.asked_with) == {"Bearer mine"}
    monkeypatch.setenv("KFP_EXISTING_TOKEN", "secret\nsecret")
    with pytest.raises(UsageError, match="a character that cannot be sent\n  -> set KFP_EXISTING_TOKEN") as caught:
        Kubeflow(Answers(), "vision").submit("tiny", {})
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_run_that_never_arrived_is_an_error(server: type[Server]) -> None:
    server.keeps = False
    with pytest.raises(TransientError, match="is unreachable"):
        Kubeflow(Answers(), "vision", patience_s=1).submit("tiny", {})
    assert server.posts == 1


def test_an_address_where_nothing_listens_is_one_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipt.adapters.cluster.kubeflow.FIRST_ANSWER_S", 0.1)
    monkeypatch.setattr("lipt.adapters.cluster.kubeflow_client.FIRST_ANSWER_S", 0.1)
    monkeypatch.setenv("KFP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(TransientError) as caught:
        Kubeflow(Answers(), "vision").state("x")
    assert caught.value.message == "Kubeflow Pipelines is unreachable: [Errno 111] Connection refused"


_DOWN = (503, {"kind": "Status", "message": 'no endpoints available for service "ml-pipeline"', "code": 503})


def test_a_question_is_repeated_until_kubeflow_answers_again(server: type[Server]) -> None:
    server.runs.append({"run_id": "ours", "state": "RUNNING"})
    client = Kubeflow(Answers(), "vision", patience_s=20)
    server.refusals += [_DOWN, (429, {"message": "slower"})]
    assert client.state("ours").phase == "Running"
    assert not server.refusals


def test_a_lasting_silence_is_one_line_without_json(server: type[Server]) -> None:
    client = Kubeflow(Answers(), "vision", patience_s=0.5)
    server.refusals += [_DOWN] * 50
    with pytest.raises(TransientError) as raised:
        client.state("ours")
    assert raised.value.message == 'Kubeflow Pipelines answers 503: no endpoints available for service "ml-pipeline"'


class Silent(JsonHandler):
    """Takes every question and gives no answer, as a proxy does whose server hangs."""

    over: Event

    def do_GET(self) -> None:
        self.over.wait()


@pytest.mark.parametrize("namespace", ["vision", "kubeflow"], ids=["question", "in the constructor"])
def test_a_server_that_never_answers_is_unreachable(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipt.adapters.cluster.kubeflow_client._ANSWER_S", 0.1)
    for module in ("kubeflow", "kubeflow_client"):
        monkeypatch.setattr(f"lipt.adapters.cluster.{module}.FIRST_ANSWER_S", 0.1)
    handler = type("Handler", (Silent,), {"over": Event()})
    with serving(handler) as address:
        monkeypatch.setenv("KFP_ENDPOINT", address)
        try:
            with pytest.raises(TransientError, match=r"unreachable: Read timed out"):
                Kubeflow(Answers(), namespace).state("ours")
        finally:
            handler.over.set()


@pytest.mark.parametrize("namespace", ["vision", "kubeflow"])
def test_the_page_of_a_login_is_no_run(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client makes an empty run of it, which never ends."""
    with serving(Login) as address:
        monkeypatch.setenv("KFP_ENDPOINT", address)
        with pytest.raises(UsageError, match="answers with a page in place of data") as raised:
            Kubeflow(Answers(), namespace).state("ours")
        assert "KFP_EXISTING_TOKEN" in (raised.value.remedy or "")


@pytest.mark.parametrize(
    ("status", "document", "message"),
    [
        (
            404,
            {
                "code": 5,
                "message": "Failed to get a run: ResourceNotFoundError: Run ours not found",
                "details": [{"@type": "type.googleapis.com/google.rpc.Status", "message": "Run ours not found"}],
            },
            "Kubeflow Pipelines does not know it: Run ours not found\n"
            "  -> check the run's handle. The results of a run that was deleted stay: lipt ls WORKSPACE lists them",
        ),
        (
            404,
            {"kind": "Status", "message": 'services "ml-pipeline" not found', "details": {"kind": "services"}},
            'Kubeflow Pipelines cannot be reached through the cluster: services "ml-pipeline" not found\n'
            "  -> correct the namespace, or set KFP_ENDPOINT to the address of Kubeflow Pipelines",
        ),
        (400, {}, "Kubeflow Pipelines rejects it: Bad Request\n  -> correct that value"),
    ],
)
def test_an_error_is_the_message_of_the_answer(
    server: type[Server], status: int, document: dict[str, Any], message: str
) -> None:
    client = Kubeflow(Answers(), "vision")
    server.refusals.append((status, document))
    with pytest.raises(LiptError) as raised:
        client.state("ours")
    assert str(raised.value) == message


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


def test_a_run_that_is_being_stopped_is_not_stopped_again(server: type[Server]) -> None:
    server.runs.append({"run_id": "ours", "state": "CANCELING"})
    Kubeflow(Answers(), "vision").cancel("ours")
    assert server.posts == 0


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
