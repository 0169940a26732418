"""Objects in an S3 bucket (MinIO, AWS, Ceph, SeaweedFS ...), by minio-py."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Self, TypeVar
from urllib.parse import urlsplit

from minio import Minio
from minio.credentials.providers import Provider
from minio.error import MinioException, S3Error
from minio.helpers import check_bucket_name
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential, wait_random
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from lipt.adapters.store.base import Kind, MissingObjectError, Operation, Store, Stored, Traffic
from lipt.adapters.store.credentials import credentials_of, required, variable
from lipt.adapters.store.s3_connections import connections
from lipt.adapters.store.s3_errors import Source, explained, no_bucket, not_s3
from lipt.errors import LiptError, TransientError, UsageError

T = TypeVar("T")

_PARTIAL = 206  # status of an answer that holds a range
_PAGE = 1000  # keys per response of a listing, fixed by the protocol
_PART_BYTES, _LARGEST_PART_BYTES = 5 * 2**20, 5 * 2**30  # parts of a multi-part upload; a larger one is refused
_BLOCK_BYTES = 2**20  # the counters advance by this much
_MAX_PAUSE_S = 5.0  # between two attempts
_CONNECT_S = 5.0
_SILENCE_S = 30.0  # longest wait for the next byte of an answer


@dataclass
class _Connection:
    """A client of one endpoint with its settings, shared by a store and all stores made from it."""

    client: Minio
    endpoint: str
    retry_s: float
    source: Source
    seen_buckets: set[str] = field(default_factory=set)


class S3Store(Store):
    """A prefix in a bucket. A PUT is atomic in S3. Transient failures are retried with growing pauses."""

    def __init__(self, location: str, connection: _Connection, traffic: Traffic) -> None:
        self._bucket, _, prefix = location.strip("/").partition("/")
        self._connection = connection
        super().__init__(f"s3://{self._bucket}/{prefix}".rstrip("/"), traffic)
        self._prefix = f"{prefix}/" if prefix else ""
        if prefix:
            self._check(prefix)

    @classmethod
    def from_environment(cls, location: str, environment: Mapping[str, str]) -> Self:
        """The store at `bucket/prefix`, with endpoint and credentials from the variables of an environment.

        LIPT_S3_ENDPOINT, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are required; AWS_SESSION_TOKEN, AWS_REGION
        (us-east-1) and LIPT_S3_RETRY_S (60, seconds until a transient failure becomes an error) are optional. A pod
        whose account has a role on AWS needs no keys.

        Raises:
            UsageError: a variable is missing or malformed, or the location names no bucket.
        """
        check_location(location)
        return cls(location, _connect(environment), Traffic())

    def elsewhere(self, location: str) -> Self:
        """The store at `bucket/prefix`, with the endpoint and the credentials of this one, and its own ledger.

        Raises:
            UsageError: the location names no bucket.
        """
        check_location(location)
        return type(self)(location, self._connection, Traffic())

    def _read(self, key: str, kind: Kind, start: int, length: int | None) -> bytes:
        if length == 0:  # the protocol has no empty ranges
            if self._size(key) is None:
                raise self._missing(key)
            return b""

        def attempt() -> bytes:
            try:
                response = self._connection.client.get_object(
                    bucket_name=self._bucket, object_name=self._prefix + key, offset=start, length=length or 0
                )
            except S3Error as error:
                if error.code == "InvalidRange":
                    raise self._too_short(key, start, length) from None
                raise
            blocks: list[bytes] = []
            try:
                if (start or length) and response.status != _PARTIAL:
                    connection = self._connection
                    raise not_s3(self._uri_of(key), connection.endpoint, "it ignores ranges", connection.source)
                for block in response.stream(_BLOCK_BYTES, decode_content=False):
                    self.traffic.count_read(kind, len(block))
                    blocks.append(block)
            finally:
                response.close()
                response.release_conn()
            return b"".join(blocks)

        return self._call("read", key, attempt)

    def _write(self, key: str, data: bytes) -> None:
        def attempt() -> None:
            self._connection.client.put_object(
                bucket_name=self._bucket,
                object_name=self._prefix + key,
                data=BytesIO(data),
                length=len(data),
                # One request for almost every object: the bytes are in memory anyway.
                part_size=min(max(_PART_BYTES, len(data)), _LARGEST_PART_BYTES),
            )

        self._call("write", key, attempt)

    def _size(self, key: str) -> int | None:
        client = self._connection.client
        try:
            return self._call(
                "size", key, lambda: client.stat_object(bucket_name=self._bucket, object_name=self._prefix + key).size
            )
        except MissingObjectError:
            self._require_bucket()
            return None

    def _require_bucket(self) -> None:
        """Check once that the bucket exists. HEAD has no body, so a missing bucket looks like a missing object."""

        def attempt() -> bool:
            try:
                return self._connection.client.bucket_exists(bucket_name=self._bucket)
            except S3Error as error:
                if error.code == "AccessDenied":  # may read objects, but not see the bucket
                    return True
                raise

        if self._bucket not in self._connection.seen_buckets:
            if not self._call("size", "", attempt):
                raise no_bucket(self._bucket)
            self._connection.seen_buckets.add(self._bucket)

    def _listing(self, prefix: str) -> dict[str, Stored]:
        def attempt() -> dict[str, Stored]:
            entries = self._connection.client.list_objects(
                bucket_name=self._bucket, prefix=self._prefix + prefix, recursive=True
            )
            return {
                name.removeprefix(self._prefix): Stored(
                    entry.size or 0, entry.last_modified.timestamp() if entry.last_modified else 0.0
                )
                for entry in entries
                if (name := entry.object_name or "") and not name.endswith("/")  # a folder that a bucket browser made
            }

        found = self._call("list", prefix, attempt)
        if len(found) > _PAGE:
            self.traffic.count_request("list", (len(found) - 1) // _PAGE)  # pages after the first
        return found

    def _delete(self, key: str) -> None:
        client = self._connection.client
        self._call(
            "delete", key, lambda: client.remove_object(bucket_name=self._bucket, object_name=self._prefix + key)
        )

    def _sibling(self, uri: str, traffic: Traffic) -> Self:
        return type(self)(uri.removeprefix("s3://"), self._connection, traffic)

    def _call(self, operation: Operation, key: str, attempt: Callable[[], T]) -> T:
        """Run `attempt` until it succeeds or fails permanently, or until LIPT_S3_RETRY_S after its first failure."""
        failed: list[float] = []

        def over(state: RetryCallState) -> bool:
            """Whether the time is over. It counts from the first failure: what came before it may have taken long."""
            failed.append(state.outcome_timestamp or 0.0)
            return failed[-1] - failed[0] >= self._connection.retry_s

        def counted() -> T:
            self.traffic.count_request(operation)
            try:
                return attempt()
            except (MinioException, HTTPError, SyntaxError, ValueError) as error:  # the last two: not an answer in XML
                raise self._explain(key, error) from error

        return Retrying(
            retry=retry_if_exception_type(TransientError),
            stop=over,
            wait=wait_exponential(multiplier=0.2, max=_MAX_PAUSE_S) + wait_random(0, 0.2),
            reraise=True,
        )(counted)

    def _explain(self, key: str, error: Exception) -> LiptError:
        if isinstance(error, S3Error) and error.code == "NoSuchKey":
            return self._missing(key)
        connection = self._connection
        return explained(
            error,
            where=self._uri_of(key),
            bucket=self._bucket,
            endpoint=connection.endpoint,
            retry_s=connection.retry_s,
            source=connection.source,
        )


def check_location(location: str) -> None:
    """
    Raises:
        UsageError: `bucket/prefix` does not begin with the name of a bucket.
    """
    bucket = location.partition("/")[0]
    try:
        check_bucket_name(bucket, strict=True)
    except ValueError as error:
        raise UsageError(
            f"s3://{location}: {error if bucket else 'it names no bucket'}",
            "write s3://bucket/prefix; the name of a bucket has 3 to 63 lower-case letters, digits, dots and hyphens",
        ) from None


def _connect(environment: Mapping[str, str]) -> _Connection:
    endpoint = required("LIPT_S3_ENDPOINT", "the address of the store, http://host:port or https://host", environment)
    retry_s = _retry_s(environment)
    silence_s = max(1.0, min(_SILENCE_S, retry_s / 2))
    # Only we retry: one budget in seconds, and every attempt is counted.
    pool = connections(connect_s=min(_CONNECT_S, silence_s), silence_s=silence_s, most=32)
    region = variable("AWS_REGION", environment) or "us-east-1"
    if not region.replace("-", "").isalnum():
        raise UsageError(f"AWS_REGION={region} is not a region", "set it to one, such as us-east-1")
    client = client_of(endpoint, credentials_of(region, environment), region=region, pool=pool)
    return _Connection(client, endpoint, retry_s, Source.of(environment))


def client_of(endpoint: str, credentials: Provider, *, region: str, pool: PoolManager) -> Minio:
    """The client of the store at LIPT_S3_ENDPOINT, `http://host:port` or `https://host`.

    Raises:
        UsageError: the address is malformed.
    """
    try:
        url = urlsplit(endpoint)
        if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/") or "@" in url.netloc:
            raise ValueError
        secure = url.scheme == "https"
        return Minio(endpoint=url.netloc, credentials=credentials, secure=secure, region=region, http_client=pool)
    except ValueError:
        # The message omits the value: addresses may contain passwords.
        remedy = "set it to http://host:port or https://host, without path, user or password"
        raise UsageError("LIPT_S3_ENDPOINT is not the address of a store", remedy) from None


def _retry_s(environment: Mapping[str, str]) -> float:
    text = environment.get("LIPT_S3_RETRY_S") or "60"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"LIPT_S3_RETRY_S={text} is not a number of seconds", "set it to seconds, such as 60")
    return seconds
