"""What an S3 store lets us in with: an access key, or on AWS the role of the pod's account."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from minio.credentials.credentials import Credentials
from minio.credentials.providers import IamAwsProvider, Provider, StaticProvider
from urllib3 import BaseHTTPResponse, PoolManager, Retry, Timeout
from urllib3.exceptions import HTTPError

from lipt.adapters.store.s3_errors import BUSY, in_pod_of_run, is_busy
from lipt.errors import TransientError, UsageError

#: AWS sets one of them in pods whose account has a role: IRSA the first, EKS Pod Identity the second.
_ROLE = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
#: The files with the pod's own token, which AWS mounts for them.
_TOKENS = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")


def credentials_of(region: str, environment: Mapping[str, str]) -> Provider:
    """The access key of the environment; without one the role of this pod's account, if it has one.

    Raises:
        UsageError: neither is there, or a variable is malformed.
    """
    if not variable("AWS_ACCESS_KEY_ID", environment) and any(variable(name, environment) for name in _ROLE):
        return RoleProvider(region)
    access_key = required("AWS_ACCESS_KEY_ID", "the access key of the store", environment)
    secret_key = required("AWS_SECRET_ACCESS_KEY", "the secret key of the store", environment)
    return StaticProvider(access_key, secret_key, variable("AWS_SESSION_TOKEN", environment) or None)


class _BusyError(HTTPError):
    """AWS wants to be asked later. The text is the code of its answer."""


class _Pool(PoolManager):
    """Finds the answers with which AWS wants to be asked later.

    Their status is 400, as that of a refusal, and minio keeps nothing else of an answer.
    """

    def urlopen(self, method: str, url: str, redirect: bool = True, **options: Any) -> BaseHTTPResponse:  # type: ignore[override]
        answer = super().urlopen(method, url, redirect, **options)
        code = re.search(rb"<Code>(\w+)</Code>", answer.data) if answer.status == 400 else None
        if code and code[1].decode() in BUSY:
            raise _BusyError(code[1].decode())
        return answer


class RoleProvider(Provider):
    """Keys that AWS lends to a role, renewed before they end. AWS_ENDPOINT_URL_STS is optional: another address."""

    def __init__(self, region: str) -> None:
        pool = _Pool(timeout=Timeout(connect=5, read=30), retries=Retry(2, backoff_factor=0.2))
        endpoint = variable("AWS_ENDPOINT_URL_STS") or None
        self._provider = IamAwsProvider(custom_endpoint=endpoint, http_client=pool, region=region)

    def retrieve(self) -> Credentials:
        """
        Raises:
            TransientError: AWS does not answer, or is busy.
            UsageError: the pod's token cannot be read, or AWS refuses the role.
        """
        for name in _TOKENS:
            if (path := variable(name)) and not os.access(path, os.R_OK):
                raise UsageError(
                    f"{name}: cannot read {path}",
                    "start the pod again, so that AWS mounts the token; set fsGroup if only root may read it",
                )
        # The messages omit the errors of minio: these hold the address of the request, and in it the pod's token.
        try:
            return self._provider.retrieve()
        except (HTTPError, ValueError, SyntaxError, OSError) as error:
            status = re.search(r"status code (\d+)$", str(error))
            busy = str(error) if isinstance(error, _BusyError) else ""
            why = busy or (f"HTTP {status[1]}" if status else type(error).__name__)
            if busy or (status and is_busy(int(status[1]))):
                raise TransientError(
                    f"AWS cannot lend the keys of the pod's role at the moment ({why})", "run the same command again"
                ) from None
            if isinstance(error, HTTPError):
                raise TransientError(
                    f"AWS did not answer when asked for the keys of the pod's role ({why})",
                    "let pods reach it (port 443, docs/howto/cluster-install.md), then run the same command again",
                ) from None
            role = variable("AWS_ROLE_ARN") or "the pod's account"
            raise UsageError(
                f"AWS gives no keys for {role} ({why})",
                "check that the role trusts the account of the pod (docs/howto/cluster-install.md)",
            ) from None


def required(name: str, meaning: str, environment: Mapping[str, str]) -> str:
    """The value of a variable.

    Raises:
        UsageError: it is missing or malformed.
    """
    value = variable(name, environment)
    if not value and in_pod_of_run(environment):
        kind = "Secret" if name.startswith("AWS_") else "ConfigMap"
        raise UsageError(
            f"an s3:// location needs the environment variable {name}",
            f"a pod of a run gets it from the {kind} of -p s3=NAME: `kubectl -n NAMESPACE get {kind.lower()} NAME` "
            "(docs/howto/cluster-rights.md, Secrets)",
        )
    if not value:
        raise UsageError(f"an s3:// location needs the environment variable {name}", f"set it to {meaning}")
    return value


def variable(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """The value of a variable, or ""; a Secret that was made from a file often ends with a line break.

    Raises:
        UsageError: it is malformed.
    """
    value = environment.get(name, "").strip()
    if not (value.isascii() and value.isprintable()):
        # The message omits the value, which may be a credential.
        raise UsageError(f"{name} has a character that no store accepts", "set it to ASCII text in one line")
    return value
