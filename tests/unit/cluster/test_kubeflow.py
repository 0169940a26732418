"""Starting a run on Kubeflow Pipelines, against a server that loses the answer."""

from __future__ import annotations

import traceback
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from lipt.adapters.cluster.kubeflow import Kubeflow
from lipt.errors import LiptError, TransientError, UsageError
from tests.conftest import free_port
from tests.unit.cluster.answers import Answers
from tests.unit.cluster.kubeflow_server import Server
from tests.unit.cluster.servers import JsonHandler, Login, serving


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


def test_a_run_that_is_being_stopped_is_not_stopped_again(server: type[Server]) -> None:
    server.runs.append({"run_id": "ours", "state": "CANCELING"})
    Kubeflow(Answers(), "vision").cancel("ours")
    assert server.posts == 0
