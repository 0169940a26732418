"""Starting a run on Kubeflow Pipelines, against a server that loses the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from lipt.adapters.cluster.kubeflow import Kubeflow
from lipt.errors import TransientError
from tests.unit.cluster.answers import Answers
from tests.unit.cluster.servers import JsonHandler, serving

_API = "/apis/v2beta1"


class Server(JsonHandler):
    """Keeps the runs that are posted, or loses them as well; the connection breaks before a POST is answered."""

    runs: list[dict[str, Any]]
    posts: int
    keeps: bool

    def do_GET(self) -> None:
        path = urlsplit(self.path).path.removeprefix(_API)
        version = {
            "pipeline_id": "p1",
            "pipeline_version_id": "v1",
            "pipeline_spec": {"root": {"inputDefinitions": {}}},
        }
        self.answer(
            {
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
    handler = type("Handler", (Server,), {"runs": [], "posts": 0, "keeps": True})
    with serving(handler) as address:
        monkeypatch.setenv("KFP_ENDPOINT", address)
        yield handler


def test_a_run_whose_answer_was_lost_is_found_and_not_started_again(server: type[Server]) -> None:
    assert Kubeflow(Answers(), "vision").submit("tiny", {}) == "ours"
    assert server.posts == 1
    assert server.runs[0]["display_name"].startswith("tiny-")


def test_a_run_that_never_arrived_is_an_error(server: type[Server]) -> None:
    server.keeps = False
    with pytest.raises(TransientError, match="is unreachable"):
        Kubeflow(Answers(), "vision").submit("tiny", {})
    assert server.posts == 1


def test_boxes_without_a_task_are_pending(server: type[Server]) -> None:
    times = {"start_time": "2026-01-02T03:04:05Z", "end_time": "1970-01-01T00:00:00Z"}
    failed = {"display_name": "merge", "state": "FAILED", "error": {"message": "no quorum"}} | times
    details = {"task_details": [{"display_name": "dispatch", "state": "SUCCEEDED"}, failed]}
    server.runs.append({"run_id": "ours", "state": "FAILED", "run_details": details})
    state = Kubeflow(Answers(), "vision").state("ours")
    phases = [(box.name, box.phase) for box in state.boxes]
    assert phases[:3] == [("dispatch", "Succeeded"), ("pretrain", "Pending"), ("merge", "Failed")]
    assert state.boxes[2].message == "no quorum"
    assert str(state.boxes[2].started).startswith("2026-01-02T03:04:05")
    assert state.boxes[2].finished is None
    assert state.over
