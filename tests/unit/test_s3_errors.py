"""Answers of S3 stores that no server of the contract tests gives."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from lipt.adapters.store import open_store
from lipt.errors import TransientError, UsageError
from tests.unit.cluster.servers import JsonHandler, serving


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "someone")
    monkeypatch.setenv("LIPT_S3_RETRY_S", "0")


class OtherRegion(JsonHandler):
    """Answers as AWS does for a bucket of another region. HEAD gets no body."""

    code, status = "", 0

    def do_GET(self) -> None:
        told = f"<Code>{self.code}</Code><Message>expecting eu-central-1</Message>"
        self.answer_text(f"<Error>{told}</Error>", self.status, kind="application/xml")

    def do_HEAD(self) -> None:
        self.send_response(self.status)
        self.end_headers()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("PermanentRedirect", 301),
        ("TemporaryRedirect", 307),
        ("AuthorizationHeaderMalformed", 400),
        ("IllegalLocationConstraintException", 400),
    ],
)
def test_a_bucket_of_another_region_is_told_in_the_words_of_the_store(
    code: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(type("Handler", (OtherRegion,), {"code": code, "status": status})) as address:
        monkeypatch.setenv("LIPT_S3_ENDPOINT", address)
        with pytest.raises(UsageError, match=f"{code}: expecting eu-central-1\n  -> .* set AWS_REGION .* lipt-s3"):
            open_store("s3://bucket/x").read("y", kind="data")
        with pytest.raises(UsageError, match="set AWS_REGION"):
            open_store("s3://bucket/x").size("y")


@pytest.fixture
def tls_port() -> Iterator[int]:
    """Of a server that answers plain HTTP as one does that waits for TLS: with an alert."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(2**16)
                client.sendall(b"\x15\x03\x01\x00\x02\x02\x46")

        Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def test_http_at_a_port_for_tls_is_not_only_an_outage(tls_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIPT_S3_ENDPOINT", f"http://127.0.0.1:{tls_port}")
    with pytest.raises(TransientError, match=r"LIPT_S3_ENDPOINT is correct \(or use https://\)"):
        open_store("s3://bucket/x").read("y", kind="data")
