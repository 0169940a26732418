"""`lipt logs`, `status --wait`, `cancel` and `report` against a server that answers as Kubernetes with Argo does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.programs import lipt_here
from tests.unit.cluster.servers import JsonHandler, serving, use_cluster

RUN = "/apis/argoproj.io/v1alpha1/namespaces/vision/workflows/tiny-1"
HANDLE = "argo/vision/tiny-1"
LABEL = "workflows.argoproj.io/workflow=tiny-1"
WAITING = 'container "main" in pod "pod-a" is waiting to start: '


class Server(JsonHandler):
    """A run of one pod. It ends after `rounds` looks at its state, or when it is stopped."""

    rounds: int
    end: str
    parameters: dict[str, str]
    pod: dict[str, str]
    """Status of the pod; empty: it is gone."""
    log: str | None
    """None: a line, and a second one at the end of the run; empty: its node does not answer."""
    read: int
    """How often the log was asked for."""
    container = "main"
    change: dict[str, Any] | None
    deleted: list[str]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        mine, cls = parse_qs(url.query).get("labelSelector") == [LABEL], type(self)
        if url.path == RUN:
            cls.rounds -= 1
            parameters = [{"name": name, "value": value} for name, value in self.parameters.items()]
            phase = self.end if cls.rounds < 0 else "Running"
            self.answer({"spec": {"arguments": {"parameters": parameters}}, "status": {"phase": phase}})
        elif url.path.endswith("/jobs"):
            ended = {"conditions": [{"type": "Complete", "status": "True"}]}
            jobs = [{"metadata": {"name": "tiny-1-pretrain"}}, {"metadata": {"name": "tiny-1-group"}, "status": ended}]
            self.answer({"items": [job for job in jobs if job["metadata"]["name"] not in cls.deleted]})
        elif url.path.endswith("/log"):
            cls.read += 1
            timed = parse_qs(url.query).get("timestamps") == ["true"]
            stamps = ["2026-11-27T05:43:01.500000000Z ", "2026-11-27T05:43:03.500000000Z "] if timed else ["", ""]
            lines = ["first", "second"] if self.log is None else [self.log]
            if self.rounds > 0:
                lines = lines[:1]
            if self.log == "":
                self.send_error(500)
            elif self.log and self.log.startswith(WAITING):
                self.answer({"message": self.log, "reason": "BadRequest"}, 400)
            else:
                self.answer_text("".join(f"{stamp}{line}\n" for stamp, line in zip(stamps, lines, strict=False)))
        else:
            labels = {"app.kubernetes.io/component": "select"}
            metadata = {"name": "pod-a", "creationTimestamp": "1", "labels": labels}
            pod = {"metadata": metadata, "spec": {"containers": [{"name": self.container}]}, "status": self.pod}
            self.answer({"items": [pod] if mine and self.pod else []})

    def do_DELETE(self) -> None:
        self.deleted.append(self.path.rsplit("/", 1)[1])
        self.answer({})

    def do_PATCH(self) -> None:
        type(self).change = self.body() | {"path": self.path}
        self.answer({})


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Server]]:
    run = {"rounds": 1, "end": "Succeeded", "parameters": {}, "pod": {"phase": "Running"}, "log": None}
    handler = type("Handler", (Server,), run | {"change": None, "deleted": [], "read": 0})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield handler


def test_logs_are_followed_until_the_run_ends(server: type[Server]) -> None:
    server.rounds = 2
    ended = lipt_here("logs", "-f", HANDLE)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "== pod-a (select)\nfirst\nsecond\n"
    assert lipt_here("logs", "-f", HANDLE, "-o", "json").returncode == 2


def test_the_log_of_a_pod_that_has_ended_is_read_once(server: type[Server]) -> None:
    """A fan-out may have dozens of them."""
    server.rounds, server.pod, server.log = 2, {"phase": "Succeeded"}, "done"
    assert lipt_here("logs", "-f", HANDLE).stdout == "== pod-a (select)\ndone\n"
    assert server.read == 1


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("PodInitializing", "(no output yet)"),
        ("ContainerCreating", "(no output yet)"),
        ("image can't be pulled", "(is waiting to start: image can't be pulled)"),
    ],
)
def test_a_pod_that_is_about_to_start_is_no_problem(server: type[Server], why: str, said: str) -> None:
    """The API refuses to show its log."""
    server.rounds, server.log, server.pod = 1, WAITING + why, {"phase": "Pending"}
    assert lipt_here("logs", HANDLE).stdout == f"== pod-a (select)\n{said}\n"
    assert (lipt_here("logs", "-f", HANDLE).stdout == "") is (said == "(no output yet)")


def test_the_log_on_a_node_that_does_not_answer_is_asked_for_once(server: type[Server]) -> None:
    """The API server answers 500 then, which is retried for two minutes elsewhere."""
    server.log = ""
    ended = lipt_here("logs", HANDLE)
    assert ended.stdout == "== pod-a (select)\n(the Kubernetes API answers 500: 500 Internal Server Error)\n"
    assert server.read == 1


_ENGINE = 'time="2026-11-23T13:02:57.809Z" level=info msg="capturing logs" argo=true'


@pytest.mark.parametrize(
    ("phase", "said"), [("Succeeded", "(it has ended without output)"), ("Running", "(no output yet)")]
)
def test_a_pod_that_printed_nothing_says_so(server: type[Server], phase: str, said: str) -> None:
    server.pod, server.log = {"phase": phase}, _ENGINE
    assert lipt_here("logs", HANDLE).stdout == f"== pod-a (select)\n{said}\n"
    assert json.loads(lipt_here("logs", HANDLE, "-o", "json").stdout) == [{"box": "select", "pod": "pod-a", "log": ""}]


def test_a_pod_of_a_workflow_that_is_not_ours_has_no_log_of_ours(server: type[Server]) -> None:
    server.container = "theirs"
    ended = lipt_here("logs", HANDLE)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "has no logs" in ended.stderr


@pytest.mark.parametrize(
    ("rounds", "why"), [(0, "its pods were deleted, or none has started"), (9, "no pod has started yet")]
)
def test_a_run_without_pods_has_no_logs(server: type[Server], rounds: int, why: str) -> None:
    server.rounds, server.pod = rounds, {}
    ended = lipt_here("logs", HANDLE)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == f"lipt: {HANDLE} has no logs: {why}\n  -> lipt status {HANDLE} shows the boxes\n"
    assert f"box merge of {HANDLE} has no logs: {why}" in lipt_here("logs", HANDLE, "--box", "merge").stderr


def test_status_waits_for_the_end(server: type[Server]) -> None:
    server.rounds = 2
    assert lipt_here("status", HANDLE, "--wait").stdout.splitlines()[-1] == "Succeeded"
    assert server.rounds == -1


def test_cancel_stops_a_run_that_has_not_ended(server: type[Server]) -> None:
    assert lipt_here("cancel", HANDLE).stdout == f"{HANDLE} is being stopped\n"
    assert server.change == {"spec": {"shutdown": "Terminate"}, "path": RUN}
    assert server.deleted == ["tiny-1-pretrain"]  # its workers, too: they would outlive its boxes
    server.change = None
    assert lipt_here("cancel", HANDLE).stdout == f"{HANDLE} has ended already: Succeeded\n"
    server.deleted.clear()  # a box that was killed leaves its workers
    assert lipt_here("cancel", HANDLE).stdout == (
        f"{HANDLE} has ended already: Succeeded; its Job tiny-1-pretrain was still running, and is stopped\n"
    )
    assert server.deleted == ["tiny-1-pretrain"]
    assert server.change is None


@pytest.mark.parametrize(
    ("rounds", "end", "why", "remedy"),
    [
        (1, "", "has no report yet: it has not ended", "wait for it: lipt status argo/vision/tiny-1 --wait"),
        (0, "Failed", "failed before it wrote a report", "lipt status argo/vision/tiny-1 gives the reason"),
        (0, "Succeeded", "has succeeded, but {} has no report of it", "it was removed, LIPT_S3_ENDPOINT leads to"),
    ],
)
def test_a_run_without_a_report(
    server: type[Server], tmp_path: Path, rounds: int, end: str, why: str, remedy: str
) -> None:
    server.rounds, server.end, server.parameters = rounds, end, {"workspace": str(tmp_path / "runs")}
    ended = lipt_here("report", HANDLE)
    said, todo = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert said == f"lipt: {HANDLE} {why.format((tmp_path / 'runs').as_uri())}"
    assert todo.startswith(f"  -> {remedy}")


def test_a_run_of_another_pipeline_has_no_report(server: type[Server]) -> None:
    server.rounds, server.parameters = 0, {"message": "hello"}
    ended = lipt_here("report", HANDLE)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"lipt: {HANDLE} writes no report: it is no run of the pipelines lipt or")


def test_a_report_that_is_not_there_is_no_reason_to_run(tmp_path: Path) -> None:
    ended = lipt_here("report", f"{tmp_path}/my runs/reports/tiny-1")
    assert ended.returncode == 1
    assert f"name one of those that lipt ls '{tmp_path}/my runs' lists" in ended.stderr
