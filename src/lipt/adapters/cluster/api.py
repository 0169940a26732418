"""The Kubernetes API: credentials, and its errors as errors of lipt."""

import json
import re
import secrets
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from lipt.adapters.cluster import kubeconfig
from lipt.adapters.cluster.admission import reason_of, remedy_of
from lipt.adapters.cluster.patience import FIRST_ANSWER_S, PATIENCE_S, Patience, UnreachableError
from lipt.adapters.tls import stays
from lipt.errors import LiptError, RunError, TransientError, UsageError

#: Seconds within which a connection must stand.
_CONNECT_S = 10.0
_LOG_IN = "log in again; `kubectl auth whoami` tries the credentials"
_MERGE = "application/merge-patch+json"


class Cluster:
    """The parts of the API that are used here. Documents are plain dictionaries with the API's own names.

    Every call retries transient failures, and raises:
        RefusedError: not allowed.
        NotAdmittedError: refused by a quota or another rule of the namespace.
        UsageError: rejected as invalid.
        MissingError: no such object.
        TransientError: the API server stays unreachable.
    """

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        """Take the credentials of the kubeconfig, as kubectl does: the file that KUBECONFIG names, else ~/.kube/config.
        Without such a file, take those of this pod.

        Args:
            patience_s: seconds for which failed calls are retried. Outside of a cluster, calls before the first answer
                are retried for at most `FIRST_ANSWER_S` seconds.

        Raises:
            UsageError: there are no credentials, or the client library is missing.
        """
        self._answered = False
        self._load()
        self._patience = Patience(FIRST_ANSWER_S if self._of_person else patience_s, patience_s)
        self._connect_s = min(_CONNECT_S, patience_s)
        self._ahead = timedelta()
        """By how much the clock of the API server is ahead of that of this machine."""

    def _load(self) -> None:
        """Load the credentials, and make a client that has them."""
        try:
            from kubernetes import client, config
            from kubernetes.config.config_exception import ConfigException
        except ImportError:
            raise UsageError("the Kubernetes client is not installed", "pip install 'lipt[kubeflow]'") from None
        self._of_person = False
        try:
            if kubeconfig.is_there():
                raise ConfigException  # a person may work in a pod, too
            config.load_incluster_config()
        except ConfigException:
            self._of_person = True
            kubeconfig.load()
        settings = client.Configuration.get_default_copy()
        if self._of_person:
            kubeconfig.use_proxy(settings)
        settings.retries = False  # `request` retries
        self._client = client.ApiClient(settings)
        self.host = str(settings.host)
        through = getattr(self._client.rest_client.pool_manager, "proxy", None)
        self.proxy = None if through is None else str(through.url)
        """Address of the proxy on the way to `host`, which may contain a password."""

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """The object or list at an API path, such as `/api/v1/namespaces/x/pods`."""
        return self._parsed(self.request("GET", path, query=query))

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST an object to a collection.

        If an object of that name exists, it is returned unchanged: an earlier attempt may have created it and lost the
        answer. So choose the name here (`drawn_name`). With `generateName`, a lost answer leads to a second object.
        """
        try:
            return self._parsed(self.request("POST", path, body=body))
        except _ExistsError:
            return self.get(f"{path}/{body['metadata']['name']}")

    def delete(self, path: str, **options: Any) -> None:
        """DELETE an object and, in the background, its dependents; no error if it is gone already."""
        with suppress(MissingError):
            self.request("DELETE", path, body={"propagationPolicy": "Background", **options})

    def patch(self, path: str, change: dict[str, Any]) -> None:
        """Merge a change into an object; no error if it is gone already."""
        with suppress(MissingError):
            self.request("PATCH", path, body=change)

    def request(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None, once: bool = False
    ) -> str:
        """The body of the answer; `once`: transient failures are not retried."""
        if once:
            return self._once(method, path, query or {}, body)
        return self._patience(lambda: self._once(method, path, query or {}, body))

    def now(self) -> datetime:
        """The time by the clock of the API server, as its last answer told it; that of this machine may be wrong.

        Compare the times in objects with it. They have seconds, and so has it.
        """
        return datetime.now(UTC) + self._ahead

    def _note_time(self, date: str | None) -> None:
        """Take over the time of an answer, if a proxy has left it there."""
        with suppress(TypeError, ValueError):
            self._ahead = parsedate_to_datetime(date or "").astimezone(UTC) - datetime.now(UTC)

    def _parsed(self, text: str) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(text)
        except ValueError:  # such as the page of a login
            raise UsageError(
                f"{self.host} does not answer like a Kubernetes API", "check the server that your kubeconfig names"
            ) from None
        return document

    def _once(self, method: str, path: str, query: dict[str, str], body: Any) -> str:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            answer = self._client.call_api(
                path,
                method,
                query_params=list(query.items()),
                header_params={
                    "Accept": "application/json, */*",
                    "Content-Type": _MERGE if method == "PATCH" else "application/json",
                },
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=(self._connect_s, 60),
            )[0]
            self._note_time(answer.headers.get("Date"))
            self._answered = True
            return str(answer.data.decode("utf-8", "replace"))
        except ApiException as error:
            if not error.status:  # there was no answer: so the client library reports an error of TLS
                raise self._without_tls(str(error.reason)) from None
            failed = _translated(error, method, path)
            if self._answered and (error.status == 401 or (error.status == 403 and _STARTING in failed.message)):
                # They were accepted before: a token has been replaced, or the API server has just started.
                with suppress(LiptError):
                    self._load()
                failed = TransientError(failed.message, failed.remedy)
            raise failed from None
        except (HTTPError, OSError) as error:
            raise UnreachableError(
                f"the Kubernetes API server {self.host} is unreachable: {cause_of(error)}",
                "check the cluster, then try again",
            ) from None
        except ValueError:  # its message contains the token, so no traceback may show it
            pass
        raise UsageError("the credentials for the cluster have a character that cannot be sent", _LOG_IN)

    def _without_tls(self, told: str) -> LiptError:
        """The error for one of TLS, in the words of the client library."""
        why, reason = " ".join(told.partition("\n")[2].split()), re.search(r"\[SSL: (\w+)\]", told)
        if self._answered or not (reason and stays(reason[1])):
            if self._answered and "CERTIFICATE" in why:  # a new authority may have come
                with suppress(LiptError):
                    self._load()
            return UnreachableError(
                f"the Kubernetes API server {self.host} is unreachable: {why}", "check the cluster, then try again"
            )
        whose = "your kubeconfig" if self._of_person else "the pod's service account"
        return UsageError(
            f"no TLS connection to the Kubernetes API server {self.host}: {why}",
            f"check server and certificate authority of {whose}",
        )


def cause_of(error: Exception) -> str:
    """The end of urllib3's message about a lost connection, such as `[Errno 111] Connection refused`. Its beginning
    repeats the address and counts the attempts."""
    said = " ".join(str(getattr(error, "reason", None) or error).split())
    return said.rpartition(": ")[2]


def drawn_name(base: str) -> str:
    """`BASE-x7k2p`, a valid object name: like `generateName`, but drawn by the client."""
    return f"{base[: _MAX_NAME - _DRAWN - 1]}-{''.join(secrets.choice(_LETTERS) for _ in range(_DRAWN))}"


_MAX_NAME, _DRAWN = 63, 5
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: no words


#: In a refusal while the API server, just started, does not yet know the roles.
_STARTING = "RBAC: "


class MissingError(RunError):
    """The cluster has no such object."""


class RefusedError(UsageError):
    """These credentials do not permit that."""


class NotAdmittedError(RunError):
    """These credentials permit it, but a rule of the namespace does not: a quota, a limit, Pod Security."""


class _ExistsError(RunError):
    """An object of that name exists."""


def _translated(error: Any, method: str, path: str) -> LiptError:
    reason = ""
    try:
        body = json.loads(error.body)
        message, reason = str(body["message"]), str(body.get("reason", ""))
    except (TypeError, ValueError, KeyError):
        message = f"{error.status} {error.reason}"
    if error.status == 404:
        return MissingError(f"not in the cluster: {path} ({message})", "check the name and the namespace")
    refused = error.status == 403 and "is forbidden: User " not in message
    refused |= error.status == 422 and " is forbidden: " in message  # by a ValidatingAdmissionPolicy
    if refused and method == "POST":
        namespace = path.partition("/namespaces/")[2].partition("/")[0]
        why = reason_of(message)
        return NotAdmittedError(f"{namespace} does not admit it: {why}", remedy_of(why, namespace))
    if error.status == 401:
        return UsageError(f"the cluster does not accept your credentials: {message}", _LOG_IN)
    if error.status == 403:
        return RefusedError(
            f"the cluster refuses: {message}",
            "grant the permission: docs/howto/cluster-rights.md lists all of them with reasons",
        )
    if error.status == 409 and reason != "AlreadyExists":  # with another change of it, or of the quota
        return TransientError(f"the Kubernetes API answers {error.status}: {message}", "try again")
    if error.status == 409:
        return _ExistsError(f"already in the cluster: {message}", "delete it, or choose another name")
    if error.status in (400, 422):
        return UsageError(f"the cluster rejects {method} {path}: {message}", "correct that value")
    if error.status in (408, 429) or not 300 <= (error.status or 0) < 500:
        return TransientError(f"the Kubernetes API answers {error.status}: {message}", "try again")
    return RunError(
        f"the Kubernetes API answers {error.status} to {method} {path}: {message}",
        "check the server that your kubeconfig names, and its version",
    )
