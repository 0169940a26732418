"""An S3 server whose connections break, that is busy or full, or that restarts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from lipt.adapters.store import open_store
from lipt.errors import RunError, TransientError, UsageError

if TYPE_CHECKING:
    from tests.conftest import MinioProcess, S3Server

ANSWERS = {
    "busy": b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nbusy",
    "slower": b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nslow",
    "throttled": b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n"
    b"<Error><Code>TooManyRequests</Code><Message>slow down</Message></Error>",
    "skewed": b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n"
    b"<Error><Code>RequestTimeTooSkewed</Code><Message>too far</Message></Error>",
    "full": b"HTTP/1.1 507 Insufficient Storage\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n"
    b"<Error><Code>XMinioStorageFull</Code><Message>no space</Message></Error>",
}


class Flaky:
    """A TCP relay to the server whose first connections misbehave, each as `faults` says."""

    def __init__(self, server: S3Server, faults: list[str]) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self._target, self._faults = (host, int(port)), faults
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                fault = self._faults.pop(0) if self._faults else ""
                threading.Thread(target=self._serve, args=(client, fault), daemon=True).start()

    def _serve(self, client: socket.socket, fault: str) -> None:
        with client, suppress(OSError):
            if fault == "drop":
                return
            if fault in ANSWERS:
                client.recv(65536)
                client.sendall(ANSWERS[fault])
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):  # closed with a part of the request unread, it would reset the connection,
                    pass  # and the client would try again instead of reading the answer
                return
            with socket.create_connection(self._target) as server:
                threading.Thread(target=_relay, args=(client, server), daemon=True).start()
                _relay(server, client, limit=40_000 if fault == "cut" else None)
                client.shutdown(socket.SHUT_RDWR)  # `close` alone would wait for the other thread's recv


def _relay(source: socket.socket, sink: socket.socket, limit: int | None = None) -> None:
    passed = 0
    with suppress(OSError):
        while data := source.recv(4096):
            sink.sendall(data)
            passed += len(data)
            if limit is not None and passed >= limit:
                return


@pytest.fixture
def flaky(s3: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[str]], None]]:
    """Put a relay with these faults between us and the server."""
    if not s3_server.url.startswith("http://"):
        pytest.skip("the server speaks TLS")
    relays: list[Flaky] = []

    def install(faults: list[str]) -> None:
        relays.append(Flaky(s3_server, faults))
        monkeypatch.setenv("LIPT_S3_ENDPOINT", relays[-1].url)

    yield install
    for relay in relays:
        relay.close()


@pytest.mark.parametrize("fault", ["drop", "busy", "slower", "throttled", "cut"])
def test_broken_answers_are_retried_and_every_attempt_is_counted(
    s3: str, flaky: Callable[[list[str]], None], fault: str
) -> None:
    data = bytes(range(256)) * 1000
    open_store(s3).write("x", data, kind="data")
    flaky([fault, fault])
    store = open_store(s3)
    assert store.read("x", kind="data") == data
    assert store.traffic.requests == {"read": 3}
    extra = store.traffic.read["data"] - len(data)
    assert 0 <= extra <= (90_000 if fault == "cut" else 0)


def test_a_write_whose_connection_drops_is_retried_and_counted_once(
    s3: str, flaky: Callable[[list[str]], None]
) -> None:
    flaky(["drop"])
    store = open_store(s3)
    store.write("x", b"12345", kind="model")
    assert store.read("x", kind="model") == b"12345"
    assert store.traffic.written["model"] == 5
    assert store.traffic.requests == {"write": 2, "read": 1}


def test_store_that_stays_busy_is_transient(
    s3: str, flaky: Callable[[list[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    flaky(["busy"] * 100)
    monkeypatch.setenv("LIPT_S3_RETRY_S", "1")
    with pytest.raises(TransientError, match="HTTP 503"):
        open_store(s3).list()


def test_full_store_is_a_run_error(s3: str, flaky: Callable[[list[str]], None]) -> None:
    flaky(["full"])
    with pytest.raises(RunError, match=r"/x: the store is full \(XMinioStorageFull\)\n  -> free space"):
        open_store(s3).write("x", b"1", kind="data")


def test_a_clock_that_is_wrong_is_not_taken_for_wrong_credentials(s3: str, flaky: Callable[[list[str]], None]) -> None:
    flaky(["skewed"])
    with pytest.raises(UsageError, match=r"the clock of this machine differs .*\n  -> set both clocks"):
        open_store(s3).read("x", kind="data")


def test_restart_of_the_server_is_survived(own_minio: MinioProcess) -> None:
    store = open_store("s3://bucket/x")
    store.write("before", bytes(100_000), kind="model")
    own_minio.stop()
    restart = threading.Timer(1.0, own_minio.start)
    restart.start()
    assert store.read("before", kind="model") == bytes(100_000)
    restart.join()  # else it would still wait for a server that the end of this test stops
    store.write("after", b"1", kind="model")
    assert store.list() == ["after", "before"]
    assert store.traffic.requests["read"] > 1
