"""The interface of every store, and the ledger of its traffic."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal, NamedTuple, Self

from lipt.errors import IntegrityError, RunError, UsageError
from lipt.files import TEMPORARY

Kind = Literal["data", "model", "other"]
"""Kind of the bytes: samples, weights, everything else (manifests, scores, reports)."""

Operation = Literal["read", "write", "size", "list", "delete"]

Keys = list[str]  # a name, because inside `Store` its method `list` hides the type


class Stored(NamedTuple):
    """An object as a listing shows it."""

    num_bytes: int
    written: float
    """When it was created or replaced, in Unix time of the store's clock."""


class MissingObjectError(RunError):
    """The store has no such object."""


class StoreError(RunError):
    """The store cannot do what it is asked: it is full, or read-only, or grants no access."""


def _per_kind() -> dict[Kind, int]:
    return {"data": 0, "model": 0, "other": 0}


@dataclass
class Traffic:
    """Payload bytes per kind and direction, requests per operation (one per attempt). Threads may count."""

    read: dict[Kind, int] = field(default_factory=_per_kind)
    written: dict[Kind, int] = field(default_factory=_per_kind)
    requests: dict[str, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def count_read(self, kind: Kind, num_bytes: int) -> None:
        with self._lock:
            self.read[kind] += num_bytes

    def count_written(self, kind: Kind, num_bytes: int) -> None:
        with self._lock:
            self.written[kind] += num_bytes

    def count_request(self, operation: Operation, num: int = 1) -> None:
        with self._lock:
            self.requests[operation] = self.requests.get(operation, 0) + num

    def as_dict(self) -> dict[str, dict[str, int]]:
        """A JSON-able copy: {"read": {kind: bytes}, "written": {kind: bytes}, "requests": {operation: count}}."""
        with self._lock:
            return {
                "read": {str(kind): count for kind, count in self.read.items()},
                "written": {str(kind): count for kind, count in self.written.items()},
                "requests": dict(self.requests),
            }


class Store(ABC):
    """Objects under one location, addressed by relative keys such as `train-00000.tar` or `run/theta.safetensors`.

    Attributes:
        uri: canonical location, `file:///abs/path` or `s3://bucket/prefix`, no trailing slash.
        traffic: the traffic of this store and of every store made from it by `at`.
    """

    def __init__(self, uri: str, traffic: Traffic) -> None:
        self.uri = uri
        self.traffic = traffic

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    def read(self, key: str, *, kind: Kind, start: int = 0, length: int | None = None) -> bytes:
        """The bytes [start, start + length) of an object, or from `start` to its end.

        Raises:
            MissingObjectError: there is no such object.
            IntegrityError: the object ends before the range does.
        """
        if start < 0 or (length is not None and length < 0):
            raise ValueError(f"negative range: start={start}, length={length}")
        self._check(key)
        data = self._read(key, kind, start, length)
        if length is not None and len(data) < length:
            raise self._too_short(key, start, length)
        return data

    def write(self, key: str, data: bytes, *, kind: Kind) -> None:
        """Create or replace an object atomically: a reader sees the old object, the new one or none, never a part."""
        self._check(key)
        self._write(key, data)
        self.traffic.count_written(kind, len(data))

    def size(self, key: str) -> int | None:
        """Bytes of an object; None if there is no such object."""
        self._check(key)
        return self._size(key)

    def list(self, prefix: str = "") -> Keys:
        """The keys that start with `prefix`, sorted."""
        return [*self.sizes(prefix)]

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Bytes of each object whose key starts with `prefix`, by key, sorted."""
        return {key: found.num_bytes for key, found in self.listing(prefix).items()}

    def listing(self, prefix: str = "") -> dict[str, Stored]:
        """The objects whose key starts with `prefix`, by key, sorted; one listing, no request per object."""
        if prefix:
            self._check(prefix.removesuffix("/"))
        return dict(sorted(self._listing(prefix).items()))

    def delete(self, key: str) -> None:
        """Remove an object; no error if there is none."""
        self._check(key)
        self._delete(key)

    def metered(self) -> Self:
        """The same location with a new ledger, so that each stage counts its own traffic."""
        return self._sibling(self.uri, Traffic())

    def at(self, prefix: str) -> Self:
        """The location `prefix` below this one, with the same ledger."""
        prefix = prefix.removesuffix("/")
        self._check(prefix)
        return self._sibling(f"{self.uri}/{prefix}", self.traffic)

    def _uri_of(self, key: str) -> str:
        return f"{self.uri}/{key}"

    def _check(self, key: str) -> None:
        """Refuse keys that could leave the location, or that a folder and a bucket read differently."""
        parts = key.split("/")
        if any(part in ("", ".", "..") or part.startswith(TEMPORARY) for part in parts) or not key.isprintable():
            raise UsageError(
                f"{self.uri}: {key!r} is no valid key",
                "use a relative name without empty, '.' or '..' parts and without control characters",
            )

    def _missing(self, key: str) -> MissingObjectError:
        remedy = "check the location and the name, or run the stage that writes it first"
        return MissingObjectError(f"{self._uri_of(key)}: no such object", remedy)

    def _too_short(self, key: str, start: int, length: int | None) -> IntegrityError:
        span = f"{length} bytes at {start}" if length is not None else f"bytes from {start} on"
        return IntegrityError(
            f"{self._uri_of(key)}: the object ends before the requested {span}",
            "it was truncated or replaced: write it again (for a chunk, delete the data set and ingest it again)",
        )

    @abstractmethod
    def _read(self, key: str, kind: Kind, start: int, length: int | None) -> bytes:
        """Like `read`. Counts the request and the received bytes; may return fewer bytes than `length`."""

    @abstractmethod
    def _write(self, key: str, data: bytes) -> None: ...

    @abstractmethod
    def _size(self, key: str) -> int | None: ...

    @abstractmethod
    def _listing(self, prefix: str) -> dict[str, Stored]: ...

    @abstractmethod
    def _delete(self, key: str) -> None: ...

    @abstractmethod
    def _sibling(self, uri: str, traffic: Traffic) -> Self: ...
