"""Answers of S3 stores that no server of the contract tests gives."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from lipt.adapters.store import Store, open_store
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
        with pytest.raises(
            UsageError, match=f"{code}: expecting eu-central-1\n  -> .*LIPT_S3_ENDPOINT.*AWS_REGION.* to those"
        ):
            open_store("s3://bucket/x").read("y", kind="data")
        monkeypatch.setenv("LIPT_POD", "x")
        with pytest.raises(UsageError, match=r"`endpoint` in the ConfigMap of .*`region` in the ConfigMap of"):
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
    with pytest.raises(TransientError, match=r"LIPT_S3_ENDPOINT\) is correct \(or use https://\)"):
        open_store("s3://bucket/x").read("y", kind="data")


@contextmanager
def hanging_up() -> Iterator[int]:
    """The port of a server that ends each connection when it has heard the first words of TLS, as one that restarts."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.recv(2**16)

        Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def test_a_connection_that_breaks_under_tls_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    with hanging_up() as port:
        monkeypatch.setenv("LIPT_S3_ENDPOINT", f"https://127.0.0.1:{port}")
        with pytest.raises(TransientError, match="unreachable"):
            open_store("s3://bucket/x").write("y", b"z", kind="data")


class Status(JsonHandler):
    """Answers with one status, and no body that S3 knows."""

    status = 0

    def do_GET(self) -> None:
        self.answer_text("<html>", self.status, kind="text/html")

    def do_HEAD(self) -> None:
        self.send_response(self.status)
        self.end_headers()


@pytest.mark.parametrize(
    ("status", "error"), [(408, TransientError), (429, TransientError), (503, TransientError), (501, UsageError)]
)
def test_which_statuses_pass(status: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(type("Handler", (Status,), {"status": status})) as address:
        monkeypatch.setenv("LIPT_S3_ENDPOINT", address)
        with pytest.raises(error, match=f"HTTP {status}"):
            open_store("s3://bucket/x").list()


@pytest.mark.parametrize(("status", "ask"), [(200, lambda store: store.list()), (409, lambda store: store.size("y"))])
def test_an_answer_that_no_client_can_read_is_no_traceback(
    status: int, ask: Callable[[Store], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(type("Handler", (Status,), {"status": status})) as address:
        monkeypatch.setenv("LIPT_S3_ENDPOINT", address)
        with pytest.raises(UsageError, match="does not answer like an S3 store"):
            ask(open_store("s3://bucket/x"))


def test_a_proxy_that_ignores_ranges_is_not_taken_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(type("Handler", (Status,), {"status": 200})) as address:
        monkeypatch.setenv("LIPT_S3_ENDPOINT", address)
        assert open_store("s3://bucket/x").read("y", kind="data") == b"<html>"
        with pytest.raises(UsageError, match="it ignores ranges"):
            open_store("s3://bucket/x").read("y", kind="data", start=1, length=2)


class Folders(JsonHandler):
    """Lists an object, and two folders that the browser of a bucket made."""

    def do_GET(self) -> None:
        listed = "".join(
            f"<Contents><Key>x/{key}</Key><Size>1</Size><ETag>e</ETag></Contents>"
            for key in ("", "sweeps/", "sweeps/a.json")
        )
        root = 'ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        self.answer_text(f"<{root}><Name>b</Name>{listed}</ListBucketResult>", kind="application/xml")


class Refused(OtherRegion):
    code, status = "SignatureDoesNotMatch", 403


@pytest.mark.parametrize("variable", ["LIPT_POD", "JOB_COMPLETION_INDEX"])
def test_in_a_pod_of_a_run_the_remedies_name_its_secret_and_its_config_map(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Nobody can set a variable there."""
    monkeypatch.delenv("LIPT_S3_ENDPOINT", raising=False)
    with pytest.raises(UsageError, match="-> set it to the address of the store"):
        open_store("s3://bucket/x")
    monkeypatch.setenv(variable, "0")
    with pytest.raises(UsageError, match="from the ConfigMap of -p s3=NAME: `kubectl -n NAMESPACE get configmap NAME`"):
        open_store("s3://bucket/x")
    with serving(Refused) as address:
        monkeypatch.setenv("LIPT_S3_ENDPOINT", address)
        with pytest.raises(UsageError, match=r"-> check the credentials \(the Secret of -p s3=NAME"):
            open_store("s3://bucket/x").list()
        monkeypatch.delenv(variable)
        with pytest.raises(UsageError, match=r"-> check the credentials \(AWS_ACCESS_KEY_ID"):
            open_store("s3://bucket/x").list()
        monkeypatch.setenv(variable, "0")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
        with pytest.raises(UsageError, match=r"AWS_SECRET_ACCESS_KEY\n.* from the Secret of -p s3=NAME"):
            open_store("s3://bucket/x")


def test_in_a_pod_of_a_run_an_unreachable_store_leads_to_its_config_map(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(type("Handler", (Status,), {"status": 503})) as address:
        monkeypatch.setenv("LIPT_S3_ENDPOINT", address)
        with pytest.raises(TransientError, match=r"address \(LIPT_S3_ENDPOINT\) is correct, then try again"):
            open_store("s3://bucket/x").list()
        monkeypatch.setenv("LIPT_POD", "x")
        with pytest.raises(TransientError, match=r"\(`endpoint` in the ConfigMap of -p s3=NAME\) is correct, then try"):
            open_store("s3://bucket/x").list()


def test_folders_in_a_bucket_are_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Folders) as address:
        monkeypatch.setenv("LIPT_S3_ENDPOINT", address)
        assert list(open_store("s3://bucket/x").list()) == ["sweeps/a.json"]
