"""Uploads that take long: longer than a connect may, and longer than failures are retried for."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lipt.adapters.store import open_store
from lipt.errors import TransientError
from tests.certificates import CERTIFICATE, self_signed

SIZE = 24_000_000  # more than the buffers of both sides hold


class SlowServer:
    """Takes PUT bodies at `mb_s`; leaves the connection at the end of the first `drops` of them."""

    def __init__(self, mb_s: float, drops: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.rate, self.drops, self.tls = 1e6 * mb_s, drops, tls
        self.bodies: list[int] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with suppress(OSError), self.tls.wrap_socket(plain, server_side=True) if self.tls else plain as client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536)
            start, head, body = time.monotonic(), *head.split(b"\r\n\r\n", 1)
            got, size = len(body), int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
            while got < size and (data := client.recv(65536)):
                got += len(data)
                time.sleep(max(0, got / self.rate - (time.monotonic() - start)))
            self.bodies.append(got)
            if len(self.bodies) > self.drops:
                client.sendall(b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 0\r\n\r\n')


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SlowServer]]:
    servers: list[SlowServer] = []

    def start(*arguments: float, retry_s: float = 60, tls: ssl.SSLContext | None = None) -> SlowServer:
        servers.append(SlowServer(*arguments, tls=tls))  # type: ignore[arg-type]
        monkeypatch.setenv("LIPT_S3_ENDPOINT", servers[-1].url)
        monkeypatch.setenv("LIPT_S3_RETRY_S", str(retry_s))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        return servers[-1]

    yield start
    for server in servers:
        server.listener.close()


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Of a server with a certificate that this process trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / CERTIFICATE))
    return self_signed(tmp_path)


@pytest.mark.parametrize("secure", [False, True])
def test_an_upload_may_take_longer_than_a_connect(
    serve: Callable[..., SlowServer], tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    monkeypatch.setattr("lipt.adapters.store.s3._CONNECT_S", 0.3)
    server = serve(24, tls=tls if secure else None)
    started = time.monotonic()
    store = open_store("s3://bucket/x")
    store.write("y", bytes(SIZE), kind="model")
    assert time.monotonic() - started > 0.6
    assert server.bodies == [SIZE]
    assert store.traffic.requests == {"write": 1}


def test_an_upload_that_does_not_advance_is_given_up(serve: Callable[..., SlowServer]) -> None:
    server = serve(0.01, retry_s=2)  # 65 kB in 6.5 s; a second without an advance is too long
    started = time.monotonic()
    with pytest.raises(TransientError, match="unreachable"):
        open_store("s3://bucket/x").write("y", bytes(SIZE), kind="model")
    assert time.monotonic() - started < 20
    assert server.bodies == []


def test_an_upload_that_fails_at_its_end_is_repeated_however_long_it_took(serve: Callable[..., SlowServer]) -> None:
    server = serve(24, 1, retry_s=0.4)
    open_store("s3://bucket/x").write("y", bytes(SIZE), kind="model")
    assert server.bodies == [SIZE, SIZE]
