"""Connections to an S3 store: an upload may take as long as it advances."""

from __future__ import annotations

from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection

_BLOCK_BYTES = 2**20


class _InBlocks(HTTPConnection):
    """Sends a body in blocks, each with the timeout of an answer.

    urllib3 hands the whole body to the socket, with the timeout of the connect. Over plain HTTP this limits the whole
    upload: with five seconds, 300 MB would need 60 MB/s.
    """

    silence_s: float

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        self.sock.settimeout(self.silence_s)
        blocks = [data]
        if isinstance(data, bytes):
            whole = memoryview(data)
            blocks = [whole[start : start + _BLOCK_BYTES] for start in range(0, len(whole), _BLOCK_BYTES)]
        for block in blocks:
            super().send(block)


class _Secure(_InBlocks, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _InBlocks

    def _new_conn(self) -> Any:
        connection: Any = super()._new_conn()
        connection.silence_s = self.timeout.read_timeout
        return connection


class _SecurePool(_Pool, HTTPSConnectionPool):
    ConnectionCls = _Secure


def connections(*, connect_s: float, silence_s: float, most: int) -> PoolManager:
    """At most `most` connections to each address. They repeat no request.

    Args:
        silence_s: the longest time in which nothing is sent or received.
    """
    found = PoolManager(timeout=Timeout(connect=connect_s, read=silence_s), maxsize=most, retries=False)
    found.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
    return found
