"""The client of the Kubernetes API against a server that loses an answer."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lipt.adapters.cluster import api, argo
from lipt.adapters.cluster.api import Cluster, MissingError, RefusedError, drawn_name
from lipt.adapters.cluster.argo import Argo
from lipt.adapters.cluster.patience import PATIENCE_S, Patience, UnreachableError
from lipt.config import parse_config
from lipt.errors import LiptError, RunError, TransientError, UsageError
from lipt.version import __version__
from tests.conftest import free_port
from tests.unit.cluster.answers import Answers
from tests.unit.cluster.servers import JsonHandler, Login, serving, use_cluster

JOBS = "/apis/batch/v1/namespaces/vision/jobs"
WORKFLOWS = "/apis/argoproj.io/v1alpha1/namespaces/vision/workflows"


class Server(JsonHandler):
    """Keeps what is posted; the connection breaks before the first POST is answered."""

    objects: dict[str, dict[str, Any]]
    posts: int

    def do_GET(self) -> None:
        template = {"metadata": {"labels": {"app.kubernetes.io/version": __version__}}}
        found = template if self.path.endswith("/workflowtemplates/lipt") else self.objects.get(self.path)
        self.answer(found or {"message": "not found"}, 200 if found else 404)

    def do_POST(self) -> None:
        body = self.body()
        path = f"{self.path}/{body['metadata']['name']}"
        type(self).posts += 1
        if path in self.objects:
            self.answer({"message": "already exists", "reason": "AlreadyExists"}, 409)
            return
        self.objects[path] = body
        self.close_connection = True


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Server]]:
    """Running, and named by the kubeconfig."""
    handler = type("Handler", (Server,), {"objects": {}, "posts": 0})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        yield handler


def test_what_was_made_by_a_call_whose_answer_was_lost_is_found(server: type[Server]) -> None:
    job = {"kind": "Job", "metadata": {"name": "ours", "labels": {"made": "once"}}}
    cluster = Cluster(patience_s=20)
    assert cluster.create(JOBS, job) == job
    assert server.posts == 2  # the second was refused
    assert cluster.get(f"{JOBS}/ours") == job
    with pytest.raises(MissingError):
        cluster.get(f"{JOBS}/another")


def test_a_workflow_whose_answer_was_lost_is_not_started_again(server: type[Server]) -> None:
    run = Argo(Cluster(patience_s=20), "vision").submit("tiny", {"data": "digits"})
    assert server.posts == 2  # the second was refused
    assert list(server.objects) == [f"{WORKFLOWS}/{run}"]
    assert run.startswith("tiny-")


def test_another_workflow_of_the_name_that_was_drawn_is_not_taken_for_ours(
    server: type[Server], monkeypatch: Any
) -> None:
    names = iter(["tiny-aaaaa", "tiny-bbbbb"])
    monkeypatch.setattr(argo, "drawn_name", lambda _base: next(names))
    other = {"metadata": {"name": "tiny-aaaaa", "annotations": {argo.SUBMISSION: "another"}}}
    server.objects[f"{WORKFLOWS}/tiny-aaaaa"] = other
    assert Argo(Cluster(patience_s=20), "vision").submit("tiny", {}) == "tiny-bbbbb"
    assert server.objects[f"{WORKFLOWS}/tiny-aaaaa"] == other


def test_names_are_not_drawn_without_end(server: type[Server], monkeypatch: Any) -> None:
    names = ["tiny-aaaaa", "tiny-bbbbb", "tiny-ccccc"]
    drawn = iter(names)
    monkeypatch.setattr(argo, "drawn_name", lambda _base: next(drawn))
    for name in names:  # as an admission webhook leaves them that drops annotations
        server.objects[f"{WORKFLOWS}/{name}"] = {"metadata": {"name": name}}
    with pytest.raises(RunError, match="tiny-aaaaa, tiny-bbbbb, tiny-ccccc in vision lack the annotation"):
        Argo(Cluster(patience_s=20), "vision").submit("tiny", {})


def test_drawn_names_are_valid_and_differ() -> None:
    longest = parse_config({"name": "a" * 63}).name
    names = {drawn_name(longest) for _ in range(50)} | {drawn_name("tiny") for _ in range(50)}
    assert len(names) == 100
    assert all(len(name) <= 63 and re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) for name in names)


def test_the_last_attempt_of_a_box_has_the_reason() -> None:
    whole = {"displayName": "merge", "type": "Retry", "phase": "Error", "message": "No more retries left"}
    lost = {"displayName": "merge(0)", "type": "Pod", "startedAt": "2026-01-02T03:04:05Z", "message": "evicted"}
    ended = {"displayName": "merge(1)", "type": "Pod", "startedAt": "2026-01-02T03:05:05Z", "message": "no quorum"}
    nodes = {str(at): node for at, node in enumerate((ended, whole, lost))}
    workflow = {"status": {"phase": "Failed", "nodes": nodes}, "spec": {}}
    state = Argo(Answers({f"{WORKFLOWS}/tiny": workflow}), "vision").state("tiny")
    assert [box.phase for box in state.boxes] == ["Skipped", "Skipped", "Failed", "Skipped", "Skipped"]
    assert state.boxes[2].message == "no quorum"
    assert state.over
    for found in (whole, ended):  # an attempt that succeeds after one that did not
        found |= {"phase": "Succeeded", "message": ""}
    state = Argo(Answers({f"{WORKFLOWS}/tiny": workflow}), "vision").state("tiny")
    assert (state.boxes[2].phase, state.boxes[2].message) == ("Succeeded", "")


def test_a_box_that_is_repeated_has_the_reason_of_the_attempt_before_as_such() -> None:
    whole = {"displayName": "merge", "type": "Retry", "phase": "Running"}
    pod = {"type": "Pod", "phase": "Running"}
    lost = pod | {"displayName": "merge(0)", "startedAt": "2026-01-02T03:04:05Z", "message": "pod deleted"}
    newer = pod | {"displayName": "merge(1)", "startedAt": "2026-01-02T03:05:05Z"}

    def message(*nodes: dict[str, Any]) -> str:
        workflow = {"status": {"phase": "Running", "nodes": dict(enumerate(nodes))}, "spec": {}}
        return Argo(Answers({f"{WORKFLOWS}/tiny": workflow}), "vision").state("tiny").boxes[2].message

    assert message(whole, lost) == "pod deleted"
    assert message(newer, whole, lost) == "attempt 2 (before: pod deleted)"
    assert message(newer | {"message": "PodInitializing"}, whole, lost) == "attempt 2 (before: pod deleted)"
    waits = {"phase": "Pending", "message": "Unschedulable: 0/3 nodes are available"}
    assert message(newer | waits, whole, lost) == waits["message"]


class Restarting(JsonHandler):
    """Answers the first call; then it wants another token, or does not know the roles for a moment."""

    calls: list[str]
    then: int

    def do_GET(self) -> None:
        self.calls.append(self.headers.get("Authorization", ""))
        if len(self.calls) == 1 or (self.then == 401 and self.calls[-1] == "Bearer new") or len(self.calls) > 3:
            self.answer({"kind": "Status"})
        else:
            self.answer({"message": 'pods is forbidden: User "x" cannot list: RBAC: role "y" not found'}, self.then)


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_were_accepted_are_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    handler = type("Handler", (Restarting,), {"calls": [], "then": status})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        config = tmp_path / "config"
        named = yaml.safe_load(config.read_text())
        named["users"][0]["user"] = {"token": "old"}
        config.write_text(yaml.safe_dump(named))
        cluster = Cluster(patience_s=30)
        assert cluster.get("/version") == {"kind": "Status"}
        named["users"][0]["user"] = {"token": "new"}
        config.write_text(yaml.safe_dump(named))
        assert cluster.get("/version") == {"kind": "Status"}
    assert handler.calls[:2] == ["Bearer old"] * 2
    assert handler.calls[2] == "Bearer new"


def test_credentials_that_were_never_accepted_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = type("Handler", (Restarting,), {"calls": ["before"], "then": 401})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        with pytest.raises(UsageError, match="does not accept your credentials"):
            Cluster(patience_s=30).get("/version")
    assert len(handler.calls) == 2


def test_a_run_that_is_suspended_says_so_and_how_it_goes_on() -> None:
    """Its phase stays `Running`, so who waits for it would never learn why."""

    def state(phase: str, message: str = "") -> str:
        workflow = {"status": {"phase": phase, "message": message}, "spec": {"suspend": True}}
        return Argo(Answers({f"{WORKFLOWS}/tiny": workflow}), "vision").state("tiny").message

    remedy = '`kubectl -n vision patch workflow tiny --type=merge -p \'{"spec": {"suspend": false}}\'`'
    assert state("Running") == f"suspended, so no further box starts -> Resume in Argo's UI, or {remedy}"
    assert state("Failed", "no quorum") == "no quorum"
    assert state("Succeeded") == ""


def test_a_run_that_waits_at_a_step_of_its_own_says_so() -> None:
    """Somebody has added a step to the pipeline at which a person must agree."""
    node = {"displayName": "agree", "type": "Suspend", "phase": "Running"}
    workflow = {"status": {"phase": "Running", "nodes": {"1": node}}, "spec": {}}
    state = Argo(Answers({f"{WORKFLOWS}/tiny": workflow}), "vision").state("tiny")
    assert state.suspended
    assert state.message == (
        "suspended at agree, so no further box starts -> Resume in Argo's UI, or `argo -n vision resume tiny`"
    )


def test_a_run_that_argo_has_deleted_leaves_its_results() -> None:
    for namespace in ({}, RefusedError("you may not see namespaces")):
        with pytest.raises(MissingError) as error:
            Argo(Answers({"/api/v1/namespaces/vision": namespace}), "vision").state("tiny")
        assert error.value.message == "namespace vision has no run tiny"
        assert "lipt report WORKSPACE/reports/RUN" in error.value.remedy
    with pytest.raises(MissingError, match="the cluster has no namespace vision"):
        Argo(Answers(), "vision").state("tiny")


def test_a_box_of_a_run_that_was_terminated_no_longer_runs() -> None:
    """Argo leaves its node as it was."""
    nodes = {"0": {"displayName": "merge", "type": "Retry", "phase": "Running"}}
    workflow = {"status": {"phase": "Failed", "nodes": nodes}, "spec": {"shutdown": "Terminate"}}
    state = Argo(Answers({f"{WORKFLOWS}/tiny": workflow}), "vision").state("tiny")
    assert [box.phase for box in state.boxes] == ["Skipped", "Skipped", "Failed", "Skipped", "Skipped"]


def test_an_address_that_never_answered_is_given_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "FIRST_ANSWER_S", 0.1)
    use_cluster(f"http://127.0.0.1:{free_port()}", tmp_path, monkeypatch)
    started = time.monotonic()
    with pytest.raises(TransientError, match="is unreachable"):
        Cluster().get(JOBS)
    assert time.monotonic() - started < PATIENCE_S / 4


def test_a_server_that_is_no_kubernetes_api_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Login):
        def do_POST(self) -> None:
            self.body()
            self.answer_text("no", 405)

    with serving(Other) as address:
        use_cluster(address, tmp_path, monkeypatch)
        with pytest.raises(UsageError, match="does not answer like a Kubernetes API"):
            Cluster().get(JOBS)
        started = time.monotonic()
        with pytest.raises(RunError, match=rf"answers 405 to POST {JOBS}"):
            Cluster(patience_s=60).create(JOBS, {"metadata": {"name": "ours"}})
        assert time.monotonic() - started < 20


def test_one_that_has_answered_is_given_time() -> None:
    """Even if its answer was that it cannot answer now."""
    said: list[LiptError] = [TransientError("503")] + [UnreachableError("nothing")] * 3

    def call() -> str:
        if said:
            raise said.pop(0)
        return "answer"

    assert Patience(0, 20)(call) == "answer"
    said.append(UnreachableError("nothing"))
    with pytest.raises(UnreachableError):
        Patience(0, 20)(call)


def test_a_conflict_over_a_quota_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API says 409 to it, as to a name that exists."""

    class Conflicting(JsonHandler):
        posts = 0

        def do_POST(self) -> None:
            type(self).posts += 1
            body = self.body()
            told = {"message": 'Operation cannot be fulfilled on resourcequotas "q"', "reason": "Conflict"}
            self.answer(*((told, 409) if self.posts == 1 else (body,)))

    with serving(Conflicting) as address:
        use_cluster(address, tmp_path, monkeypatch)
        job = {"kind": "Job", "metadata": {"name": "ours"}}
        assert Cluster(patience_s=20).create(JOBS, job) == job
    assert Conflicting.posts == 2


def test_a_conflict_over_a_pod_that_others_change_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Removed(JsonHandler):
        deletes = 0

        def do_DELETE(self) -> None:
            type(self).deletes += 1
            told = {"message": "Precondition failed: UID in precondition", "reason": "Conflict"}
            self.answer(*((told, 409) if self.deletes == 1 else ({},)))

    with serving(Removed) as address:
        use_cluster(address, tmp_path, monkeypatch)
        Cluster(patience_s=20).delete("/api/v1/namespaces/vision/pods/p")
    assert Removed.deletes == 2
