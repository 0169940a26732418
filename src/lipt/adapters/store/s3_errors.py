"""Errors of an S3 store, as errors of lipt."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple

from minio.error import InvalidResponseError, MinioAdminException, S3Error, ServerError
from urllib3.exceptions import HTTPError, ProtocolError, SSLError

from lipt.adapters.store.base import StoreError
from lipt.adapters.tls import stays
from lipt.errors import LiptError, TransientError, UsageError

#: Codes with which a store refuses the credentials.
REFUSED = {
    "AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken",
    "InvalidTokenId", "SignatureDoesNotMatch",
}  # fmt: skip
#: AWS answers so if the bucket is in another region than the endpoint or the signature; `BadRequest` where the answer
#: has no body.
_ELSEWHERE = {
    "AuthorizationHeaderMalformed", "BadRequest", "IllegalLocationConstraintException", "PermanentRedirect",
    "Redirect", "TemporaryRedirect",
}  # fmt: skip
#: A later request may succeed, whatever the status. `IDPCommunicationError`: AWS did not reach the issuer of a token.
BUSY = {
    "IDPCommunicationError", "OperationAborted", "RequestLimitExceeded", "RequestThrottled",
    "RequestThrottledException", "RequestTimeout", "SlowDown", "Throttling", "ThrottlingException",
    "TooManyRequestsException",
}  # fmt: skip
_FULL = {"QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull"}


def in_pod_of_run(environment: Mapping[str, str]) -> bool:
    """Whether this is a pod of a run: what comes from its Secret and ConfigMap, nobody can set there."""
    return "LIPT_POD" in environment or "JOB_COMPLETION_INDEX" in environment


class Source(NamedTuple):
    """Where the settings of a store come from, as remedies name it."""

    endpoint: str
    region: str
    credentials: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Source:
        """ConfigMap and Secret in a pod of a run; otherwise the variables."""
        if in_pod_of_run(environment):
            return cls(
                "`endpoint` in the ConfigMap of -p s3=NAME",
                "`region` in the ConfigMap of -p s3=NAME",
                "the Secret of -p s3=NAME; docs/howto/cluster-rights.md, Secrets",
            )
        return cls("LIPT_S3_ENDPOINT", "AWS_REGION", "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY")


def is_busy(status: int) -> bool:
    """Whether a later request may succeed."""
    return status in (408, 429) or (status >= 500 and status != 501)  # 501: the store has no such operation


def status_of(error: Exception) -> int:
    """The HTTP status of minio's error; 0 if it has none."""
    if isinstance(error, S3Error):
        return int(error.response.status)
    if isinstance(error, ServerError):
        return error.status_code
    if isinstance(error, (MinioAdminException, InvalidResponseError)):  # the latter: the HTML page of a proxy
        return int(error._code)  # no public name
    return 0


def _reason(error: SSLError) -> str:
    """OpenSSL's reason; empty if it has none."""
    cause = error.args[0] if error.args else None
    return (cause.reason or "") if isinstance(cause, ssl.SSLError) else ""


def no_bucket(bucket: str) -> UsageError:
    return UsageError(f"s3://{bucket}: no such bucket", "create the bucket, or correct the location")


def explained(error: Exception, *, where: str, bucket: str, endpoint: str, retry_s: float, source: Source) -> LiptError:
    """The error for a user. It never contains the request, which is signed with the credentials.

    Args:
        error: of minio or urllib3; of Python, if minio cannot read the answer.
        where: the object, as the user writes it.
        retry_s: seconds for which the request was, or will be, repeated.
    """

    def transient(reason: str, also: str = "") -> TransientError:
        return TransientError(
            f"{where}: {endpoint} was unreachable for {retry_s:g} s ({reason})",
            f"check that the store runs and that its address ({source.endpoint}) is correct{also}, then try again",
        )

    if isinstance(error, SSLError):
        reason = _reason(error)
        if reason and not stays(reason):
            return transient(reason)
        return UsageError(
            f"{where}: no TLS connection to {endpoint}: {error}",
            f"check http:// or https:// in the address ({source.endpoint}), or the certificate "
            "(docs/howto/cluster-install.md)",
        )
    if isinstance(error, HTTPError):
        # A store that restarts breaks connections, too; a port for TLS does so with each one in plain HTTP.
        plain = isinstance(error, ProtocolError) and endpoint.startswith("http://")
        return transient(type(error).__name__, " (or use https://)" if plain else "")
    status = status_of(error)
    if isinstance(error, S3Error):
        code = error.code or "unknown error"
        if code in BUSY or (code not in _FULL and is_busy(status)):
            return transient(code)
        return _explained_answer(error, code, where=where, bucket=bucket, endpoint=endpoint, source=source)
    if is_busy(status):
        return transient(f"HTTP {status}")
    return not_s3(where, endpoint, f"HTTP {status}" if status else type(error).__name__, source)


def not_s3(where: str, endpoint: str, how: str, source: Source) -> UsageError:
    """
    Args:
        how: in what the answer differs.
    """
    return UsageError(
        f"{where}: {endpoint} does not answer like an S3 store ({how})",
        f"check the address ({source.endpoint}; the S3 port, not the console's), the region ({source.region}) and the "
        f"credentials ({source.credentials})",
    )


def _explained_answer(
    error: S3Error, code: str, *, where: str, bucket: str, endpoint: str, source: Source
) -> LiptError:
    if code == "NoSuchBucket":
        return no_bucket(bucket)
    if code == "RequestTimeTooSkewed":
        return UsageError(
            f"{where}: the clock of this machine differs from that of {endpoint} ({code})",
            "set both clocks, for example with NTP; in a pod the clock is that of its node",
        )
    if code in REFUSED:
        return UsageError(
            f"{where}: {endpoint} refuses the credentials ({code})",
            f"check the credentials ({source.credentials}), the region ({source.region}), and that the bucket "
            f"{bucket} exists and the user may use it",
        )
    if code in _ELSEWHERE:
        return UsageError(
            f"{where}: {endpoint} answers {code}: {error.message}",
            f"if the bucket is in another region: set the address ({source.endpoint}) and the region ({source.region}) "
            "to those of the bucket",
        )
    if code in _FULL:
        return StoreError(f"{where}: the store is full ({code})", "free space or raise the quota, then run again")
    return StoreError(f"{where}: the store answers {code}: {error.message}", "see the store's log for this request")
