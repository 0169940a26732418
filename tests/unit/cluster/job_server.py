"""An API server with one Job, which counts what it is asked; a box that starts the Job."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from lipt.adapters.cluster.fanout import ThisPod, run_job
from lipt.adapters.cluster.job_manifest import Pods
from tests.unit.cluster.servers import JsonHandler

PODS = "/api/v1/namespaces/vision/pods"


class Server(JsonHandler):
    """A Job of two pods: one is done after five looks, the other has failed after ten, and with it the Job."""

    asked: Counter[str]
    events: list[dict[str, Any]]
    completions = 2
    records = False
    """Whether the account may create Events."""
    box: str | None = None
    """The pod that waits for the Job."""
    deadline = 0
    suspended = False
    started: str | None = None
    ahead_s = 0
    """By how much the clock of the cluster is ahead of that of the box."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((timestamp or time.time()) + self.ahead_s)

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == f"{PODS}/box":
            self.answer({"metadata": {"name": "box", "uid": "1", "labels": {}}})
        elif path == PODS:
            self.asked["pods"] += 1
            self.answer({"items": self._pods()})
        elif self.asked["made"]:
            self.asked["job"] += 1
            metadata = {"annotations": {"lipt.dev/box": self.box}}
            spec = dict.fromkeys(("completions", "parallelism"), self.completions)
            spec |= {"activeDeadlineSeconds": self.deadline, "suspend": self.suspended}
            status = self._status() | ({"startTime": self.started} if self.started else {})
            self.answer({"metadata": metadata, "spec": spec, "status": status})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = self.body()
        if not self.path.endswith("/events"):
            self.asked["made"] += 1
            type(self).box = body["metadata"]["annotations"]["lipt.dev/box"]
            type(self).deadline = body["spec"]["activeDeadlineSeconds"]
        elif self.records:
            self.events.append(body)
        else:
            self.send_error(403)
            return
        self.answer(body)

    def do_PATCH(self) -> None:
        body = self.body()
        type(self).deadline = body["spec"]["activeDeadlineSeconds"]
        self.asked[f"deadline {self.deadline}"] += 1
        if "metadata" in body:
            type(self).box = body["metadata"]["annotations"]["lipt.dev/box"]
        self.answer({})

    def do_DELETE(self) -> None:
        self.asked["deleted"] += 1
        self.answer({})

    def _status(self) -> dict[str, Any]:
        if self.asked["job"] < 5:
            return {"active": 2}
        if self.asked["job"] < 10:
            return {"active": 1, "succeeded": 1, "completedIndexes": "0"}
        failed = [{"type": "Failed", "status": "True", "message": "too many"}]
        return {"succeeded": 1, "failed": 1, "completedIndexes": "0", "conditions": failed}

    def _pods(self) -> list[dict[str, Any]]:
        return [self._pod(0), self._pod(1)]

    def _pod(self, index: int) -> dict[str, Any]:
        over = self.asked["job"] >= (10 if index else 5)
        ended = {"exitCode": 1, "reason": "Error", "message": "lipt: pretrain[1]: the loss is nan"}
        status = {"phase": ("Failed" if index else "Succeeded") if over else "Running"}
        if over and index:
            status["containerStatuses"] = [{"state": {"terminated": ended}}]  # type: ignore[assignment]
        annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
        return {
            "metadata": {"name": f"p{index}", "annotations": annotations},
            "spec": {"nodeName": "n"},
            "status": status,
        }


def start(**job: Any) -> dict[int, str]:
    options = {"name": "pretrain", "arguments": ["box"], "completions": 2, "may_fail": 1} | job
    return run_job(ThisPod(namespace="vision", pod="box"), Pods(image="lipt:1"), **options)
