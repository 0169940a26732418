"""The client of Kubeflow Pipelines: where it is, who asks, and its errors as errors of lipt."""

import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TypeVar

from lipt.adapters.cluster.api import Cluster, MissingError, cause_of
from lipt.adapters.cluster.kubeconfig import proxy_to
from lipt.adapters.cluster.patience import FIRST_ANSWER_S, Patience, UnreachableError
from lipt.errors import LiptError, RunError, TransientError, UsageError

T = TypeVar("T")
#: The token of a notebook that may use pipelines, and their address for it.
_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"
_INSIDE = "http://ml-pipeline.kubeflow:8888"
#: Seconds within which a connection must stand, and until the next byte of an answer.
_CONNECT_S, _ANSWER_S = 10.0, 60.0


def connect(cluster: Cluster, namespace: str) -> Any:
    """The client.

    With profiles, Kubeflow Pipelines wants to know who asks. A notebook has a token for that, if its configuration
    allows access to pipelines. Elsewhere it is KFP_EXISTING_TOKEN, or a cookie in the file that `kfp` keeps for that.

    Raises:
        UsageError: the client library is missing.
    """
    try:
        import kfp
        from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials
    except ImportError:
        raise UsageError("the Kubeflow client is not installed", "pip install 'lipt[kubeflow]'") from None
    token, host = _token(), address()

    def connected() -> Any:
        return kfp.Client(
            host=host,
            namespace=namespace,
            proxy=proxy_to(host) if host else cluster.proxy,
            existing_token=os.environ.get("KFP_EXISTING_TOKEN", "").strip() or None,
            ssl_ca_cert=os.environ.get("SSL_CERT_FILE") if host else None,
            credentials=ServiceAccountTokenVolumeCredentials(token) if token else None,
        )

    return Patience(FIRST_ANSWER_S, FIRST_ANSWER_S)(lambda: call(connected))  # it may succeed without an answer


def address() -> str | None:
    """Where Kubeflow Pipelines is; None: behind the API server of the cluster."""
    return os.environ.get("KFP_ENDPOINT") or (_INSIDE if _token() else None)


def _token() -> str | None:
    """The file with a notebook's token."""
    path = os.environ.get("KF_PIPELINES_SA_TOKEN_PATH", _TOKEN)
    return path if os.path.exists(path) else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the client. It prints links to stdout, which must carry only the result. It also logs a traceback for
    every attempt, although its final error says the same."""
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _limited() -> Iterator[None]:
    """Let no request wait forever: the client sets no limit, and hands none on. Its constructor sends one, too.

    Refuse an answer that is not JSON, such as the page of a login: the client would make an empty object of it.
    """
    from kfp_server_api.rest import RESTClientObject

    unlimited = RESTClientObject.request

    def request(*arguments: Any, _request_timeout: Any = None, **options: Any) -> Any:
        answer = unlimited(*arguments, _request_timeout=_request_timeout or (_CONNECT_S, _ANSWER_S), **options)
        if answer.data and not answer.data.lstrip().startswith((b"{", b"[")):
            raise UsageError(
                "Kubeflow Pipelines answers with a page in place of data, as a login does",
                "log in again and set KFP_EXISTING_TOKEN, or correct KFP_ENDPOINT",
            )
        return answer

    RESTClientObject.request = request
    try:
        yield
    finally:
        RESTClientObject.request = unlimited


def call(function: Callable[[], T]) -> T:
    """Call the client silently, and not without end; its errors become errors of lipt."""
    from kfp_server_api import ApiException
    from urllib3.exceptions import HTTPError

    try:
        with warnings.catch_warnings(), _quiet(), _limited():
            warnings.simplefilter("ignore")  # a hint about its versions
            return function()
    except ApiException as error:
        raise _translated(error) from None
    except (HTTPError, OSError) as error:
        raise UnreachableError(
            f"Kubeflow Pipelines is unreachable: {cause_of(error)}",
            "see whether it runs: `kubectl -n kubeflow get pods -l app=ml-pipeline`; or set KFP_ENDPOINT",
        ) from None
    except ValueError as error:
        if "header value" not in str(error):
            raise
    # Not in the handler: the message of that error holds the token, so no traceback may show it.
    raise UsageError(
        "the token for Kubeflow Pipelines has a character that cannot be sent", "set KFP_EXISTING_TOKEN to one line"
    )


def _translated(error: Any) -> LiptError:
    text = _message(error)
    if 'services "ml-pipeline"' in text:  # the cluster's API server, which passes requests on, does not find it
        return UsageError(
            f"Kubeflow Pipelines cannot be reached through the cluster: {text}",
            "correct the namespace, or set KFP_ENDPOINT to the address of Kubeflow Pipelines",
        )
    if error.status in (401, 403):
        return UsageError(f"Kubeflow Pipelines refuses: {text}", "log in, or grant the permission")
    if error.status == 404:
        return MissingError(
            f"Kubeflow Pipelines does not know it: {text}",
            "check the run's handle. The results of a run that was deleted stay: lipt ls WORKSPACE lists them",
        )
    if error.status == 400:
        return UsageError(f"Kubeflow Pipelines rejects it: {text}", "correct that value")
    if error.status == 429 or error.status >= 500:
        return TransientError(f"Kubeflow Pipelines answers {error.status}: {text}", "try again")
    return RunError(
        f"Kubeflow Pipelines answers {error.status}: {text}", "see the log of deployment/ml-pipeline for this request"
    )


def _message(error: Any) -> str:
    """The message in an answer. Kubeflow Pipelines puts its cause, which is shorter, into the details."""
    try:
        answer = json.loads(error.body)
        details = answer.get("details")
        text = str(details[0]["message"] if isinstance(details, list) and details else answer["message"])
    except (TypeError, ValueError, KeyError, AttributeError):  # a page of a proxy
        text = str(error.reason)
    return " ".join(text.split())[:300]
