"""Why a pod of a workflow failed, where the engine says only that it did.

The drivers of Kubeflow Pipelines leave no termination message, so Argo reports `main: Error (exit code 1)`. The reason
is the last error in the log of the pod.
"""

from __future__ import annotations

import re
from typing import Any

from lipt.adapters.cluster.api import Cluster
from lipt.adapters.cluster.printed import printed
from lipt.errors import LiptError, TransientError

_BARE = re.compile(r"main: Error( \(exit code \d+\))?")
#: Begins a line of the driver or the launcher that reports an error.
_HEAD = re.compile(r"[EF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\.go:\d+\] ")
#: The launcher's last line. The error is above it.
_OF_LAUNCHER = "failed to execute component: exit status"
_ID = "workflows.argoproj.io/node-id"
#: Begins the message of an engine. A box that names it as the reason of a worker says itself what to do.
_OUT_OF_MEMORY = re.compile(r"(main: )?OOMKilled\b")
_STOPPED = "(exit code 143)"
_LINES, _LONGEST = 100, 500


class LastWords:
    """Why nodes of workflows in a namespace failed. The log of a failed pod no longer changes, so it is read once."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._known: dict[str, str] = {}

    def of(self, workflow: str, node: dict[str, Any]) -> str:
        """The message of a failed node, with exit code and last error of its pod if the message has no reason.

        Unchanged if the pod is gone, or may not be read.
        """
        message = str(node["message"])
        if not _BARE.fullmatch(message):
            return message
        if node["id"] not in self._known:
            try:
                self._known[node["id"]] = self._read(workflow, node["id"], message)
            except TransientError:
                return message
            except LiptError:
                self._known[node["id"]] = message
        return self._known[node["id"]]

    def _read(self, workflow: str, node: str, message: str) -> str:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        pods = self.cluster.get(path, labelSelector=f"workflows.argoproj.io/workflow={workflow}")["items"]
        pod = next((pod for pod in pods if pod["metadata"].get("annotations", {}).get(_ID) == node), None)
        if pod is None:
            return message
        query = {"container": "main", "tailLines": str(_LINES)}
        log = self.cluster.request("GET", f"{path}/{pod['metadata']['name']}/log", query=query)
        return ": ".join(filter(None, [_with_code(message, pod), _last_error(log)]))


def what_then(message: str) -> str:
    """What to do about a box that failed, if its pod could not say so: it was stopped, or had too little memory."""
    if _OUT_OF_MEMORY.match(message):
        return " -> `lipt submit` again with more memory: -p memory=…"
    if message.endswith(_STOPPED):
        return " -> its pod was stopped (evicted, drained or deleted): `lipt submit` again continues it"
    return ""


def _with_code(message: str, pod: dict[str, Any]) -> str:
    states = [entry["state"] for entry in pod["status"].get("containerStatuses", []) if entry["name"] == "main"]
    code = next((state["terminated"].get("exitCode") for state in states if "terminated" in state), None)
    return message if code is None or "exit code" in message else f"{message} (exit code {code})"


def _last_error(log: str) -> str:
    """The last error in a log, else its last line. Of a very long one the end, where the cause stands."""
    lines = [line for line in printed(log).splitlines() if line.strip() and _OF_LAUNCHER not in line]
    errors = [line for line in lines if _HEAD.match(line)]
    (last,) = (errors or lines or [""])[-1:]
    text = " ".join(_HEAD.sub("", last).split())
    return text if len(text) <= _LONGEST else f"… {text[-_LONGEST:]}"
