"""An API server with fixed answers, for the checks of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from lipt.adapters.cluster.api import MissingError
from lipt.adapters.cluster.job_manifest import Pods
from lipt.adapters.cluster.preflight import Site
from lipt.errors import LiptError


class Answers:
    """An API server with fixed answers: path -> document or error; reviews go by verb, resource and user."""

    host = "https://cluster"
    proxy = None

    def __init__(
        self, documents: dict[str, Any] | None = None, *, denied: Callable[[dict[str, Any]], bool] = lambda _: False
    ) -> None:
        self.documents, self.denied = documents or {}, denied
        self.created: list[dict[str, Any]] = []
        self.deleted: list[str] = []

    def get(self, path: str, **_query: str) -> dict[str, Any]:
        answer = self.documents.get(path, MissingError(path))
        if isinstance(answer, LiptError):
            raise answer
        document: dict[str, Any] = answer
        return document

    def now(self) -> datetime:
        return datetime.now(UTC)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if body["kind"].endswith("Review"):
            if isinstance(error := self.documents.get(path), LiptError):
                raise error
            return {"status": {"allowed": not self.denied(body["spec"])}}
        self.created.append(body)
        return {"metadata": {"name": "lipt-doctor-x"}}

    def delete(self, path: str, **_options: Any) -> None:
        self.deleted.append(path)

    def request(self, method: str, path: str, **_options: Any) -> str:
        return str(self.documents[path])


def site(cluster: Answers, *, engine: str = "argo", **pods: Any) -> Site:
    return Site(cluster=cluster, engine=engine, namespace="vision", pods=Pods(image="lipt:1", **pods))
